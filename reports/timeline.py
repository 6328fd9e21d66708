"""What happened when: one run on a shared time axis, second by second, ready to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slas.columns import MISSING, Columns
from slas.evidence import Evidence, RunSpan
from slas.histogram import rank_of
from slas.metrics import memory

Floats = NDArray[np.float64]
SECOND_NS: Final = 10**9
MOST_BINS: Final = 600
"""More than a page has pixels for; longer runs get bins of several seconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """One run in bins of ``bin_s`` seconds from the start of its warm-up; NaN where nothing was measured.

    ``arrivals_hz`` per tenant and ``failed_hz`` count requests by the second in which they were due;
    ``ttft_p50_s`` and ``ttft_p99_s`` are over those of them that got a first token. ``in_flight`` and
    ``waiting`` are the highest of the bin as the client and the engine saw it, ``vram_bytes`` the highest
    per (node, GPU). ``vram_origin_bytes`` is what a GPU's rise counts from, for each metric that is one
    (``vram.spike``: its steady state), where that is known.
    """

    run: int
    bin_s: int
    bins: int
    warmup_s: float
    arrivals_hz: Mapping[str, Floats]
    failed_hz: Floats
    ttft_p50_s: Floats
    ttft_p99_s: Floats
    in_flight: Floats
    waiting: Floats
    vram_bytes: Mapping[tuple[str, int], Floats]
    vram_total_bytes: Mapping[tuple[str, int], int]
    vram_origin_bytes: Mapping[str, Mapping[tuple[str, int], float]]
    bursts_s: Mapping[str, tuple[tuple[float, float], ...]]

    @property
    def end_s(self) -> float:
        """Where the time axis ends."""
        return float(self.bins * self.bin_s)


def timelines(evidence: Evidence, columns: Columns) -> tuple[Timeline, ...]:
    """Return the time line of every run that has a row or a span."""
    spans = {span.run: span for span in evidence.runs}
    origins = _origins(evidence)
    return tuple(
        _timeline(evidence, columns, index, run, spans.get(run), origins.get(run, {}))
        for index, run in enumerate(columns.runs)
    )


def _timeline(
    evidence: Evidence,
    columns: Columns,
    index: int,
    run: int,
    span: RunSpan | None,
    origins: Mapping[str, Mapping[tuple[str, int], float]],
) -> Timeline:
    mine = np.flatnonzero(columns.run == index)
    due_ns, done_ns = columns.due_ns[mine], columns.done_ns[mine]
    end_ns = max(
        int(done_ns.max(initial=0)),
        evidence.window.warmup_ns + evidence.window.duration_ns,
    )
    bin_s = max(1, -(-end_ns // (SECOND_NS * MOST_BINS)))
    bin_ns = bin_s * SECOND_NS
    bins = max(1, -(-end_ns // bin_ns))
    due_bin = np.clip(due_ns // bin_ns, 0, bins - 1)
    tenant = columns.tenant[mine]
    failed = ~columns.completed[mine]
    first_ns = columns.first_ns[mine]
    answered = first_ns != MISSING
    p50_s, p99_s = _percentiles(
        due_bin[answered], (first_ns - due_ns)[answered] / SECOND_NS, bins, (0.5, 0.99)
    )
    vram, totals = _vram(evidence, span, bin_ns, bins)
    return Timeline(
        run=run,
        bin_s=bin_s,
        bins=bins,
        warmup_s=evidence.window.warmup_ns / SECOND_NS,
        arrivals_hz={
            name: np.bincount(due_bin[tenant == number], minlength=bins) / bin_s
            for number, name in enumerate(columns.tenants)
        },
        failed_hz=np.bincount(due_bin[failed], minlength=bins) / bin_s,
        ttft_p50_s=p50_s,
        ttft_p99_s=p99_s,
        in_flight=_in_flight(columns.sent_ns[mine], done_ns, bin_ns, bins),
        waiting=_waiting(evidence, span, bin_ns, bins),
        vram_bytes=vram,
        vram_total_bytes=totals,
        vram_origin_bytes=origins,
        bursts_s={
            name: tuple((start / SECOND_NS, end / SECOND_NS) for start, end in intervals)
            for name, intervals in evidence.bursts.items()
        },
    )


def _percentiles(
    place: NDArray[np.int64], values: Floats, bins: int, shares: tuple[float, ...]
) -> list[Floats]:
    found = [np.full(bins, np.nan) for _ in shares]
    order = np.lexsort((values, place))
    place, values = place[order], values[order]
    starts = np.searchsorted(place, np.arange(bins + 1))
    for number in np.unique(place).tolist():
        low, high = int(starts[number]), int(starts[number + 1])
        for percentile, share in zip(found, shares, strict=True):
            percentile[number] = values[low + rank_of(share, high - low) - 1]
    return found


def _in_flight(
    sent_ns: NDArray[np.int64], done_ns: NDArray[np.int64], bin_ns: int, bins: int
) -> Floats:
    sent = sent_ns != MISSING
    at = np.concatenate((sent_ns[sent], done_ns[sent]))
    step = np.concatenate((np.ones(int(sent.sum())), -np.ones(int(sent.sum()))))
    # at one instant, ends come before starts: a connection that is handed on was in flight once
    order = np.lexsort((step, at))
    open_now = np.concatenate(([0.0], np.cumsum(step[order])))
    at = at[order]
    edges = np.arange(bins + 1) * bin_ns
    before = np.searchsorted(at, edges, side="left")
    highest = np.empty(bins)
    for number in range(bins):
        highest[number] = open_now[before[number] : before[number + 1] + 1].max()
    return highest


def _highest(
    at_ns: NDArray[np.int64], values: Floats, span: RunSpan, bin_ns: int, bins: int
) -> Floats:
    place = (at_ns - span.start_ns) // bin_ns
    inside = (place >= 0) & (place < bins)
    highest = np.full(bins, -np.inf)
    np.maximum.at(highest, place[inside], values[inside])
    return np.where(np.isneginf(highest), np.nan, highest)


def _waiting(evidence: Evidence, span: RunSpan | None, bin_ns: int, bins: int) -> Floats:
    known = [
        (sample.at_ns, sample.waiting) for sample in evidence.engine if sample.waiting is not None
    ]
    if span is None or not known:
        return np.full(bins, np.nan)
    at_ns, waiting = zip(*known, strict=True)
    return _highest(np.array(at_ns), np.array(waiting, dtype=np.float64), span, bin_ns, bins)


def _origins(evidence: Evidence) -> dict[int, dict[str, dict[tuple[str, int], float]]]:
    """Return what rises count from, by run, metric and (node, GPU): the peak without its rise."""
    peaks = {(at.run, at.node, at.gpu): at.value for at in memory.PEAK.read(evidence)}
    found: dict[int, dict[str, dict[tuple[str, int], float]]] = {}
    for metric in (memory.SPIKE, memory.GROWTH):
        for rise in metric.read(evidence):
            peak = peaks.get((rise.run, rise.node, rise.gpu))
            if rise.node is None or rise.gpu is None or rise.value is None or peak is None:
                continue
            origin = peak / (1 + rise.value)
            found.setdefault(rise.run, {}).setdefault(metric.name, {})[rise.node, rise.gpu] = origin
    return found


def _vram(
    evidence: Evidence, span: RunSpan | None, bin_ns: int, bins: int
) -> tuple[dict[tuple[str, int], Floats], dict[tuple[str, int], int]]:
    by_gpu: dict[tuple[str, int], list[tuple[int, int]]] = {}
    totals: dict[tuple[str, int], int] = {}
    for sample in evidence.memory:
        if sample.used_bytes is not None:
            by_gpu.setdefault((sample.node, sample.gpu), []).append(
                (sample.after_ns, sample.used_bytes)
            )
        if sample.total_bytes is not None:
            totals[sample.node, sample.gpu] = sample.total_bytes
    if span is None:
        return {}, totals
    found = {}
    for gpu, samples in sorted(by_gpu.items()):
        at_ns, used = zip(*samples, strict=True)
        found[gpu] = _highest(np.array(at_ns), np.array(used, dtype=np.float64), span, bin_ns, bins)
    return found, totals
