"""What was measured, whether or not anybody made a promise about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slas.histogram import Histogram

HistogramKey = tuple[str, str, str, int]
"""Metric, tenant, phase (warmup, burst or calm) and run: the tag of a histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One metric over one part of the measured window, in its base unit (s, B, shares, 1/s, counts).

    ``tenant`` None is all tenants, ``run`` None all runs, ``phase`` None the whole window. ``count`` counts
    requests (memory: sweeps), failed ones included. A percentile is None if nothing was measured or if it
    falls on a failed request. A metric that is one number has it in ``mean``, and its range over runs in
    ``min`` and ``max``.
    """

    metric: str
    tenant: str | None
    phase: str | None
    run: int | None
    unit: str
    count: int
    failed: int
    mean: float | None
    min: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    p999: float | None
    max: float | None
    node: str | None = None
    gpu: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that measurements.json holds; ``node`` and ``gpu`` only where they say something."""
        body: dict[str, Any] = {
            "metric": self.metric,
            "tenant": self.tenant,
            "phase": self.phase,
            "run": self.run,
            "unit": self.unit,
            "count": self.count,
            "failed": self.failed,
            "mean": self.mean,
            "min": self.min,
            "p50": self.p50,
            "p90": self.p90,
            "p95": self.p95,
            "p99": self.p99,
            "p99.9": self.p999,
            "max": self.max,
        }
        if self.gpu is not None:
            body["node"] = self.node
            body["gpu"] = self.gpu
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Measurement:
        """Return the measurement that ``to_json`` wrote. Raises KeyError or TypeError on anything else."""
        fields = dict(body)
        fields["p999"] = fields.pop("p99.9")
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries:
    """What is left of a run whose rows are gone: its histograms, and its measurements for the failures."""

    histograms: Mapping[HistogramKey, Histogram] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
