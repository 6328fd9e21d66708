"""What one check comes to, by the shape of its metric; in words that say the number, the limit and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiles.units import NS_PER, format_share
from slas.columns import UNBOUNDED
from slas.confidence import (
    Interval,
    fewest_requests,
    mean_interval,
    more_requests,
    percentile_interval,
    share_interval,
)
from slas.docket import Docket, Target
from slas.expression import Expression, base_units, quantity_text
from slas.histogram import rank_of
from slas.quantity import Gauge, Latency, Rate, Ratio, Reading, Unit
from slas.ruling import Measured, Ruling
from slas.sample import ExactSample, Sample
from slas.sla import FEWEST_RUNS

# point evidence makes no claim of confidence; below what 95 % would need, it says so
_POINT_ADVICE = 0.95
_NS_PER_S = NS_PER["s"]
_AFTERGLOW_NS = 10 * _NS_PER_S
# from twice the limit on, "2.4 times" says more than "240 %"
_TIMES = 2.0
_MANY = 100.0
# shares are floats: 7 of 1,000 must keep a promise of 0.7 %
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check's ruling, the number under it, why, and what to do.

    ``wants`` is how many requests its point evidence should have had and has not; ``limit_bytes`` what a share of
    a GPU came to on the GPU that was ruled on.
    """

    ruling: Ruling
    measured: Measured | None
    because: str
    mend: str | None = None
    wants: int | None = None
    limit_bytes: float | None = None


def find(docket: Docket, target: Target, limit: float, confidence: float | None) -> Finding:
    """Rule one check against ``limit`` (the metric's own unit); ``confidence`` None is point evidence."""
    metric = target.check.expression.metric
    match metric:
        case Latency():
            return _latency(docket, metric, target, limit, confidence)
        case Ratio():
            return _ratio(docket, metric, target, limit, confidence)
        case Rate():
            return _rate(docket, metric, target, limit, confidence)
        case Gauge():
            return _gauge(docket, metric, target, limit)


def meets(expression: Expression, value: float, limit: float) -> bool:
    """Return whether a value keeps the limit. Whole numbers (ns, bytes, counts) compare exactly."""
    slack = 0.0 if isinstance(value, int) else _ROUNDING * abs(limit)
    match expression.operator:
        case "<=":
            return value <= limit + slack
        case "<":
            return value < limit - slack
        case ">=":
            return value >= limit - slack
        case ">":
            return value > limit + slack


def unknown(because: str, mend: str | None = None) -> Finding:
    """Return INCONCLUSIVE without a number: nothing that is missing ever passes."""
    return Finding(ruling=Ruling.INCONCLUSIVE, measured=None, because=because, mend=mend)


def text_of(target: Target, value: float) -> str:
    """Return a value of a target's metric as people write it."""
    return quantity_text(target.check.expression.metric.unit, value)


def _measured(
    target: Target,
    value: float | None,
    *,
    samples: int,
    runs: int,
    unbounded: bool = False,
    low: float | None = None,
    high: float | None = None,
    effective: float | None = None,
) -> Measured:
    unit = target.check.expression.metric.unit

    def base(number: float | None) -> float | None:
        return None if number is None else base_units(unit, number)

    return Measured(
        value=base(value),
        unbounded=unbounded,
        unit=unit,
        low=base(low),
        high=base(high),
        samples=samples,
        runs=runs,
        effective_samples=effective,
    )


def _against(target: Target, value: float, limit: float) -> str:
    """Return "270 ms, 90.0 % of the limit of 300 ms", or what a floor asks for beside the value."""
    said, promised = text_of(target, value), text_of(target, limit)
    if not target.check.expression.upper:
        return f"{said}, where at least {promised} is promised"
    if limit == 0:
        return f"{said}, against a limit of {promised}"
    ratio = value / limit
    if ratio < _TIMES:
        return f"{said}, {format_share(ratio)} of the limit of {promised}"
    times = f"{ratio:,.0f}" if ratio >= _MANY else f"{ratio:.3g}"
    return f"{said}, {times} times the limit of {promised}"


def _too_few(target: Target, requests: int) -> Finding | None:
    wanted = target.check.min_samples
    if wanted is None or requests >= wanted:
        return None
    return unknown(
        f"{target} rests on {requests:,} requests, and the check asks for {wanted:,}",
        f"run longer, until there are {wanted - requests:,} more requests",
    )


def _nothing_due(docket: Docket, target: Target) -> Finding:
    whose = target.tenant or "any tenant"
    known = docket.evidence.tenants
    if target.tenant is not None and target.tenant not in known:
        return unknown(
            f"{target}: the run has no tenant {target.tenant!r}",
            f"name one of {', '.join(known)}" if known else None,
        )
    if target.tenant in docket.evidence.closed_loop and docket.evidence.rows:
        return unknown(
            f"{target}: no request of {whose} was due in the measured window, since those sent in the"
            " warm-up were not answered before it ended",
            "see why the engine holds them; raise the warm-up if they are only slow",
        )
    when = {"burst": " in a burst", "calm": " outside bursts"}.get(target.phase or "", "")
    return unknown(
        f"{target}: no request of {whose} was due{when} in the measured window",
        "lengthen the duration, or raise the tenant's rate",
    )


# ---------------------------------------------------------------------------------------------------------
# latencies


def _latency(
    docket: Docket, metric: Latency, target: Target, limit: float, confidence: float | None
) -> Finding:
    statistic = target.check.expression.statistic
    assert statistic is not None, "a latency is never promised without a statistic"
    sample = docket.sample(metric, target)
    if isinstance(sample, str):
        return unknown(f"{target}: {sample}", "rule from the rows")
    if sample.size == 0:
        chosen = docket.columns
        if chosen is not None and chosen.where(tenant=target.tenant, phase=target.phase).any():
            return unknown(
                f"{target}: no request has one, since none sent more than one token or read",
                "ask for longer outputs in the profile",
            )
        return _nothing_due(docket, target)
    few = _too_few(target, sample.requests)
    if few is not None:
        return few
    if statistic.share is not None:
        if confidence is None:
            return _point_percentile(docket, target, sample, float(statistic.share), limit)
        if not isinstance(sample, ExactSample):
            return _needs_rows(target, "confidence")
        return _sure_percentile(target, sample, float(statistic.share), limit, confidence)
    if not isinstance(sample, ExactSample):
        return _needs_rows(target, statistic.text)
    if statistic.text == "mean":
        return _mean(target, sample, limit, confidence)
    return _extreme(target, sample, statistic.text, limit)


def _needs_rows(target: Target, what: str) -> Finding:
    return unknown(
        f"{target}: the requests' rows are gone, and {what} cannot be told from histograms",
        "rule on a run that still has its requests/",
    )


def _point_percentile(
    docket: Docket, target: Target, sample: Sample, share: float, limit: float
) -> Finding:
    expression = target.check.expression
    value = sample.percentile_ns(share)
    runs = len(docket.evidence.runs)
    measured = _measured(target, value, samples=sample.requests, runs=runs, unbounded=value is None)
    needed = fewest_requests(share, _POINT_ADVICE)
    wants = needed if sample.requests < needed else None
    kept = value is not None and meets(expression, value, limit)
    over = f"over {sample.requests:,} requests"
    if kept:
        assert value is not None
        because = f"{target} is {_against(target, value, limit)}, {over}"
        return Finding(ruling=Ruling.PASS, measured=measured, because=because, wants=wants)
    allowed = sample.size - rank_of(share, sample.size)
    what = "gaps" if expression.metric.name == "itl" else "requests"
    if value is None:
        because = (
            f"{target} is above every limit: {sample.failed:,} of {sample.size:,} {what} failed, where"
            f" {allowed:,} may"
        )
        mend = f"at least {sample.failed - allowed:,} more must complete; see error_rate"
    else:
        late = ""
        if isinstance(sample, ExactSample):
            beyond = sample.beyond(limit, strict=expression.strict)
            failed = f", {sample.failed:,} of them failed" if sample.failed else ""
            late = f"; {beyond:,} of {sample.size:,} {what} break it{failed}, where {allowed:,} may"
        because = f"{target} is {_against(target, value, limit)}, {over}{late}"
        mend = f"it would pass with a limit of {_loose(target, value)}"
    return Finding(ruling=Ruling.FAIL, measured=measured, because=because, mend=mend, wants=wants)


def _loose(target: Target, value: float) -> str:
    """Return a limit that a value keeps, in three digits: rounded away from it where rounding would break it."""
    expression = target.check.expression
    if expression.metric.unit is Unit.COUNT:
        return text_of(target, value + (expression.strict and (1 if expression.upper else -1)))
    return text_of(target, value * (1.005 if expression.upper else 0.995))


def _sure_percentile(
    target: Target, sample: ExactSample, share: float, limit: float, confidence: float
) -> Finding:
    expression = target.check.expression
    runs = sample.by_run()
    missing = _run_without(target, {run: part.size for run, part in runs.items()})
    if missing is not None:
        return missing
    parts = list(runs.values())
    requests = [part.requests for part in parts]
    # gaps are clustered in requests: what a run says is the share of its gaps, on as many requests as it had
    hits = [
        part.requests * part.beyond(limit, strict=expression.strict) / part.size for part in parts
    ]
    interval = share_interval(hits, requests, confidence)
    allowed = 1 - share
    low, high = percentile_interval(
        [np.sort(part.values_ns) for part in parts],
        requests,
        share,
        confidence,
        unbounded=UNBOUNDED,
    )
    value = sample.percentile_ns(share)
    total = sum(requests)
    measured = _measured(
        target,
        value,
        samples=total,
        runs=len(parts),
        unbounded=value is None,
        low=low,
        high=high,
        effective=interval.effective,
    )
    seen = (
        f"{total:,} requests of {len(parts)} runs, worth {interval.effective:,.0f} independent ones"
    )
    point = "above every limit" if value is None else text_of(target, value)
    bounds = (
        f"{format_share(sum(hits) / total)} of them break the limit of {text_of(target, limit)}"
        f" (between {format_share(interval.low)} and {format_share(interval.high)} at"
        f" {confidence * 100:g} %), where {format_share(allowed)} may"
    )
    because = f"{target} is {point}: {bounds}; {seen}"
    way_out = "" if high is None else f"it would pass with a limit of {_loose(target, high)}"
    if interval.high <= allowed:
        return Finding(ruling=Ruling.PASS, measured=measured, because=because)
    if interval.low > allowed:
        return Finding(ruling=Ruling.FAIL, measured=measured, because=because, mend=way_out or None)
    more = _more(sum(hits), total, len(parts), interval, allowed, confidence)
    fewest = fewest_requests(share, confidence)
    short = (
        f" ({fewest:,} without one break are the fewest that can prove it)"
        if total < fewest
        else ""
    )
    mend = "; ".join(part for part in (more, way_out) if part)
    return Finding(
        ruling=Ruling.INCONCLUSIVE, measured=measured, because=because + short, mend=mend or None
    )


def _run_without(target: Target, sizes: dict[int, int]) -> Finding | None:
    if len(sizes) < FEWEST_RUNS:
        return unknown(
            f"{target}: a confidence needs at least {FEWEST_RUNS} runs, and there are {len(sizes)}",
            f"run {FEWEST_RUNS - len(sizes)} more",
        )
    empty = [run for run, size in sizes.items() if size == 0]
    if empty:
        return unknown(
            f"{target}: run {empty[0]} has no request to tell it from",
            "lengthen the duration, or raise the tenant's rate",
        )
    return None


def _more(
    hits: float, total: int, runs: int, interval: Interval, allowed: float, confidence: float
) -> str:
    more = more_requests(hits, total, interval.effective, allowed, confidence)
    if more is None:
        return "no number of requests would settle it: it lies at the limit"
    return f"about {more:,} more requests would settle it ({-(-more * runs // total)} more runs)"


def _mean(target: Target, sample: ExactSample, limit: float, confidence: float | None) -> Finding:
    failed = (
        f"; {sample.failed:,} failures count as the time until they were given up"
        if sample.failed
        else ""
    )
    over = f"over {sample.requests:,} requests{failed}"
    if confidence is None:
        value = float(sample.capped_ns().mean())
        measured = _measured(target, value, samples=sample.requests, runs=len(sample.columns.runs))
        return _plain(target, value, limit, measured, over)
    runs = sample.by_run()
    missing = _run_without(target, {run: part.size for run, part in runs.items()})
    if missing is not None:
        return missing
    means = [float(part.capped_ns().mean()) for part in runs.values()]
    return _sure_mean(target, means, limit, confidence, sample.requests, over)


def _extreme(target: Target, sample: ExactSample, statistic: str, limit: float) -> Finding:
    value = sample.max_ns() if statistic == "max" else sample.min_ns()
    runs = len(sample.columns.runs)
    measured = _measured(target, value, samples=sample.requests, runs=runs, unbounded=value is None)
    over = f"over {sample.requests:,} requests"
    if value is None:
        because = f"{target} is above every limit, since {sample.failed:,} failed, {over}"
        return Finding(
            ruling=Ruling.FAIL, measured=measured, because=because, mend="see error_rate"
        )
    return _plain(target, value, limit, measured, over)


def _plain(target: Target, value: float, limit: float, measured: Measured, over: str) -> Finding:
    kept = meets(target.check.expression, value, limit)
    return Finding(
        ruling=Ruling.PASS if kept else Ruling.FAIL,
        measured=measured,
        because=f"{target} is {_against(target, value, limit)}, {over}",
        mend=None if kept else f"it would pass with a limit of {_loose(target, value)}",
    )


def _sure_mean(
    target: Target,
    values: Sequence[float],
    limit: float,
    confidence: float,
    samples: int,
    over: str,
) -> Finding:
    expression = target.check.expression
    interval = mean_interval(values, confidence)
    value = sum(values) / len(values)
    measured = _measured(
        target, value, samples=samples, runs=len(values), low=interval.low, high=interval.high
    )
    near, far = (interval.low, interval.high) if expression.upper else (interval.high, interval.low)
    ruling = (
        Ruling.PASS
        if meets(expression, far, limit)
        else Ruling.INCONCLUSIVE
        if meets(expression, near, limit)
        else Ruling.FAIL
    )
    because = (
        f"{target} is {_against(target, value, limit)}, between {text_of(target, interval.low)} and"
        f" {text_of(target, interval.high)} at {confidence * 100:g} % over {len(values)} runs, {over}"
    )
    mend = None
    if ruling is not Ruling.PASS:
        mend = f"it would pass with a limit of {_loose(target, far)}"
        if ruling is Ruling.INCONCLUSIVE:
            mend = f"more runs would narrow it down; {mend}"
    return Finding(ruling=ruling, measured=measured, because=because, mend=mend)


# ---------------------------------------------------------------------------------------------------------
# shares of requests


def _ratio(
    docket: Docket, metric: Ratio, target: Target, limit: float, confidence: float | None
) -> Finding:
    if docket.columns is None:
        return _kept_ratio(docket, metric, target, limit, confidence)
    columns = docket.columns
    chosen = columns.where(tenant=target.tenant, phase=target.phase)
    size = int(chosen.sum())
    if size == 0:
        return _nothing_due(docket, target)
    few = _too_few(target, size)
    if few is not None:
        return few
    counted = metric.counted(columns, target.check.expression.bounds) & chosen
    hits = int(counted.sum())
    if confidence is None:
        return _point_ratio(target, hits, size, limit, len(docket.evidence.runs))
    sizes = np.bincount(columns.run[chosen], minlength=len(columns.runs))
    missing = _run_without(target, dict(zip(columns.runs, sizes.tolist(), strict=True)))
    if missing is not None:
        return missing
    per_run = np.bincount(columns.run[counted], minlength=len(columns.runs))
    return _sure_ratio(target, per_run.tolist(), sizes.tolist(), limit, confidence)


def _kept_ratio(
    docket: Docket, metric: Ratio, target: Target, limit: float, confidence: float | None
) -> Finding:
    kept = docket.measurement(metric.name, target)
    if confidence is not None or metric.name != "error_rate" or kept is None:
        return _needs_rows(target, metric.name if confidence is None else "confidence")
    if kept.count == 0:
        return _nothing_due(docket, target)
    few = _too_few(target, kept.count)
    if few is not None:
        return few
    return _point_ratio(target, kept.failed, kept.count, limit, len(docket.evidence.runs))


def _point_ratio(target: Target, hits: int, size: int, limit: float, runs: int) -> Finding:
    measured = _measured(target, hits / size, samples=size, runs=runs)
    return _plain(target, hits / size, limit, measured, f"{hits:,} of {size:,} requests")


def _sure_ratio(
    target: Target, hits: Sequence[int], sizes: Sequence[int], limit: float, confidence: float
) -> Finding:
    expression = target.check.expression
    # a share of good requests is bounded through its bad ones, where few hits are the hard case
    good = isinstance(expression.metric, Ratio) and expression.metric.good
    faults = [n - k for k, n in zip(hits, sizes, strict=True)] if good else list(hits)
    found = share_interval(faults, sizes, confidence)
    low, high = (1 - found.high, 1 - found.low) if good else (found.low, found.high)
    total, value = sum(sizes), sum(hits) / sum(sizes)
    measured = _measured(
        target,
        value,
        samples=total,
        runs=len(sizes),
        low=low,
        high=high,
        effective=found.effective,
    )
    near, far = (low, high) if expression.upper else (high, low)
    because = (
        f"{target} is {_against(target, value, limit)}, between {format_share(low)} and"
        f" {format_share(high)} at {confidence * 100:g} %; {total:,} requests of {len(sizes)} runs,"
        f" worth {found.effective:,.0f} independent ones"
    )
    way_out = f"it would pass with a limit of {_loose(target, far)}"
    if meets(expression, far, limit):
        return Finding(ruling=Ruling.PASS, measured=measured, because=because)
    if not meets(expression, near, limit):
        return Finding(ruling=Ruling.FAIL, measured=measured, because=because, mend=way_out)
    more = _more(sum(faults), total, len(sizes), found, 1 - limit if good else limit, confidence)
    return Finding(
        ruling=Ruling.INCONCLUSIVE,
        measured=measured,
        because=because,
        mend=f"{more}; {way_out}",
    )


# ---------------------------------------------------------------------------------------------------------
# throughput


def _rate(
    docket: Docket, metric: Rate, target: Target, limit: float, confidence: float | None
) -> Finding:
    columns = docket.columns
    if columns is None:
        return _needs_rows(target, metric.name)
    chosen = columns.where(tenant=target.tenant)
    size = int(chosen.sum())
    if size == 0:
        return _nothing_due(docket, target)
    few = _too_few(target, size)
    if few is not None:
        return few
    rates = list(metric.per_second(columns, [target.tenant]).values())
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return unknown(f"{target}: {metric.unknown}", "use an engine that reports its usage")
    over = f"with {size:,} requests due"
    if confidence is None:
        value = sum(known) / len(known)
        measured = _measured(target, value, samples=size, runs=len(known))
        return _plain(target, value, limit, measured, over)
    sizes = np.bincount(columns.run[chosen], minlength=len(columns.runs))
    missing = _run_without(target, dict(zip(columns.runs, sizes.tolist(), strict=True)))
    if missing is not None:
        return missing
    return _sure_mean(target, known, limit, confidence, size, over)


# ---------------------------------------------------------------------------------------------------------
# memory and the engine's own metrics


def _gauge(docket: Docket, metric: Gauge, target: Target, limit: float) -> Finding:
    expression = target.check.expression
    of_gpu = expression.limit.of_gpu
    readings = [
        reading
        for reading in docket.readings(metric)
        if target.gpu in (None, reading.gpu) and target.node in (None, reading.node)
    ]
    if not readings:
        return _no_reading(docket, metric, target)
    readable = [r for r in readings if r.value is not None and not (of_gpu and not r.total_bytes)]
    missing = [r for r in readings if r.missing is not None or r not in readable]
    broken = [r for r in readable if not meets(expression, _value(r), _limit(r, limit, of_gpu))]
    swept = sum(reading.swept for reading in readings)
    runs = len({reading.run for reading in readings})
    # a ceiling that is broken by what was seen is broken whatever was not seen
    if missing and not (broken and expression.upper):
        why = missing[0].missing or "the GPU's total memory is not known"
        where = _place_beyond(target, missing[0])
        return Finding(
            ruling=Ruling.INCONCLUSIVE,
            measured=_gauge_measured(target, readable, swept, runs, of_gpu),
            because=f"{target}: {why}{where}, so a worse value may have gone unseen",
            mend="sample less often, or from an idler host" if metric.source == "memory" else None,
        )
    worst = _worst(expression, broken or readable, of_gpu)
    few = _too_few_sweeps(target, swept)
    if few is not None and not broken:
        return few
    bound = _limit(worst, limit, of_gpu)
    value = _value(worst)
    said = text_of(target, value)
    share = (
        f" ({format_share(value / worst.total_bytes)} of the GPU)"
        if worst.total_bytes and metric.share_of_gpu
        else ""
    )
    promised = text_of(target, bound) + (f" ({format_share(limit)})" if of_gpu else "")
    kept = not broken
    because = (
        f"{metric.name}{_place(worst)} is {said}{share}{_moment(docket, metric, worst)};"
        f" the limit is {promised}; {swept:,} samples"
    )
    loose = (
        format_share(value / worst.total_bytes * 1.005)
        if of_gpu and worst.total_bytes
        else _loose(target, value)
    )
    return Finding(
        ruling=Ruling.PASS if kept else Ruling.FAIL,
        measured=_gauge_measured(target, [worst], swept, runs, of_gpu),
        because=because,
        mend=None if kept else f"it would pass with a limit of {loose}",
        limit_bytes=bound if of_gpu else None,
    )


def _value(reading: Reading) -> float:
    assert reading.value is not None
    return reading.value


def _limit(reading: Reading, limit: float, of_gpu: bool) -> float:
    if not of_gpu:
        return limit
    assert reading.total_bytes is not None
    return limit * reading.total_bytes


def _worst(expression: Expression, readings: Sequence[Reading], of_gpu: bool) -> Reading:
    def weight(reading: Reading) -> float:
        return _value(reading) / (reading.total_bytes or 1) if of_gpu else _value(reading)

    return max(readings, key=weight) if expression.upper else min(readings, key=weight)


def _gauge_measured(
    target: Target, readings: Sequence[Reading], swept: int, runs: int, of_gpu: bool
) -> Measured | None:
    if not readings:
        return None
    worst = _worst(target.check.expression, readings, of_gpu)
    return _measured(target, _value(worst), samples=swept, runs=runs)


def _too_few_sweeps(target: Target, swept: int) -> Finding | None:
    wanted = target.check.min_samples
    if wanted is None or swept >= wanted:
        return None
    return unknown(f"{target} rests on {swept:,} samples, and the check asks for {wanted:,}")


def _no_reading(docket: Docket, metric: Gauge, target: Target) -> Finding:
    if metric.source == "engine":
        return unknown(
            f"{target}: the engine's metrics were never read",
            "use an engine with a /metrics page, or remove the check",
        )
    places = ", ".join(f"GPU {gpu} of {node}" for node, gpu in docket.places())
    if places:
        return unknown(f"{target}: no such GPU was watched, only {places}", "name one of those")
    return unknown(
        f"{target}: no memory sample was taken",
        "give --dcgm URL, or telemetry in the engine sheet",
    )


def _place(reading: Reading) -> str:
    return "" if reading.gpu is None else f" on GPU {reading.gpu} of {reading.node}"


def _place_beyond(target: Target, reading: Reading) -> str:
    """Return where a reading was taken, as far as the target's own name does not say it."""
    if target.gpu is None or reading.gpu is None:
        return _place(reading)
    return f" on {reading.node}" if target.node is None else ""


def _moment(docket: Docket, metric: Gauge, reading: Reading) -> str:
    """Return when a reading was taken and in whose burst: second 0 is the start of the measured window."""
    evidence = docket.evidence
    if reading.at_ns is None:
        over = " at the end of the warm-up" if metric.from_steady else ""
        return over + (f" in run {reading.run}" if len(evidence.runs) > 1 else "")
    span = next(span for span in evidence.runs if span.run == reading.run)
    since_ns = reading.at_ns - span.start_ns
    second = (since_ns - evidence.window.warmup_ns) / _NS_PER_S
    run = f" of run {reading.run}" if len(evidence.runs) > 1 else ""
    if since_ns < 0:
        return f", {-since_ns / _NS_PER_S:.1f} s before the traffic{run} began"
    end_ns = evidence.window.warmup_ns + evidence.window.duration_ns
    when = (
        f", {-second:.1f} s before the measured window{run}"
        if second < 0
        else f" at second {second:.1f} of the measured window{run}"
        if since_ns < end_ns
        else f", {(since_ns - end_ns) / _NS_PER_S:.1f} s after the measured window{run}"
    )
    return f"{when}, {_burst(docket, since_ns)}"


def _burst(docket: Docket, since_ns: int) -> str:
    bursts = docket.evidence.bursts
    bursting = [
        tenant
        for tenant, intervals in bursts.items()
        if any(start <= since_ns < end for start, end in intervals)
    ]
    if bursting:
        return f"during a burst of {' and '.join(sorted(bursting))}"
    ended = [
        (since_ns - end, tenant)
        for tenant, intervals in bursts.items()
        for _, end in intervals
        if 0 <= since_ns - end <= _AFTERGLOW_NS
    ]
    if ended:
        ago_ns = min(ended)[0]
        # a surge that several tenants share ends for all of them at once
        whose = sorted({tenant for other_ns, tenant in ended if other_ns - ago_ns < _NS_PER_S})
        return f"{ago_ns / _NS_PER_S:.1f} s after a burst of {' and '.join(whose)}"
    return "outside any burst"
