"""What an engine kind finds wrong with a sheet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One fault of a sheet that only the engine kind can see: the path of the field, the fault, the mend."""

    field: tuple[str | int, ...]
    fault: str
    mend: str
