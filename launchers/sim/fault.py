"""Faults on demand: what goes wrong, for which requests, and when. Chosen by request number, so always alike."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All faults; the defaults are none. Shares are of requests, 0 to 1; times in ns; counts in tokens.

    The first ``spare`` requests are left alone, so that an engine can be proved ready before it fails.
    Of every stream that is hit, ``*_after`` tokens come out first. A stall delays tokens, it loses none.
    """

    spare: int = 0
    refuse: float = 0.0
    refuse_status: int = 503
    error: float = 0.0
    error_after: int = 3
    cut: float = 0.0
    cut_after: int = 3
    stall: float = 0.0
    stall_after: int = 3
    stall_ns: int = 1_000_000_000
    ping_every_ns: int = 0
    coalesce: int = 1
    split: bool = False
    crlf: bool = False
    no_space: bool = False
    no_usage: bool = False
    no_done: bool = False
    no_finish: bool = False
    empty: float = 0.0
    tokens_per_chunk: int = 1
    reasoning: int = 0

    def __post_init__(self) -> None:
        for name in ("refuse", "error", "cut", "stall", "empty"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share of the requests, 0 to 1")
        for name in ("coalesce", "tokens_per_chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is a count, 1 or more")
        for name in ("spare", "error_after", "cut_after", "stall_after", "stall_ns", "ping_every_ns", "reasoning"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative")
        if self.refuse_status not in (429, 500, 503):
            raise ValueError("refuse_status is 429, 500 or 503")

    def hit(self, share: float, number: int) -> bool:
        """Whether request ``number`` is among ``share`` of those that are not spared."""
        return number >= self.spare and hit(share, number - self.spare)

    def bends(self, number: int) -> bool:
        """Whether the stream of request ``number`` differs in any way from a plain one."""
        return number >= self.spare and (
            self.coalesce > 1
            or self.split
            or self.crlf
            or self.no_space
            or self.no_usage
            or self.no_done
            or self.no_finish
            or self.tokens_per_chunk > 1
            or self.reasoning > 0
            or any(hit(share, number) for share in (self.error, self.cut, self.stall, self.empty))
        )

    def changed(self, changes: dict[str, Any]) -> Faults:
        """These faults with some fields set anew. Raises ValueError for unknown names and wrong types."""
        known = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise ValueError(f"unknown fault {name!r}; known are {', '.join(sorted(known))}")
            fits = (int, float) if known[name] is float else known[name]
            if not isinstance(value, fits) or isinstance(value, bool) != (known[name] is bool):
                raise ValueError(f"{name} must be of type {known[name].__name__}, not {value!r}")
        return replace(self, **changes)


NONE = Faults()


def hit(share: float, number: int) -> bool:
    """Whether request ``number`` (from 0) is among ``share`` of all, spread evenly.

    >>> [number for number in range(10) if hit(0.3, number)]
    [3, 6, 9]
    """
    # the nudge keeps 10 x 0.3 from being 2.9999...
    return int((number + 1) * share + 1e-9) > int(number * share + 1e-9)
