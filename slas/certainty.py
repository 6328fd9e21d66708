"""What a run that was cut already proves: a promise that no ending of it could still have kept."""

from __future__ import annotations

import numpy as np

from slas.columns import UNBOUNDED, Bools, Columns
from slas.confidence import share_interval
from slas.docket import Docket, Target
from slas.finding import Finding, find
from slas.histogram import rank_of
from slas.quantity import Bound, Gauge, Latency, Rate, Ratio
from slas.ruling import Ruling
from slas.sample import sample_of


def certain_failure(
    docket: Docket, target: Target, limit: float, confidence: float | None, runs: int
) -> Finding | None:
    """Return a FAIL that stands although the evidence stops early; None if the rest could have kept the promise.

    The requests that are missing are taken as perfect, and failures that the cut itself may have caused as
    never due. ``runs`` is how many runs were planned.
    """
    expression = target.check.expression
    metric = expression.metric
    match metric:
        case Latency() if expression.statistic is not None:
            broken = _latency_is_broken(docket, metric, target, limit, confidence, runs)
        case Ratio():
            broken = _ratio_is_broken(docket, metric, target, limit, confidence, runs)
        case Gauge():
            broken = expression.upper and metric.rises_only
        case Latency() | Rate():
            broken = False
    if not broken:
        return None
    for evidence in (confidence, None):
        # too few runs leave a confident finding nothing to say, where the plain count already decides
        finding = find(docket, target, limit, evidence)
        if finding.ruling is Ruling.FAIL:
            return finding
    return None


def _latency_is_broken(
    docket: Docket,
    metric: Latency,
    target: Target,
    limit: float,
    confidence: float | None,
    runs: int,
) -> bool:
    columns, statistic = docket.columns, target.check.expression.statistic
    if columns is None or statistic is None or metric.in_goodput is not None:
        return False
    sample = sample_of(columns, metric, columns.where(tenant=target.tenant, phase=target.phase))
    beyond = (
        sample.values_ns >= limit if target.check.expression.strict else sample.values_ns > limit
    )
    proven = (sample.values_ns != UNBOUNDED) | ~_of_the_cut(columns)[sample.row]
    rows = sample.row[beyond & proven]
    if statistic.text == "max":
        return bool(rows.size)
    if statistic.share is None:
        return False
    return _too_many(docket, target, rows, float(1 - statistic.share), confidence, runs)


def _ratio_is_broken(
    docket: Docket,
    metric: Ratio,
    target: Target,
    limit: float,
    confidence: float | None,
    runs: int,
) -> bool:
    expression, columns = target.check.expression, docket.columns
    # only what more requests dilute can be certain: a share of faults that is too high, of merits too low
    if columns is None or expression.upper == metric.good:
        return False
    chosen = columns.where(tenant=target.tenant, phase=target.phase)
    proven = chosen & ~(_of_the_cut(columns) & ~columns.completed)
    bounds: tuple[Bound, ...] = expression.bounds
    counted = metric.counted(columns, bounds)
    faults = proven & (~counted if metric.good else counted)
    allowed = 1 - limit if metric.good else limit
    return _too_many(docket, target, np.flatnonzero(faults), allowed, confidence, runs)


def _of_the_cut(columns: Columns) -> Bools:
    """Return which requests may owe their failure to the cut: those open or due when sending stopped."""
    last_sent = np.zeros(len(columns.runs), dtype=np.int64)
    np.maximum.at(last_sent, columns.run, np.maximum(columns.sent_ns, 0))
    late: Bools = columns.done_ns > last_sent[columns.run]
    return late | columns.unsent


def _too_many(
    docket: Docket,
    target: Target,
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    allowed: float,
    confidence: float | None,
    runs: int,
) -> bool:
    """Return whether that many faults break ``allowed`` however well every other request had gone."""
    columns = docket.columns
    assert columns is not None
    sizes = _most_due(docket, columns, target, runs)
    if sizes is None or sum(sizes.values()) == 0:
        return False
    hits = {
        run: int(np.count_nonzero(columns.run[rows] == index))
        for index, run in enumerate(columns.runs)
    }
    if confidence is None:
        size = sum(sizes.values())
        return sum(hits.values()) > size - rank_of(1 - allowed, size)
    filled = {run: size for run, size in sizes.items() if size}
    interval = share_interval(
        [hits.get(run, 0) for run in filled], list(filled.values()), confidence
    )
    return interval.low > allowed


def _most_due(docket: Docket, columns: Columns, target: Target, runs: int) -> dict[int, int] | None:
    """Return how many requests each planned run can have had in its window; negative keys never began.

    None where nobody can know: a closed loop sends as many as the engine lets it.
    """
    evidence = docket.evidence
    chosen = evidence.tenants if target.tenant is None else (target.tenant,)
    if not evidence.runs or any(
        name in evidence.closed_loop or name not in span.planned
        for name in chosen
        for span in evidence.runs
    ):
        return None
    early = columns.due_ns < columns.window_start_ns
    sizes: dict[int, int] = {}
    for span in evidence.runs:
        mine = early & (columns.run == columns.runs.index(span.run))
        sizes[span.run] = sum(
            span.planned[name] - int((mine & columns.of_tenant(name)).sum()) for name in chosen
        )
    whole = max(sum(span.planned[name] for name in chosen) for span in evidence.runs)
    # the schedule is frozen: a run that never began would have had no more than its whole plan
    sizes.update({-missing: whole for missing in range(1, runs - len(evidence.runs) + 1)})
    return sizes
