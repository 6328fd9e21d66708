"""The planned requests of a profile: pure in (profile, seed, level), never rescaled to a duration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request to send. ``due_ns`` counts from the start of the warm-up.

    It is None for a later request of a closed loop, which is due ``think_ns`` after the previous completion.
    ``ordinal`` counts the tenant's requests from 0; ``session`` decides the lane.
    """

    due_ns: int | None
    tenant: str
    ordinal: int
    session: str
    turn: int
    think_ns: int
    burst: bool
    prompt_tokens: int
    output_tokens: int
