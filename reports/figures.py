"""The figures of report.html: what happened when, and the percentiles of every tenant with their limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from profiles.units import format_bytes, format_duration, format_share
from reports.plot import (
    LEFT,
    Drawing,
    Scale,
    linear_ticks,
    log_ticks,
    spread,
    text_width,
    tick_clock,
    tick_number,
    tick_seconds,
    time_ticks,
)
from reports.timeline import Floats, Timeline
from reports.wording import limit, measured
from slas.expression import Expression, ExpressionError, parse
from slas.histogram import Histogram, upper_us
from slas.ruling import CheckRuling, Ruling

WIDTH = 1000.0
RIGHT = WIDTH - 12
GAP = 46.0
COLOURS = 8
NEUTRALS = 4
LINE_HEIGHT = 14.0
LONGEST = 90
"""Letters of one label of limits: about half the width of the time line."""
GIB = 1 << 30
MOST_POINTS = 240
"""Points of one percentile curve; more than its pixels would not be seen."""
CURVES = {"ttft": "n0", "itl": "n2", "e2e": "n1"}
RISES = {"vram.spike": "spike", "vram.growth": "growth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A check and the expression in it; checks whose expression this tailgate cannot read draw no limit."""

    check: CheckRuling
    expression: Expression

    @property
    def share(self) -> float | None:
        """The percentile as a share; None for other statistics."""
        statistic = self.expression.statistic
        return None if statistic is None or statistic.share is None else float(statistic.share)


def promises(checks: Sequence[CheckRuling]) -> tuple[Promise, ...]:
    """Return the checks with their expressions, in order."""
    return tuple(_promises(checks))


def _promises(checks: Sequence[CheckRuling]) -> Iterator[Promise]:
    for check in checks:
        try:
            yield Promise(check=check, expression=parse(check.expr))
        except ExpressionError:
            continue


def colour_of(number: int) -> str:
    """Return the class of the number-th tenant's colour; beyond the eighth they repeat, dashed.

    >>> colour_of(0), colour_of(9)
    ('c0', 'c1 again')
    """
    return f"c{number % COLOURS}" + ("" if number < COLOURS else " again")


def neutral_of(number: int) -> str:
    """Return the class of the number-th GPU's grey or brown, which no tenant has; they repeat, dashed.

    >>> neutral_of(0), neutral_of(5)
    ('n0', 'n1 again')
    """
    return f"n{number % NEUTRALS}" + ("" if number < NEUTRALS else " again")


def timeline_figure(timeline: Timeline, agreed: Sequence[Promise]) -> Markup:
    """Draw arrivals, time to first token, requests in flight and GPU memory of one run on one time axis."""
    heights = {"arrivals": 120.0, "ttft": 130.0, "flight": 96.0, "vram": 130.0}
    if not timeline.vram_bytes:
        del heights["vram"]
    total = sum(heights.values()) + GAP * len(heights) + 26
    drawing = Drawing(WIDTH, total, f"What happened in run {timeline.run}, second by second")
    x = Scale(low=0.0, high=timeline.end_s, start=LEFT, end=RIGHT)
    top = GAP - 14
    for name, height in heights.items():
        bottom = top + height
        _shade(drawing, timeline, x, top, bottom)
        match name:
            case "arrivals":
                _arrivals(drawing, timeline, x, top, bottom)
            case "ttft":
                _ttft(drawing, timeline, x, top, bottom, agreed)
            case "flight":
                _flight(drawing, timeline, x, top, bottom)
            case _:
                _vram(drawing, timeline, x, top, bottom, agreed)
        drawing.line(LEFT, bottom, RIGHT, bottom, "axis")
        top = bottom + GAP
    for tick in time_ticks(timeline.end_s):
        drawing.line(x(tick), top - GAP, x(tick), top - GAP + 5, "axis")
        drawing.text(x(tick), top - GAP + 19, tick_clock(tick, timeline.end_s), "tick", "middle")
    return drawing.svg()


def _shade(drawing: Drawing, timeline: Timeline, x: Scale, top: float, bottom: float) -> None:
    warm = x(timeline.warmup_s)
    drawing.rect(LEFT, top, warm - LEFT, bottom - top, "warmup", "warm-up: not measured")
    for start_s, end_s in _union(timeline.bursts_s):
        left = x(start_s)
        drawing.rect(left, top, max(x(end_s) - left, 1.0), bottom - top, "burst", "planned burst")


def _union(
    bursts_s: Mapping[str, tuple[tuple[float, float], ...]],
) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start_s, end_s in sorted(span for spans in bursts_s.values() for span in spans):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def _legend(
    drawing: Drawing, top: float, title: str, entries: Sequence[tuple[str, str, str]]
) -> None:
    """Write the title of a panel and, from the right, its legend: (words, class, line or box)."""
    drawing.text(LEFT, top - 10, title, "title")
    right = RIGHT
    for words, style, kind in reversed(entries):
        words = words if len(words) <= 22 else f"{words[:21]}…"
        drawing.text(right, top - 10, words, "legend", "end")
        right -= text_width(words) + 6
        if kind == "box":
            drawing.rect(right - 10, top - 19, 10, 10, f"fill {style}")
        else:
            drawing.line(right - 16, top - 14, right, top - 14, f"curve {style}")
        right -= 32


def _middles(timeline: Timeline, x: Scale) -> list[float]:
    return [x((number + 0.5) * timeline.bin_s) for number in range(timeline.bins)]


def _curve(xs: Sequence[float], values: Floats, y: Scale) -> list[tuple[float, float]]:
    return [
        (at, math.nan if math.isnan(value) else y(value))
        for at, value in zip(xs, values.tolist(), strict=True)
    ]


def _arrivals(drawing: Drawing, timeline: Timeline, x: Scale, top: float, bottom: float) -> None:
    stacked = np.zeros(timeline.bins)
    highest = float(sum(timeline.arrivals_hz.values(), stacked).max())
    ticks = linear_ticks(highest)
    y = Scale(low=0.0, high=ticks[-1], start=bottom, end=top)
    drawing.y_axis(y, ticks, RIGHT, tick_number)
    edges = [x(number * timeline.bin_s) for number in range(timeline.bins + 1)]
    steps = [edge for pair in pairwise(edges) for edge in pair]
    for number, (tenant, hz) in enumerate(timeline.arrivals_hz.items()):
        above = stacked + hz
        tops = np.repeat([y(value) for value in above.tolist()], 2).tolist()
        bottoms = np.repeat([y(value) for value in stacked.tolist()], 2).tolist()
        drawing.area(steps, tops, bottoms, f"fill {colour_of(number)}", tenant)
        stacked = above
    # planned bursts of each tenant, as strips along the top
    shown = [name for name in timeline.arrivals_hz if timeline.bursts_s.get(name)]
    for place, tenant in enumerate(shown[:COLOURS]):
        style = colour_of(list(timeline.arrivals_hz).index(tenant))
        for start_s, end_s in timeline.bursts_s[tenant]:
            left = x(start_s)
            drawing.rect(
                left,
                top + 4 * place,
                max(x(end_s) - left, 1.0),
                3,
                f"fill {style}",
                f"{tenant} bursts",
            )
    entries = [
        (tenant, colour_of(number), "box") for number, tenant in enumerate(timeline.arrivals_hz)
    ][:COLOURS]
    if len(timeline.arrivals_hz) > COLOURS:
        entries[-1] = (f"and {len(timeline.arrivals_hz) - COLOURS + 1} more", "c7", "box")
    if timeline.failed_hz.any():
        drawing.polyline(
            _curve(_middles(timeline, x), timeline.failed_hz, y), "curve failed", "failed"
        )
        entries.append(("failed", "failed", "line"))
    _legend(drawing, top, "Arrivals, requests per second", entries)


def _ttft(
    drawing: Drawing,
    timeline: Timeline,
    x: Scale,
    top: float,
    bottom: float,
    agreed: Sequence[Promise],
) -> None:
    title = "Time to first token, by second of arrival"
    known = timeline.ttft_p99_s[~np.isnan(timeline.ttft_p99_s)]
    if known.size == 0:
        _legend(drawing, top, f"{title}: no request got one", [])
        return
    limits = _limits(agreed, "ttft")
    values = [*known.tolist(), *timeline.ttft_p50_s[~np.isnan(timeline.ttft_p50_s)].tolist()]
    low = max(min(values), 1e-6)
    high = max([*values, *limits])
    y = Scale(low=low * 0.8, high=high * 1.25, start=bottom, end=top, log=True)
    drawing.y_axis(y, log_ticks(low * 0.8, high * 1.25), RIGHT, tick_seconds)
    xs = _middles(timeline, x)
    drawing.polyline(_curve(xs, timeline.ttft_p99_s, y), "curve n0", "p99")
    drawing.polyline(_curve(xs, timeline.ttft_p50_s, y), "curve n1", "p50")
    _limit_lines(drawing, limits, y, "limit ")
    _legend(drawing, top, title, [("p50", "n1", "line"), ("p99", "n0", "line")])


def _limits(agreed: Sequence[Promise], metric: str) -> dict[float, str]:
    """Return the upper limits of a latency in seconds with the words to write beside them, equal ones together."""
    found: dict[float, dict[str, list[str]]] = {}
    for promise in agreed:
        check, statistic = promise.check, promise.expression.statistic
        if (
            promise.expression.metric.name == metric
            and promise.expression.upper
            and check.limit is not None
        ):
            whence = "(baseline)" if promise.expression.limit.relative else None
            whose = " ".join(filter(None, (check.tenant, check.phase, whence)))
            by_statistic = found.setdefault(check.limit, {})
            by_statistic.setdefault("" if statistic is None else statistic.text, []).append(whose)
    return {
        value: " ".join(
            (
                format_duration(value * 1e9),
                ", ".join(
                    " ".join(filter(None, (name, ", ".join(dict.fromkeys(filter(None, whose))))))
                    for name, whose in by_statistic.items()
                ),
            )
        )
        for value, by_statistic in found.items()
    }


def _limit_lines(drawing: Drawing, limits: Mapping[float, str], y: Scale, before: str = "") -> None:
    """Draw limits across the time line, with their words at its right end; near ones share a label."""
    near: list[list[tuple[float, str]]] = []
    for value, words in sorted(limits.items()):
        at = y(value)
        drawing.line(LEFT, at, RIGHT, at, "limit")
        if near and near[-1][0][0] - at <= LINE_HEIGHT:
            near[-1].append((at, words))
        else:
            near.append([(at, words)])
    # words after all lines, so that none runs through them
    middles = [(group[0][0] + group[-1][0]) / 2 for group in near]
    placed = spread(middles, LINE_HEIGHT, y.end + LINE_HEIGHT / 2, y.start - LINE_HEIGHT / 2)
    for group, middle in zip(near, placed, strict=True):
        words = before + "; ".join(dict.fromkeys(said for _, said in group))
        words = words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
        wide = text_width(words)
        drawing.rect(RIGHT - 8 - wide, middle - 7, wide + 4, LINE_HEIGHT, "plate")
        drawing.text(RIGHT - 6, middle + 4, words, "limit-words", "end")


def _flight(drawing: Drawing, timeline: Timeline, x: Scale, top: float, bottom: float) -> None:
    waiting = timeline.waiting[~np.isnan(timeline.waiting)]
    highest = max(float(timeline.in_flight.max()), float(waiting.max(initial=0.0)))
    ticks = linear_ticks(highest, most=3)
    y = Scale(low=0.0, high=ticks[-1], start=bottom, end=top)
    drawing.y_axis(y, ticks, RIGHT, tick_number)
    xs = _middles(timeline, x)
    drawing.area(
        xs, [y(value) for value in timeline.in_flight.tolist()], [bottom] * len(xs), "fill soft n1"
    )
    drawing.polyline(_curve(xs, timeline.in_flight, y), "curve n0", "in flight")
    entries = [("in flight", "n0", "line")]
    if waiting.size:
        drawing.polyline(_curve(xs, timeline.waiting, y), "curve n2", "waiting in the engine")
        entries.append(("waiting in engine", "n2", "line"))
    _legend(drawing, top, "Requests in flight", entries)


def _vram(
    drawing: Drawing,
    timeline: Timeline,
    x: Scale,
    top: float,
    bottom: float,
    agreed: Sequence[Promise],
) -> None:
    limits = _vram_limits(timeline, agreed)
    known = [values[~np.isnan(values)] for values in timeline.vram_bytes.values()]
    highest = max((float(values.max()) for values in known if values.size), default=0.0)
    total = max(timeline.vram_total_bytes.values(), default=0)
    ticks = linear_ticks(max([highest, total, *limits]) / GIB)
    y = Scale(low=0.0, high=ticks[-1] * GIB, start=bottom, end=top)
    drawing.y_axis(y, [tick * GIB for tick in ticks], RIGHT, lambda at: f"{at / GIB:.3g} GiB")
    xs = _middles(timeline, x)
    entries = []
    many_nodes = len({node for node, _ in timeline.vram_bytes}) > 1
    for number, ((node, gpu), values) in enumerate(timeline.vram_bytes.items()):
        name = f"{node} GPU {gpu}" if many_nodes else f"GPU {gpu}"
        drawing.polyline(_curve(xs, values, y), f"curve {neutral_of(number)}", name)
        if number < COLOURS:
            entries.append((name, neutral_of(number), "line"))
    _limit_lines(drawing, limits, y)
    title = "GPU memory in use, highest of each second"
    if total:
        title += f"; a GPU has {format_bytes(total)}"
    _legend(drawing, top, title, entries)


def _vram_limits(timeline: Timeline, agreed: Sequence[Promise]) -> dict[float, str]:
    """Return the memory budgets in bytes: of the peak, and of how far it may rise above the steady or ready state.

    They are the sheet's, so that they are drawn whatever was ruled, or the baseline's.
    """
    found: dict[float, str] = {}
    for promise in agreed:
        expression, check = promise.expression, promise.check
        budget, name = expression.limit, expression.metric.name
        value = check.limit if budget.value is None else budget.value
        if value is None or not expression.upper:
            continue
        whence = " (baseline)" if budget.relative else ""
        scales: Mapping[tuple[str, int], float] = {}
        if name in RISES:
            words = f"{RISES[name]} {format_share(value)}{whence}"
            origins = timeline.vram_origin_bytes.get(name, {})
            scales, value = origins, 1 + value
        elif name == "vram.peak" and budget.of_gpu:
            words = f"budget {format_share(value)}"
            scales = timeline.vram_total_bytes
        elif name == "vram.peak":
            found[value] = f"budget {format_bytes(value)}{whence}"
            continue
        else:
            continue
        for (node, gpu), scale in scales.items():
            if check.gpu in (None, gpu) and check.node in (None, node):
                found[value * scale] = words
    return found


def percentile_figure(
    tenant: str | None,
    curves: Mapping[str, tuple[Histogram, int]],
    agreed: Sequence[Promise],
) -> Markup:
    """Draw the percentiles of a tenant's latencies with their limits, as HdrHistogram plots do.

    The x axis is 1/(1-p) on a logarithmic scale: every nine takes as much room as the one before. ``curves``
    has the histogram of each metric and how many requests failed, which are above every limit.
    """
    width, height = 480.0, 300.0
    drawing = Drawing(width, height, f"Percentiles of {tenant or 'all tenants'}")
    counted = {name: found for name, found in curves.items() if found[0].total}
    limits = [
        promise
        for promise in agreed
        if promise.share is not None
        and promise.check.limit is not None
        and promise.check.phase is None
        and promise.check.tenant == tenant
        and promise.expression.metric.name in counted
    ]
    if not counted:
        drawing.text(width / 2, height / 2, "no request was answered", "legend", "middle")
        return drawing.svg()
    # the words of limits stand beside the plot, where no curve runs through them
    beside = max((text_width(_limit_words(promise)) for promise in limits), default=0.0)
    top, bottom, right = 34.0, height - 34, width - 14 - beside
    # the axis has room for the nines that requests can prove; pooled gaps would stretch it
    most = min(histogram.total + failed for histogram, failed in counted.values())
    nines = max(2.0, math.log10(2 * most), *(_nines(p.share or 0.0) + 0.3 for p in limits))
    x = Scale(low=0.0, high=nines, start=LEFT, end=right)
    edges_s = [edge / 1e6 for histogram, _ in counted.values() for edge in _range_us(histogram)]
    low = max(min(edges_s), 1e-5) * 0.8
    high = max([*edges_s, *(promise.check.limit or 0.0 for promise in limits)]) * 1.3
    y = Scale(low=low, high=high, start=bottom, end=top, log=True)
    drawing.y_axis(y, log_ticks(low, high), right, tick_seconds)
    written = -math.inf
    for share, name in _percentile_ticks(nines):
        at = x(_nines(share))
        drawing.line(at, top, at, bottom, "grid")
        if at - written < text_width(name):
            continue
        written = at
        near = at > right - text_width(name) / 2
        drawing.text(right if near else at, bottom + 17, name, "tick", "end" if near else "middle")
    drawing.line(LEFT, bottom, right, bottom, "axis")
    for name, (histogram, failed) in counted.items():
        curve = _percentile_curve(histogram, failed, x, y)
        drawing.polyline(curve, f"curve {CURVES[name]}", name)
    _limit_marks(drawing, limits, x, y)
    left = LEFT
    for name in counted:
        drawing.line(left, 16, left + 16, 16, f"curve {CURVES[name]}")
        drawing.text(left + 22, 20, name, "legend")
        left += 22 + text_width(name) + 20
    return drawing.svg()


def _nines(share: float) -> float:
    return math.log10(1 / (1 - share)) if share < 1 else math.inf


def _percentile_ticks(nines: float) -> list[tuple[float, str]]:
    ticks = [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")]
    ticks += [(1 - 10**-power, f"99.{'9' * (power - 2)} %") for power in range(4, 8)]
    return [(share, name) for share, name in ticks if _nines(share) <= nines]


def _range_us(histogram: Histogram) -> tuple[int, int]:
    used = np.flatnonzero(histogram.counts)
    if used.size == 0:
        return 1, 1
    return max(1, upper_us(int(used[0]))), upper_us(int(used[-1]))


def _percentile_curve(
    histogram: Histogram, failed: int, x: Scale, y: Scale
) -> list[tuple[float, float]]:
    used = np.flatnonzero(histogram.counts)
    reached = np.cumsum(histogram.counts[used])
    total = histogram.total + failed
    points: list[tuple[float, float]] = []
    before = 0
    height = y.start
    width = (x.end - x.start) / MOST_POINTS
    for index, count in zip(used.tolist(), reached.tolist(), strict=True):
        # a bucket holds the ranks from before to count: a flat piece, left out where it is narrower than a point
        start, end = x(_nines(before / total)), x(_nines(count / total))
        before = count
        if start >= x.end:
            break
        height = y(upper_us(index) / 1e6)
        if not points or start - points[-1][0] >= width:
            points.append((start, height))
        if end - start >= width:
            points.append((end, height))
    else:
        points.append((x(_nines(before / total)), height))
        if failed or histogram.over:
            # the rest failed: no limit is high enough
            points.append((points[-1][0], y.end))
    return points


def _limit_words(promise: Promise) -> str:
    return f"{promise.expression.metric.name} {limit(promise.check)}"


def _limit_marks(drawing: Drawing, limits: Sequence[Promise], x: Scale, y: Scale) -> None:
    heights = [y(promise.check.limit or 0.0) for promise in limits]
    beside = spread(heights, LINE_HEIGHT, y.end, y.start)
    for promise, height, label in zip(limits, heights, beside, strict=True):
        check = promise.check
        at = x(_nines(promise.share or 0.0))
        style = "kept" if check.ruling is Ruling.PASS else "broken"
        if check.ruling not in (Ruling.PASS, Ruling.FAIL):
            style = "open"
        value = None if check.measured is None else check.measured.value
        reached = y.end if value is None else y(value)
        drawing.line(at, reached, at, height, f"margin {style}")
        # the bar has room to the right of the axis' last percentile, but for one that is the last
        end = min(at + 26, x.end)
        drawing.line(at - 26, height, end, height, f"mark {style}")
        drawing.polyline([(end, height), (x.end, height), (x.end + 6, label)], f"margin {style}")
        said = f"{check.expr}: {check.ruling}, measured {measured(check)}"
        drawing.dot(at, reached, f"dot {style}", said)
        drawing.text(x.end + 9, label + 4, _limit_words(promise), f"mark-words {style}")
