"""What one event of a streamed reply says, whatever the API's dialect."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One event. ``tokens`` is 0 for role chunks, usage chunks and empty deltas, and the client's own count else.

    A delta of text counts as one token, however long: only the server's usage knows better. ``output`` is true
    if any of it is not reasoning. ``end`` is the dialect's end mark. Counts are None where the server is silent;
    ``doubt`` says why they are where it is not. How large a count may be is not the dialect's to say.
    """

    tokens: int = 0
    output: bool = False
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    doubt: str | None = None
    error: str | None = None
    end: bool = False
