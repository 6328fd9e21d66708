"""The API dialects: how a planned request is asked for, and how what comes back is read.

A dialect from outside is an entry point of the group ``tailgate.dialects`` that names an instance.
"""

from __future__ import annotations

from typing import Protocol

from loadgen.dialects.chat import Chat
from loadgen.dialects.completions import Completions
from loadgen.event import Event
from profiles.shelf import shelve

GROUP = "tailgate.dialects"


class Dialect(Protocol):
    """One API. All bytes are UTF-8 JSON; ``path`` follows the server's root.

    ``output_keys`` and ``reasoning_keys`` name the JSON keys whose non-empty string is a token delta: the wire
    looks for them in the bytes of an event, so that most events need no JSON parser.
    """

    @property
    def path(self) -> str:
        """The route that requests are posted to."""
        ...

    @property
    def output_keys(self) -> tuple[str, ...]:
        """Keys of deltas that are not reasoning."""
        ...

    @property
    def reasoning_keys(self) -> tuple[str, ...]:
        """Keys of deltas that are reasoning."""
        ...

    def body(self, *, model: str, prompt: str, output_tokens: int) -> bytes:
        """Return the body of a request for exactly ``output_tokens`` tokens, streamed."""
        ...

    def read(self, data: bytes) -> Event:
        """Return what the data of one event says. Raises ValueError if it is not of this dialect."""
        ...

    def read_whole(self, body: bytes) -> Event:
        """Return what a reply says that came in one piece. Raises ValueError if it is not of this dialect."""
        ...

    def refusal(self, body: bytes) -> str:
        """Return the server's own words in the body of an error reply; never raises."""
        ...


DIALECTS: dict[str, Dialect] = {
    "chat": Chat(),
    "completions": Completions(),
}


def names() -> tuple[str, ...]:
    """Return the names of all dialects, ours and those of entry points. Raises ShelfError if two share one."""
    return tuple(sorted(shelve(DIALECTS, GROUP)))


def dialect(name: str) -> Dialect:
    """Return the dialect of that name, ours or an entry point's.

    Raises LookupError if there is none, and ShelfError if two have the name.

    >>> dialect("chat").path
    '/v1/chat/completions'
    """
    shelf = shelve(DIALECTS, GROUP)
    if name not in shelf:
        raise LookupError(f"no API dialect {name!r}; there are {', '.join(sorted(shelf))}")
    return shelf[name]
