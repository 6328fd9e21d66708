"""One row of a recorded trace, whatever the format of its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TraceRow(NamedTuple):
    """A request that was once sent: its wall clock in ns, its lengths in tokens and its line in the file."""

    at_ns: int
    prompt_tokens: int
    output_tokens: int
    line: int


@dataclass(frozen=True, slots=True)
class TraceError(Exception):
    """A trace file that cannot be replayed; line 0 means the file as a whole."""

    line: int
    fault: str
    mend: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.fault}; {self.mend}"
            if self.line
            else f"{self.fault}; {self.mend}"
        )
