"""What was measured, whether or not anybody made a promise about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slas.columns import UNBOUNDED, Bools, Columns, Ints, columns_of
from slas.evidence import Evidence
from slas.histogram import Histogram, rank_of
from slas.metric import metrics
from slas.quantity import Gauge, Latency, Metric, Rate, Ratio, Samples, Unit
from slas.sample import sample_of, whole_us

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


def histograms(evidence: Evidence) -> Mapping[HistogramKey, Histogram]:
    """Return the distribution of every latency, keyed by metric, tenant, phase and run; microseconds.

    Failed requests are in no histogram: ``measure`` counts them. Phases are warmup, burst and calm.
    """
    columns = columns_of(evidence)
    found: dict[HistogramKey, Histogram] = {}
    phase = np.where(columns.measured, np.where(columns.burst, 1, 2), 0)
    for name, metric in metrics().items():
        if not isinstance(metric, Latency):
            continue
        samples = metric.samples(columns)
        leaves = _Leaves(columns, samples, phase, 3)
        for tenant_index, tenant in enumerate(columns.tenants):
            for run_index, run in enumerate(columns.runs):
                for phase_index, phase_name in enumerate(("warmup", "burst", "calm")):
                    values_ns = leaves.values_ns((tenant_index, phase_index, run_index))
                    histogram = Histogram()
                    histogram.record_many_us(whole_us(values_ns[values_ns != UNBOUNDED]))
                    found[(name, tenant, phase_name, run)] = histogram
    return found


class _Leaves:
    """A metric's samples, sorted into (tenant, phase, run): the finest parts that anything is reported for.

    ``phase`` and ``phases`` number the phases of the rows.
    """

    def __init__(self, columns: Columns, samples: Samples, phase: Ints, phases: int) -> None:
        self._shape = (len(columns.tenants), phases, len(columns.runs))
        self._cells = int(np.prod(self._shape))
        self._row_leaf = (columns.tenant * phases + phase) * self._shape[2] + columns.run
        leaf = self._row_leaf[samples.row]
        # a 16-bit key makes numpy's stable sort a radix sort: ten million gaps in a tenth of a second
        key = leaf.astype(np.uint16) if self._cells < 2**16 else leaf
        self._values_ns = samples.values_ns[np.argsort(key, kind="stable")]
        self._start = np.concatenate(
            (np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(leaf, minlength=self._cells)))
        )
        seen = np.zeros(columns.size, dtype=np.bool_)
        seen[samples.row] = True
        due = np.bincount(self._row_leaf[seen], minlength=self._cells)
        self.requests = due.reshape(self._shape)

    def sums(self, rows: Ints, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of one value per sample, by (tenant, phase, run)."""
        sums = np.bincount(self._row_leaf[rows], weights=values, minlength=self._cells)
        return sums.astype(np.float64).reshape(self._shape)

    def values_ns(self, place: tuple[int, int, int]) -> Ints:
        """Return the samples of one (tenant, phase, run)."""
        leaf = int(np.ravel_multi_index(place, self._shape))
        return self._values_ns[int(self._start[leaf]) : int(self._start[leaf + 1])]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    sorted_ns: Ints
    total_ns: float
    requests: int
    failed: int


def measure(evidence: Evidence) -> tuple[Measurement, ...]:
    """Return every metric for every tenant, phase and run, and for all of them together.

    ``goodput`` is left out, since its bounds are the SLA's; memory and engine metrics only where they were read.
    """
    columns = columns_of(evidence)
    found: list[Measurement] = []
    for metric in metrics().values():
        match metric:
            case Latency():
                found.extend(_latencies(columns, metric))
            case Ratio(bounded=False):
                found.extend(_ratios(columns, metric))
            case Ratio():
                pass
            case Rate():
                found.extend(_rates(columns, metric))
            case Gauge():
                found.extend(_gauges(evidence, metric))
    return tuple(found)


_PHASES = ("burst", "calm")


def _parts(
    columns: Columns,
) -> Iterator[tuple[str | None, list[int], str | None, list[int], int | None, list[int]]]:
    """Yield each reported part of a run: tenant, phase and run, each with the indices that it covers."""
    tenants: list[tuple[str | None, list[int]]] = [
        (None, list(range(len(columns.tenants)))),
        *((name, [index]) for index, name in enumerate(columns.tenants)),
    ]
    phases: list[tuple[str | None, list[int]]] = [(None, [0, 1]), ("burst", [0]), ("calm", [1])]
    runs: list[tuple[int | None, list[int]]] = [
        (None, list(range(len(columns.runs)))),
        *((run, [index]) for index, run in enumerate(columns.runs)),
    ]
    for tenant, tenant_indices in tenants:
        for phase, phase_indices in phases:
            for run, run_indices in runs:
                yield tenant, tenant_indices, phase, phase_indices, run, run_indices


def _latencies(columns: Columns, metric: Latency) -> Iterator[Measurement]:
    exact = sample_of(columns, metric, columns.measured)
    samples = Samples(values_ns=exact.values_ns, row=exact.row)
    leaves = _Leaves(columns, samples, np.where(columns.burst, 0, 1), 2)
    totals_ns = leaves.sums(exact.row, exact.capped_ns())
    table: dict[tuple[int, int, int], _Leaf] = {}
    for place in product(range(len(columns.tenants)), range(2), range(len(columns.runs))):
        values = np.sort(leaves.values_ns(place))
        table[place] = _Leaf(
            sorted_ns=values,
            total_ns=float(totals_ns[place]),
            requests=int(leaves.requests[place]),
            failed=int(values.size - np.searchsorted(values, UNBOUNDED)),
        )
    merged: dict[tuple[tuple[int, int, int], ...], Ints] = {}
    for tenant_name, tenants, phase_name, phases, run_name, runs in _parts(columns):
        places = tuple((t, p, r) for t in tenants for p in phases for r in runs)
        # empty leaves change nothing, so that one run and "all runs" of one share their sorting
        kept = tuple(place for place in places if table[place].sorted_ns.size)
        if kept not in merged:
            parts = [table[place].sorted_ns for place in kept]
            merged[kept] = (
                parts[0]
                if len(parts) == 1
                else np.sort(np.concatenate(parts))
                if parts
                else np.zeros(0, dtype=np.int64)
            )
        yield _distribution(
            metric,
            tenant_name,
            phase_name,
            run_name,
            merged[kept],
            [table[place] for place in kept],
        )


def _distribution(
    metric: Latency,
    tenant: str | None,
    phase: str | None,
    run: int | None,
    sorted_ns: Ints,
    leaves: list[_Leaf],
) -> Measurement:
    def at(share: float) -> float | None:
        if sorted_ns.size == 0:
            return None
        value = int(sorted_ns[rank_of(share, int(sorted_ns.size)) - 1])
        return None if value == UNBOUNDED else value / 1e9

    total_ns = sum(leaf.total_ns for leaf in leaves)
    return Measurement(
        metric=metric.name,
        tenant=tenant,
        phase=phase,
        run=run,
        unit=metric.unit,
        count=sum(leaf.requests for leaf in leaves),
        failed=sum(leaf.failed for leaf in leaves),
        mean=total_ns / sorted_ns.size / 1e9 if sorted_ns.size else None,
        min=at(1e-12),
        p50=at(0.50),
        p90=at(0.90),
        p95=at(0.95),
        p99=at(0.99),
        p999=at(0.999),
        max=at(1.0),
    )


def _number(
    metric: Metric,
    *,
    tenant: str | None,
    phase: str | None,
    run: int | None,
    count: int,
    failed: int,
    value: float | None,
    low: float | None,
    high: float | None,
    node: str | None = None,
    gpu: int | None = None,
) -> Measurement:
    return Measurement(
        metric=metric.name,
        tenant=tenant,
        phase=phase,
        run=run,
        unit=metric.unit,
        count=count,
        failed=failed,
        mean=value,
        min=low,
        p50=None,
        p90=None,
        p95=None,
        p99=None,
        p999=None,
        max=high,
        node=node,
        gpu=gpu,
    )


def _ratios(columns: Columns, metric: Ratio) -> Iterator[Measurement]:
    shape = (len(columns.tenants), 2, len(columns.runs))
    phase = np.where(columns.burst, 0, 1)
    place = (columns.tenant * 2 + phase) * shape[2] + columns.run
    cells = int(np.prod(shape))
    counted = metric.counted(columns, ())

    def table(mask: Bools) -> Ints:
        cube: Ints = np.bincount(place[mask & columns.measured], minlength=cells).reshape(shape)
        return cube

    due, hit, failed = (
        table(columns.measured),
        table(counted),
        table(~columns.completed),
    )
    for tenant, tenants, phase_name, phases, run, runs in _parts(columns):
        cell = np.ix_(tenants, phases, runs)
        n, k = int(due[cell].sum()), int(hit[cell].sum())
        per_run = [
            int(hit[np.ix_(tenants, phases, [r])].sum()) / m
            for r in runs
            if (m := int(due[np.ix_(tenants, phases, [r])].sum()))
        ]
        yield _number(
            metric,
            tenant=tenant,
            phase=phase_name,
            run=run,
            count=n,
            failed=int(failed[cell].sum()),
            value=k / n if n else None,
            low=min(per_run, default=None),
            high=max(per_run, default=None),
        )


def _rates(columns: Columns, metric: Rate) -> Iterator[Measurement]:
    tenants = (None, *columns.tenants)
    rates = metric.per_second(columns, tenants)
    for tenant in tenants:
        mask = columns.where(tenant=tenant)
        for run, runs in ((None, columns.runs), *((run, (run,)) for run in columns.runs)):
            values = [value for r in runs if (value := rates[(tenant, r)]) is not None]
            whole = len(values) == len(runs) and bool(values)
            within = mask & np.isin(columns.run, [columns.runs.index(r) for r in runs])
            yield _number(
                metric,
                tenant=tenant,
                phase=None,
                run=run,
                count=int(within.sum()),
                failed=int((within & ~columns.completed).sum()),
                value=sum(values) / len(values) if whole else None,
                low=min(values) if whole else None,
                high=max(values) if whole else None,
            )


def _gauges(evidence: Evidence, metric: Gauge) -> Iterator[Measurement]:
    readings = metric.read(evidence)
    places = sorted({(r.node, r.gpu) for r in readings}, key=str)
    scale = 1e-9 if metric.unit is Unit.SECONDS else 1.0
    for node, gpu in places:
        here = [r for r in readings if (r.node, r.gpu) == (node, gpu)]
        for run, chosen in ((None, here), *((r.run, [r]) for r in here)):
            values = [r.value * scale for r in chosen if r.value is not None]
            yield _number(
                metric,
                tenant=None,
                phase=None,
                run=run,
                count=sum(r.swept for r in chosen),
                failed=0,
                value=sum(values) / len(values) if values else None,
                low=min(values, default=None),
                high=max(values, default=None),
                node=node,
                gpu=gpu,
            )


def merged(
    histograms: Mapping[HistogramKey, Histogram],
    metric: str,
    *,
    tenant: str | None,
    phase: str | None,
) -> Histogram:
    """Return one histogram of a metric's measured window over all runs; None for a tenant or phase is each."""
    whole = Histogram()
    for (name, whose, when, _), histogram in histograms.items():
        if (
            name == metric
            and tenant in (None, whose)
            and when != "warmup"
            and phase in (None, when)
        ):
            whole.add(histogram)
    return whole
