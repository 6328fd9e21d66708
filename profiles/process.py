"""An arrival process: when requests come as the world sends them, whatever the server does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from profiles.sheet import Strict

Seconds = NDArray[np.float64]
# gaps are drawn this many at a time; the number is part of what a seed means
CHUNK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The arrivals of one stretch of time, ascending, in seconds from the start.

    ``bursts_s`` are the [start, end) intervals of the high state in this stretch, for models with states.
    """

    times_s: Seconds
    bursts_s: tuple[tuple[float, float], ...] = ()


class Arrival(Strict):
    """A process of a given mean rate, stationary from its first instant.

    The time to the first arrival follows the residual law of the process, so every window is expected to hold
    rate x length arrivals and nothing needs to be rescaled.
    """

    has_states: ClassVar[bool] = False
    model: str

    def draws(self, rate_hz: float, until_s: float) -> float:
        """Return how much [0, until_s) is expected to take: an arrival is one draw, a change of state another."""
        return rate_hz * until_s

    @abstractmethod
    def stretches(
        self, rng: np.random.Generator, rate_hz: float, until_s: float
    ) -> Iterator[Stretch]:
        """Yield every arrival in [0, until_s) in order; the last stretch may run past ``until_s``.

        A smaller ``until_s`` yields a prefix of the same arrivals.
        """


def renewal(first_s: float, draw_s: Callable[[], Seconds], until_s: float) -> Iterator[Stretch]:
    """Yield the arrivals of a renewal process: one at ``first_s``, then one after each gap that is drawn."""
    yield Stretch(times_s=np.array([first_s]))
    last_s = first_s
    while last_s < until_s:
        times_s = last_s + np.cumsum(draw_s())
        last_s = float(times_s[-1])
        yield Stretch(times_s=times_s)
