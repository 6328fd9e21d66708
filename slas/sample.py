"""The latencies of one metric over one selection of requests: exact from rows, or as histograms still hold them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slas.columns import MISSING, UNBOUNDED, Bools, Columns, Ints
from slas.histogram import Histogram, rank_of
from slas.quantity import Latency

_NS_PER_US = 1000


class Sample(Protocol):
    """What a point check needs to know of a distribution.

    ``size`` counts latencies, ``requests`` the requests that they belong to, ``failed`` how many latencies are
    above every limit. ``percentile_ns`` returns None where the rank falls on one of those.
    """

    @property
    def size(self) -> int:
        """How many latencies there are, those above every limit included."""

    @property
    def requests(self) -> int:
        """How many requests they belong to."""

    @property
    def failed(self) -> int:
        """How many of them are above every limit."""

    def percentile_ns(self, share: float) -> int | None:
        """Return the latency at rank ceil(share x size). Raises ValueError on an empty sample."""


@dataclass(frozen=True, eq=False)
class ExactSample:
    """Latencies as the rows hold them; ``values_ns`` UNBOUNDED for a failure, ``row`` the row of each."""

    columns: Columns
    latency: Latency
    values_ns: Ints
    row: Ints

    @property
    def size(self) -> int:
        """How many latencies there are."""
        return int(self.values_ns.size)

    @cached_property
    def requests(self) -> int:
        """How many requests they belong to."""
        if self.latency.in_goodput is None:
            return self.size
        seen = np.zeros(self.columns.size, dtype=np.bool_)
        seen[self.row] = True
        return int(np.count_nonzero(seen))

    @cached_property
    def failed(self) -> int:
        """How many are above every limit."""
        return int(np.count_nonzero(self.values_ns == UNBOUNDED))

    @cached_property
    def _sorted_ns(self) -> Ints:
        return np.sort(self.values_ns)

    def percentile_ns(self, share: float) -> int | None:
        """Return the latency at rank ceil(share x size)."""
        if self.size == 0:
            raise ValueError("no latencies")
        value = int(self._sorted_ns[rank_of(share, self.size) - 1])
        return None if value == UNBOUNDED else value

    def min_ns(self) -> int | None:
        """Return the least latency; None if every one is above every limit."""
        return self._finite(int(self.values_ns.min()))

    def max_ns(self) -> int | None:
        """Return the greatest latency; None if one is above every limit."""
        return self._finite(int(self.values_ns.max()))

    def _finite(self, value: int) -> int | None:
        return None if value == UNBOUNDED else value

    def capped_ns(self) -> NDArray[np.float64]:
        """Return the latencies as they count in a mean: a failure as its total timeout, or longer if it was."""
        values = self.values_ns.astype(np.float64)
        lost = np.flatnonzero(self.values_ns == UNBOUNDED)
        rows = self.row[lost]
        since = self.columns.due_ns[rows]
        if self.latency.clock == "sent":
            sent = self.columns.sent_ns[rows]
            since = np.where(sent == MISSING, self.columns.done_ns[rows], sent)
        elapsed = self.columns.done_ns[rows] - since
        values[lost] = np.maximum(elapsed, self.columns.total_timeout_ns)
        return values

    def beyond(self, limit_ns: float, *, strict: bool) -> int:
        """Return how many latencies break a limit; ``strict``: those equal to it break it too."""
        if strict:
            return int(np.count_nonzero(self.values_ns >= limit_ns))
        return int(np.count_nonzero(self.values_ns > limit_ns))

    def by_run(self) -> dict[int, ExactSample]:
        """Return the sample of each run; a run without any is there and empty."""
        run = self.columns.run[self.row]
        return {
            number: ExactSample(
                self.columns, self.latency, self.values_ns[run == index], self.row[run == index]
            )
            for index, number in enumerate(self.columns.runs)
        }


@dataclass(frozen=True, eq=False)
class BucketSample:
    """Latencies of which only the histogram is left; every value is taken at its bucket's upper edge."""

    histogram: Histogram
    requests: int
    failed: int

    @property
    def size(self) -> int:
        """How many latencies there are."""
        return self.histogram.total + self.failed

    def percentile_ns(self, share: float) -> int | None:
        """Return the upper edge of the bucket at rank ceil(share x size)."""
        if self.size == 0:
            raise ValueError("no latencies")
        value = self.histogram.percentile_us(share, above=self.failed)
        return None if value is None else value * _NS_PER_US


def sample_of(columns: Columns, latency: Latency, chosen: Bools) -> ExactSample:
    """Return the latencies of the chosen requests."""
    samples = latency.seen(columns)
    keep = chosen[samples.row]
    return ExactSample(columns, latency, samples.values_ns[keep], samples.row[keep])


def whole_us(values_ns: Ints) -> Ints:
    """Return microseconds, rounded up: a histogram may say that a limit was missed, never that it was kept."""
    return -(-values_ns // _NS_PER_US)
