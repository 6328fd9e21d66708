"""Many independent users, none of whom knows of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from profiles.process import CHUNK, Arrival, Stretch, renewal


class Poisson(Arrival):
    """Exponential gaps of mean 1/rate: CV 1 and index of dispersion 1 at every scale."""

    model: Literal["poisson"] = "poisson"

    def stretches(
        self, rng: np.random.Generator, rate_hz: float, until_s: float
    ) -> Iterator[Stretch]:
        """Yield the arrivals; the residual gap is a gap."""
        return renewal(
            rng.standard_exponential() / rate_hz,
            lambda: rng.standard_exponential(CHUNK) / rate_hz,
            until_s,
        )
