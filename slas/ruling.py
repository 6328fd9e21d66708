"""What the court says: a ruling per check, the instrument's fitness, and the verdict over all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Level = Literal["must", "should"]


class Ruling(StrEnum):
    """How a check or a run ended. INVALID is about us and never said of a single check."""

    PASS = "PASS"  # noqa: S105  # a ruling, no password
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    SKIPPED = "SKIPPED"
    INVALID = "INVALID"


_WORST_FIRST = (Ruling.INVALID, Ruling.FAIL, Ruling.INCONCLUSIVE, Ruling.PASS, Ruling.SKIPPED)


def worst(rulings: Iterable[Ruling]) -> Ruling:
    """Return the ruling that decides: INVALID > FAIL > INCONCLUSIVE > PASS > SKIPPED.

    Raises ValueError if there is none: nothing to rule on is never a PASS.

    >>> worst([Ruling.PASS, Ruling.INCONCLUSIVE])
    <Ruling.INCONCLUSIVE: 'INCONCLUSIVE'>
    """
    said = set(rulings)
    for ruling in _WORST_FIRST:
        if ruling in said:
            return ruling
    raise ValueError("no rulings to weigh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The number a check was ruled on, in base units (s, B, shares, 1/s).

    ``value`` is None when there is none, ``unbounded`` when that is because it fell on a request that failed.
    ``low`` and ``high`` bound it at the verdict's confidence (None for point evidence; an unbounded upper
    end is None too). ``samples`` counts requests, or memory sweeps; ``effective_samples`` is what they are
    worth once runs that differ are allowed for (traffic clustered by run).
    """

    value: float | None
    unbounded: bool
    unit: str
    low: float | None
    high: float | None
    samples: int
    runs: int
    effective_samples: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRuling:
    """One check, on one tenant or GPU if its selector named or expanded to one.

    ``limit`` is in the base unit of ``measured``; None where a baseline that would give it is missing.
    ``because`` is a sentence for people; ``mend`` what to do about it.
    """

    expr: str
    name: str
    level: Level
    tenant: str | None
    gpu: int | None
    node: str | None
    phase: str | None
    ruling: Ruling
    measured: Measured | None
    limit: float | None
    because: str
    mend: str | None
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the instrument was fit to measure. ``reasons`` decide; ``causes`` only explain.

    ``slow`` says in what an instrument that was fit was slow all the same: no ruling depends on it.

    Latenesses and lags are seconds; None if nothing was recorded. ``mend`` says what to try.
    """

    fit: bool
    reasons: tuple[str, ...]
    causes: tuple[str, ...]
    mend: str | None
    lateness_p50_s: float | None
    lateness_p99_s: float | None
    lateness_max_s: float | None
    loop_lag_p99_s: float | None
    loop_lag_max_s: float | None
    unsent: int
    steal_share_max: float | None
    run_queue_share_max: float | None
    slow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The ruling of a run and everything it rests on.

    ``evidence`` is "point" or, for example, "5 runs, 95%". ``engine_fault`` is why the engine failed the run
    by itself, ``cut`` why the run ended before its plan, ``aborted`` which check ended it.
    """

    ruling: Ruling
    checks: tuple[CheckRuling, ...]
    health: Health
    evidence: str
    simulated: bool
    schedule_sha256: str
    warnings: tuple[str, ...] = field(default=())
    strict: bool = False
    engine_fault: str | None = None
    cut: str | None = None
    aborted: str | None = None
