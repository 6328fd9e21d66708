"""Token counts of prompts and replies: how each is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from profiles.sheet import RefusalError, Strict, shown

MOST_TOKENS = 10_000_000
# the standard normal's 95th percentile
_Z95 = 1.6448536269514722

Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Always the same number of tokens."""

    tokens: int

    def draw(self, rng: np.random.Generator, n: int) -> Tokens:
        """Return ``n`` token counts."""
        return np.full(n, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """Lognormal with this median and 95th percentile, held to [1, most] and rounded to whole tokens."""

    median: float
    p95: float
    most: int

    @property
    def sigma(self) -> float:
        """The standard deviation of the logarithm: ln(p95 / median) / z(95 %)."""
        return math.log(self.p95 / self.median) / _Z95

    def draw(self, rng: np.random.Generator, n: int) -> Tokens:
        """Return ``n`` token counts."""
        drawn = self.median * np.exp(self.sigma * rng.standard_normal(n))
        return np.rint(np.clip(drawn, 1, self.most)).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform:
    """Every whole number from ``least`` to ``most``, both included, equally often."""

    least: int
    most: int

    def draw(self, rng: np.random.Generator, n: int) -> Tokens:
        """Return ``n`` token counts."""
        return rng.integers(self.least, self.most, size=n, endpoint=True, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Through the given quantiles, between which the logarithm of the tokens is uniform; rounded to whole tokens.

    ``shares`` ascend from 0 to 1, ``tokens`` beside them never fall: the least, quantiles, the most.
    """

    shares: tuple[float, ...]
    tokens: tuple[int, ...]

    def draw(self, rng: np.random.Generator, n: int) -> Tokens:
        """Return ``n`` token counts."""
        drawn = np.exp(np.interp(rng.random(n), self.shares, np.log(self.tokens)))
        return np.rint(drawn).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """Drawn from counts that were seen, with replacement."""

    seen: tuple[int, ...]

    def draw(self, rng: np.random.Generator, n: int) -> Tokens:
        """Return ``n`` token counts."""
        seen = np.asarray(self.seen, dtype=np.int64)
        picked: Tokens = seen[rng.integers(0, len(seen), size=n)]
        return picked


Lengths = Fixed | Lognormal | Uniform | Quantiles | Empirical

_Count = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


_FORMS = (
    "a number, {median: 512, p95: 2000}, {min: 100, max: 200} or "
    "{min: 10, p50: 200, p90: 900, max: 4000}"
)
# the quantiles that a sheet may give, ascending
_SHARES: Mapping[str, float] = {
    "min": 0.0,
    "p1": 0.01,
    "p5": 0.05,
    "p10": 0.10,
    "p25": 0.25,
    "p50": 0.50,
    "p75": 0.75,
    "p90": 0.90,
    "p95": 0.95,
    "p99": 0.99,
    "max": 1.0,
}


class LengthsSheet(Strict):
    """Lengths as a sheet says them.

    A bare number, ``{median, p95}`` with or without ``max``, ``{min, max}``, or quantiles between ``min`` and ``max``.
    """

    fixed: _Count | None = None
    median: _Count | None = None
    min: _Count | None = None
    p1: _Count | None = None
    p5: _Count | None = None
    p10: _Count | None = None
    p25: _Count | None = None
    p50: _Count | None = None
    p75: _Count | None = None
    p90: _Count | None = None
    p95: _Count | None = None
    p99: _Count | None = None
    max: _Count | None = None

    @model_validator(mode="after")
    def _one_way(self) -> LengthsSheet:
        given = self.model_fields_set
        if given == {"fixed"}:
            return self
        if given in ({"median", "p95"}, {"median", "p95", "max"}):
            assert self.median is not None
            assert self.p95 is not None
            if self.p95 < self.median:
                raise RefusalError(
                    f"p95 {self.p95} is below the median {self.median}",
                    "write the larger number as p95",
                    ("p95",),
                )
            if self.max is not None and self.max < self.median:
                raise RefusalError(
                    f"max {self.max} is below the median {self.median}",
                    "write a larger max",
                    ("max",),
                )
            return self
        if {"min", "max"} <= given <= _SHARES.keys():
            for (low, least), (high, most) in pairwise(self._quantiles()):
                if most < least:
                    raise RefusalError(
                        f"{high} {most} is below {low} {least}",
                        f"write the larger number as {high}",
                        (high,),
                    )
            return self
        shown = ", ".join(sorted(given)) or "nothing"
        mend = f"write {_FORMS}"
        if given <= _SHARES.keys() and len(given) > 1:
            mend = f"add {' and '.join(sorted({'min', 'max'} - given))}"
        raise RefusalError(f"{shown} does not describe lengths", mend)

    def _quantiles(self) -> list[tuple[str, int]]:
        named = ((name, getattr(self, name)) for name in _SHARES)
        return [(name, tokens) for name, tokens in named if tokens is not None]

    def value(self) -> Lengths:
        """Return the lengths to draw from."""
        if self.fixed is not None:
            return Fixed(tokens=self.fixed)
        if self.median is not None and self.p95 is not None:
            most = MOST_TOKENS if self.max is None else self.max
            return Lognormal(median=self.median, p95=self.p95, most=most)
        quantiles = self._quantiles()
        if len(quantiles) == 2:
            (_, least), (_, most) = quantiles
            return Uniform(least=least, most=most)
        return Quantiles(
            shares=tuple(_SHARES[name] for name, _ in quantiles),
            tokens=tuple(tokens for _, tokens in quantiles),
        )


def _bare_number_is_fixed(value: Any) -> Any:
    if isinstance(value, LengthsSheet | dict):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return {"fixed": value}
    raise RefusalError(
        f"expected lengths in tokens, got {shown(value)}",
        f"write {_FORMS}",
    )


_COUNT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": MOST_TOKENS}
LengthsField = Annotated[
    LengthsSheet,
    BeforeValidator(_bare_number_is_fixed),
    WithJsonSchema(
        {
            "oneOf": [
                _COUNT_SCHEMA,
                *(
                    {
                        "type": "object",
                        "properties": dict.fromkeys((*needed, *more), _COUNT_SCHEMA),
                        "required": list(needed),
                        "additionalProperties": False,
                    }
                    for needed, more in ((("median", "p95"), ("max",)), (("min", "max"), _SHARES))
                ),
            ]
        }
    ),
]
