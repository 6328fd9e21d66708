"""Equal gaps, from a random phase on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from profiles.process import CHUNK, Arrival, Stretch, renewal


class Constant(Arrival):
    """One request every 1/rate, the first at a random share of it, so that tenants do not march in step."""

    model: Literal["constant"] = "constant"

    def stretches(
        self, rng: np.random.Generator, rate_hz: float, until_s: float
    ) -> Iterator[Stretch]:
        """Yield the arrivals; CV of the gaps 0."""
        gap_s = 1 / rate_hz
        return renewal(rng.random() * gap_s, lambda: np.full(CHUNK, gap_s), until_s)
