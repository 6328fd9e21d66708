"""The run that a candidate is compared with, whether the two compare at all, and the limit that it sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slas.evidence import Subject
from slas.expression import Expression
from slas.histogram import Histogram
from slas.measurement import HistogramKey, Measurement, merged
from slas.quantity import Gauge, Latency

# statistics that a measurement holds as measured; others come from its histogram
_STORED = {
    "mean": "mean",
    "min": "min",
    "max": "max",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p99.9": "p999",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A stored run: what was tested, and enough of what was measured for any percentile to be read again.

    ``quick`` runs are never accepted; ``whole`` is false for a run that was cut or was INVALID.
    """

    name: str
    subject: Subject
    runs: int
    measurements: tuple[Measurement, ...]
    histograms: Mapping[HistogramKey, Histogram] = field(default_factory=dict)
    quick: bool = False
    whole: bool = True
    simulated: bool = False


def objections(baseline: Baseline, subject: Subject) -> tuple[str, ...]:
    """Return why a baseline cannot be compared with a run of ``subject``; empty if it can.

    Engine, model, GPU models and schedule must be equal. Versions may differ: upgrades are what people test.
    """
    found = []
    if baseline.quick:
        found.append("it is a quick run")
    if not baseline.whole:
        found.append("it is not a whole, valid run")
    theirs = baseline.subject
    for what, then, now in (
        ("engine", theirs.engine, subject.engine),
        ("model", theirs.model, subject.model),
        ("GPUs", ", ".join(theirs.gpu_models), ", ".join(subject.gpu_models)),
        ("schedule", theirs.schedule_sha256, subject.schedule_sha256),
    ):
        if then != now:
            found.append(f"its {what} was {then or 'none'}, now {now or 'none'}")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A baseline's value in the metric's own unit (ns, bytes, shares, 1/s, counts); None and why there is none."""

    value: float | None
    why: str | None = None


def past_value(
    baseline: Baseline,
    expression: Expression,
    *,
    tenant: str | None,
    gpu: int | None,
    node: str | None,
) -> Past:
    """Return what the baseline measured where ``expression`` looks, over all its runs."""
    metric = expression.metric
    found = [
        m
        for m in baseline.measurements
        if m.metric == metric.name
        and m.run is None
        and m.tenant == tenant
        and m.phase == expression.phase
        and (gpu is None or m.gpu == gpu)
        and (node is None or m.node == node)
    ]
    if not found:
        return Past(value=None, why=f"it does not hold {metric.name} there")
    scale = 1e9 if metric.unit == "s" else 1.0
    if isinstance(metric, Gauge):
        worst = [m.max if expression.upper else m.min for m in found]
        known = [value for value in worst if value is not None]
        if len(known) < len(found):
            return Past(value=None, why=f"it could not measure {metric.name}")
        return Past(value=(max(known) if expression.upper else min(known)) * scale)
    past = found[0]
    if past.count == 0:
        return Past(value=None, why="it measured nothing there")
    value = _statistic(baseline, past, expression)
    if value is None:
        return Past(value=None, why=f"its own {metric.name} is above every limit there")
    return Past(value=value * scale)


def _statistic(baseline: Baseline, past: Measurement, expression: Expression) -> float | None:
    """Return a statistic in base units: as measured, else from the histograms."""
    statistic = expression.statistic
    if statistic is None or not isinstance(expression.metric, Latency):
        return past.mean
    if statistic.text in _STORED:
        stored: float | None = getattr(past, _STORED[statistic.text])
        return stored
    histogram = merged(baseline.histograms, past.metric, tenant=past.tenant, phase=expression.phase)
    assert statistic.share is not None
    value_us = histogram.percentile_us(float(statistic.share), above=past.failed)
    return None if value_us is None else value_us / 1e6
