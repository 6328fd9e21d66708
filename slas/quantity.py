"""The four shapes a metric can have; the court rules by shape, so a new metric of a known shape needs no new rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from slas.columns import Bools, Columns, Ints
from slas.evidence import Evidence


class Unit(StrEnum):
    """Base units, as measurements.json and verdict.json write them."""

    SECONDS = "s"
    SHARE = "share"
    BYTES = "B"
    PER_SECOND = "/s"
    COUNT = "1"


Clock = Literal["due", "sent", "gap", "instrument"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Latencies in nanoseconds, UNBOUNDED where the request failed, and the row that each belongs to."""

    values_ns: Ints
    row: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A distribution of times: percentiles, mean, min and max of it can be promised.

    ``clock`` says what a sick instrument does to it: "due" suffers from lateness, "sent" does not, all of them and
    "gap" suffer from a loop that lags, and "instrument" is lateness itself. ``in_goodput`` names the per-request metric that
    ``goodput`` looks at instead, where samples are not one per request.
    """

    name: str
    meaning: str
    samples: Callable[[Columns], Samples]
    clock: Clock
    in_goodput: str | None = None
    unit: ClassVar[Unit] = Unit.SECONDS
    selectors: ClassVar[frozenset[str]] = frozenset({"tenant", "phase"})

    def seen(self, columns: Columns) -> Samples:
        """Return the samples, with late reads forgiven where the columns say so."""
        return self.samples(columns.read_in_time(gaps=self.clock == "gap"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a single request must meet to count as good: its ``latency`` at most (``strict``: below) ``limit_ns``."""

    latency: Latency
    strict: bool
    limit_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A share of the requests that were due. ``counted`` returns which of all rows count towards it.

    ``good`` says whether counting is a merit (goodput) or a fault (errors); ``bounded`` whether it takes bounds.
    """

    name: str
    meaning: str
    counted: Callable[[Columns, tuple[Bound, ...]], Bools]
    good: bool = False
    bounded: bool = False
    unit: ClassVar[Unit] = Unit.SHARE
    selectors: ClassVar[frozenset[str]] = frozenset({"tenant", "phase"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """An amount per second of the measured window. ``amounts`` returns what each row adds within the window.

    A NaN makes every sum that it enters unknown; ``unknown`` says why that can be.
    """

    name: str
    meaning: str
    amounts: Callable[[Columns], NDArray[np.float64]]
    unknown: str
    unit: ClassVar[Unit] = Unit.PER_SECOND
    selectors: ClassVar[frozenset[str]] = frozenset({"tenant"})

    def per_second(
        self, columns: Columns, tenants: Iterable[str | None]
    ) -> dict[tuple[str | None, int], float | None]:
        """Return the rate for each (tenant or None for all, run); None where it cannot be known."""
        amounts = self.amounts(columns)
        seconds = (columns.window_end_ns - columns.window_start_ns) / 1e9
        rates: dict[tuple[str | None, int], float | None] = {}
        for tenant in tenants:
            mine = columns.of_tenant(tenant)
            sums = np.bincount(
                columns.run[mine], weights=amounts[mine], minlength=len(columns.runs)
            )
            for index, run in enumerate(columns.runs):
                rate = float(sums[index]) / seconds
                rates[(tenant, run)] = None if math.isnan(rate) else rate
        return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The worst value of one run on one GPU (or of the engine: ``gpu`` None).

    ``value`` is in the unit of its metric; None if it cannot be known. ``missing`` says why the value may be
    too low, or is None: such a reading can break a promise but never keep it. ``at_ns`` is the monotonic time
    of the worst sample, None where the value is no single one's, ``total_bytes`` the GPU's memory, ``swept`` how many samples were read.
    """

    run: int
    node: str | None
    gpu: int | None
    value: float | None
    at_ns: int | None
    total_bytes: int | None
    swept: int
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A reading of the GPUs' memory or of the engine's own metrics: ruled by the worst place of the worst run.

    ``share_of_gpu`` lets a limit be a share of the GPU's memory; ``from_steady`` says that it needs the steady
    state of the warm-up; ``full_at`` is the value that nothing can exceed, None if there is none; ``rises_only``
    that a value seen midway can no longer come down.
    """

    name: str
    meaning: str
    unit: Unit
    source: Literal["memory", "engine"]
    read: Callable[[Evidence], tuple[Reading, ...]]
    share_of_gpu: bool = False
    from_steady: bool = False
    full_at: float | None = None
    rises_only: bool = True

    @property
    def selectors(self) -> frozenset[str]:
        """The keys by which it can be split."""
        return frozenset({"gpu", "node"}) if self.source == "memory" else frozenset()


Metric = Latency | Ratio | Rate | Gauge
