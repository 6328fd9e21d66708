"""Clustered arrivals without memory between gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from profiles.process import CHUNK, Arrival, Stretch, renewal


class Gamma(Arrival):
    """Gamma gaps of mean 1/rate and coefficient of variation ``cv``: shape 1/cv^2, scale cv^2/rate.

    The index of dispersion tends to cv^2 over bins much longer than cv^2/rate.
    """

    model: Literal["gamma"] = "gamma"
    cv: float = Field(ge=0.05, le=20)

    def stretches(
        self, rng: np.random.Generator, rate_hz: float, until_s: float
    ) -> Iterator[Stretch]:
        """Yield the arrivals.

        The residual gap is a uniform share of a length-biased gap, which is again gamma, of shape + 1.
        """
        shape = 1 / self.cv**2
        scale_s = self.cv**2 / rate_hz
        first_s = rng.random() * rng.standard_gamma(shape + 1) * scale_s
        return renewal(first_s, lambda: rng.standard_gamma(shape, CHUNK) * scale_s, until_s)
