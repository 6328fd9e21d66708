"""GPU memory: the peak, the steady state before the traffic, and how far the one rose above the other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from profiles.units import format_duration
from slas.evidence import Evidence, MemorySample, RunSpan
from slas.quantity import Gauge, Reading, Unit

# A tick that comes late by less than three quarters of an interval is late, beyond that the one before is missed.
_MISSED = 1.75
_STEADY_NS = 10_000_000_000
_FEWEST_STEADY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """One GPU during one run: its readable samples, and why there may be higher ones that nobody saw."""

    span: RunSpan
    node: str
    gpu: int
    samples: tuple[MemorySample, ...]
    missing: str | None


def _watches(evidence: Evidence) -> list[_Watch]:
    places: dict[tuple[str, int], list[MemorySample]] = defaultdict(list)
    for sample in evidence.memory:
        places[(sample.node, sample.gpu)].append(sample)
    spans = sorted(evidence.runs, key=lambda span: span.start_ns)
    watches = []
    for (node, gpu), samples in sorted(places.items()):
        samples.sort(key=lambda sample: sample.before_ns)
        for index, span in enumerate(spans):
            # from ready to stop, with the wait for idle between two runs given to the one before it
            begin_ns = evidence.ready_ns if index == 0 else span.start_ns
            end_ns = evidence.stopped_ns if index == len(spans) - 1 else spans[index + 1].start_ns
            watched = [
                sample
                for sample in samples
                if (begin_ns is None or sample.after_ns >= begin_ns)
                and (end_ns is None or sample.before_ns <= end_ns)
            ]
            watches.append(
                _Watch(
                    span=span,
                    node=node,
                    gpu=gpu,
                    samples=tuple(s for s in watched if _is_known(s.used_bytes)),
                    missing=_missing(evidence, span, watched, begin_ns if index == 0 else None),
                )
            )
    return watches


def _missing(
    evidence: Evidence, span: RunSpan, watched: list[MemorySample], ready_ns: int | None
) -> str | None:
    every_ns = evidence.memory_every_ns
    if every_ns is None:
        return "how often memory was to be sampled is not recorded"
    dumb = [sample for sample in watched if not _is_known(sample.used_bytes)]
    if dumb:
        nothing = "no reason given" if dumb[0].used_bytes is None else f"{dumb[0].used_bytes} bytes"
        return (
            f"{len(dumb)} of {len(watched)} memory samples have no value ({dumb[0].why or nothing})"
        )
    # the traffic of the run must be covered whole; the sampler may stop a little before the engine
    begin_ns = span.start_ns if ready_ns is None else min(ready_ns, span.start_ns)
    previous_ns = begin_ns
    holes = []
    for at_ns in [*(sample.before_ns for sample in watched), span.end_ns]:
        if at_ns - previous_ns > _MISSED * every_ns:
            holes.append((at_ns - previous_ns, previous_ns))
        previous_ns = max(previous_ns, at_ns)
    if not holes:
        return None
    ticks = sum(max(1, round(length / every_ns) - 1) for length, _ in holes)
    longest_ns, since_ns = max(holes)
    return (
        f"{ticks} ticks of {format_duration(every_ns)} were missed, the longest hole is"
        f" {format_duration(longest_ns)} from {_second(evidence, span, since_ns)}"
    )


def _second(evidence: Evidence, span: RunSpan, at_ns: int) -> str:
    second = (at_ns - span.start_ns - evidence.window.warmup_ns) / 1e9
    return f"second {second:.1f} of the measured window"


def _is_known(value: float | None) -> bool:
    # a source may say NaN, and no comparison with it is ever true, or less than nothing
    return value is not None and math.isfinite(value) and value >= 0


def _used(sample: MemorySample) -> int:
    # readable samples only: _Watch.samples leaves the others out
    assert sample.used_bytes is not None
    return sample.used_bytes


def _reading(
    watch: _Watch,
    value: float | None,
    missing: str | None,
    at: MemorySample,
    *,
    moment: bool = True,
) -> Reading:
    return Reading(
        run=watch.span.run,
        node=watch.node,
        gpu=watch.gpu,
        value=value,
        at_ns=(at.before_ns + at.after_ns) // 2 if moment else None,
        total_bytes=at.total_bytes if _is_known(at.total_bytes) else None,
        swept=len(watch.samples),
        missing=missing,
    )


def _blind(watch: _Watch) -> Reading:
    return Reading(
        run=watch.span.run,
        node=watch.node,
        gpu=watch.gpu,
        value=None,
        at_ns=None,
        total_bytes=None,
        swept=0,
        missing=watch.missing or "no memory sample was taken between ready and stop",
    )


def _highest(watch: _Watch) -> MemorySample:
    # max returns the first of equals: the instant at which the peak was reached
    return max(watch.samples, key=_used)


def _peak(evidence: Evidence) -> tuple[Reading, ...]:
    return tuple(
        _reading(watch, _used(_highest(watch)), watch.missing, _highest(watch))
        if watch.samples
        else _blind(watch)
        for watch in _watches(evidence)
    )


def _steady_of(evidence: Evidence, watch: _Watch) -> tuple[float | None, str | None]:
    warm_ns = watch.span.start_ns + evidence.window.warmup_ns
    if watch.span.end_ns < warm_ns:
        return None, "the run ended in its warm-up, before there was a steady state"
    since_ns = warm_ns - min(_STEADY_NS, evidence.window.warmup_ns)
    quiet = [s for s in watch.samples if s.before_ns >= since_ns and s.after_ns <= warm_ns]
    if len(quiet) < _FEWEST_STEADY:
        return None, f"only {len(quiet)} memory samples lie in the end of the warm-up"
    seen_ns = [since_ns, *(sample.before_ns for sample in quiet), warm_ns]
    hole_ns = max(later - earlier for earlier, later in pairwise(seen_ns))
    if evidence.memory_every_ns is not None and hole_ns > _MISSED * evidence.memory_every_ns:
        # of a maximum what was seen is certain, of a median nothing is
        return (
            None,
            f"memory was not watched for {format_duration(hole_ns)} at the end of the warm-up",
        )
    return float(median(_used(sample) for sample in quiet)), None


def _ready_of(evidence: Evidence, watch: _Watch) -> tuple[float | None, str | None]:
    ready_ns = evidence.ready_ns
    if ready_ns is None:
        return None, "when the engine was ready is not recorded"
    later = [
        sample
        for sample in evidence.memory
        if (sample.node, sample.gpu) == (watch.node, watch.gpu)
        and sample.after_ns >= ready_ns
        and _is_known(sample.used_bytes)
    ]
    if not later:
        return None, "no memory sample was taken once the engine was ready"
    return float(_used(min(later, key=lambda sample: sample.before_ns))), None


def _steady(evidence: Evidence) -> tuple[Reading, ...]:
    readings = []
    for watch in _watches(evidence):
        if not watch.samples:
            readings.append(_blind(watch))
            continue
        steady, why = _steady_of(evidence, watch)
        # a median has no moment of its own
        missing = why or watch.missing
        readings.append(_reading(watch, steady, missing, watch.samples[0], moment=False))
    return tuple(readings)


def _above(
    origin: Callable[[Evidence, _Watch], tuple[float | None, str | None]], evidence: Evidence
) -> tuple[Reading, ...]:
    readings = []
    for watch in _watches(evidence):
        if not watch.samples:
            readings.append(_blind(watch))
            continue
        start, why = origin(evidence, watch)
        if start == 0:
            start, why = None, "the GPU's memory was empty, so nothing can be a share of it"
        highest = _highest(watch)
        rise = None if start is None else (_used(highest) - start) / start
        readings.append(_reading(watch, rise, why or watch.missing, highest))
    return tuple(readings)


def _spike(evidence: Evidence) -> tuple[Reading, ...]:
    return _above(_steady_of, evidence)


def _growth(evidence: Evidence) -> tuple[Reading, ...]:
    return _above(_ready_of, evidence)


PEAK = Gauge(
    name="vram.peak",
    meaning="highest memory in use on a GPU from ready to stop",
    unit=Unit.BYTES,
    source="memory",
    read=_peak,
    share_of_gpu=True,
)
STEADY = Gauge(
    name="vram.steady",
    meaning="median memory in use over the last 10 s of the warm-up",
    unit=Unit.BYTES,
    source="memory",
    read=_steady,
    share_of_gpu=True,
    from_steady=True,
)
SPIKE = Gauge(
    name="vram.spike",
    meaning="(peak - steady) / steady",
    unit=Unit.SHARE,
    source="memory",
    read=_spike,
    from_steady=True,
)
GROWTH = Gauge(
    name="vram.growth",
    meaning="(peak - memory at ready) / memory at ready",
    unit=Unit.SHARE,
    source="memory",
    read=_growth,
)
