"""Surges: bursts that hit several tenants at once, as a faster clock for the affected ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """In [at, at + for), from the start of the measured window, the tenants' rates are multiplied by ``factor``."""

    at_ns: int
    for_ns: int
    factor: float
    tenants: tuple[str, ...]

    @property
    def end_ns(self) -> int:
        """The first instant after it."""
        return self.at_ns + self.for_ns


class Tempo:
    """How fast a tenant's own clock runs over the measured window: the product of the surges upon it.

    Its arrival process unrolls on that clock (a time change): while the clock runs ``factor`` times faster so do
    arrivals, with the same law of gaps, and nothing is dropped or drawn anew after it. Dwells of a model with
    states and the rows of a trace pass faster too.
    """

    def __init__(self, surges: Iterable[Surge], duration_ns: int) -> None:
        surges = tuple(surges)
        edges = {0, duration_ns}
        for surge in surges:
            edges |= {min(surge.at_ns, duration_ns), min(surge.end_ns, duration_ns)}
        starts = sorted(edges)
        own_ns = 0.0
        self._starts_ns: list[int] = []
        self._own_ns: list[float] = []
        self._factors: list[float] = []
        for start_ns, end_ns in pairwise(starts):
            factor = 1.0
            for surge in surges:
                if surge.at_ns <= start_ns < surge.end_ns:
                    factor *= surge.factor
            self._starts_ns.append(start_ns)
            self._own_ns.append(own_ns)
            self._factors.append(factor)
            own_ns += (end_ns - start_ns) * factor
        self.length_ns = own_ns
        self.bursts_ns = tuple(
            (surge.at_ns, min(surge.end_ns, duration_ns))
            for surge in surges
            if surge.factor > 1 and surge.at_ns < duration_ns
        )

    def window_ns(self, own_ns: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the instants of the window at which the tenant's clock shows ``own_ns``, rounded down."""
        if len(self._starts_ns) == 1:
            plain: NDArray[np.int64] = np.floor(own_ns).astype(np.int64)
            return plain
        at = np.searchsorted(self._own_ns, own_ns, side="right") - 1
        since_ns = own_ns - np.asarray(self._own_ns)[at]
        starts_ns = np.asarray(self._starts_ns, dtype=np.int64)
        instants: NDArray[np.int64] = starts_ns[at] + np.floor(
            since_ns / np.asarray(self._factors)[at]
        ).astype(np.int64)
        return instants
