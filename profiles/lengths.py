"""Token counts of prompts and replies: how each is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
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
class Empirical:
    """Drawn from counts that were seen, with replacement."""

    seen: tuple[int, ...]

    def draw(self, rng: np.random.Generator, n: int) -> Tokens:
        """Return ``n`` token counts."""
        seen = np.asarray(self.seen, dtype=np.int64)
        picked: Tokens = seen[rng.integers(0, len(seen), size=n)]
        return picked


Lengths = Fixed | Lognormal | Uniform | Empirical

_Count = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class LengthsSheet(Strict):
    """Lengths as a sheet says them: a bare number, ``{median, p95}`` with ``max``, or ``{min, max}``."""

    fixed: _Count | None = None
    median: _Count | None = None
    p95: _Count | None = None
    min: _Count | None = None
    max: _Count | None = None

    @model_validator(mode="after")
    def _one_way(self) -> LengthsSheet:
        forms = "a number, {median: 512, p95: 2000} or {min: 100, max: 200}"
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
        if given == {"min", "max"}:
            assert self.min is not None
            assert self.max is not None
            if self.max < self.min:
                raise RefusalError(
                    f"max {self.max} is below min {self.min}",
                    "write the larger number as max",
                    ("max",),
                )
            return self
        shown = ", ".join(sorted(given)) or "nothing"
        raise RefusalError(f"{shown} does not describe lengths", f"write {forms}")

    def value(self) -> Lengths:
        """Return the lengths to draw from."""
        if self.fixed is not None:
            return Fixed(tokens=self.fixed)
        if self.median is not None and self.p95 is not None:
            most = MOST_TOKENS if self.max is None else self.max
            return Lognormal(median=self.median, p95=self.p95, most=most)
        assert self.min is not None
        assert self.max is not None
        return Uniform(least=self.min, most=self.max)


def _bare_number_is_fixed(value: Any) -> Any:
    if isinstance(value, LengthsSheet | dict):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return {"fixed": value}
    raise RefusalError(
        f"expected lengths in tokens, got {shown(value)}",
        "write a whole number, {median: 512, p95: 2000} or {min: 100, max: 200}",
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
                        "properties": dict.fromkeys((*needed, "max"), _COUNT_SCHEMA),
                        "required": list(needed),
                        "additionalProperties": False,
                    }
                    for needed in (("median", "p95"), ("min", "max"))
                ),
            ]
        }
    ),
]
