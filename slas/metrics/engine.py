"""What the engine says of itself: KV cache, preemptions and its queue, over the measured window and the drain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite

from profiles.units import format_duration
from slas.evidence import EngineSample, Evidence, RunSpan
from slas.quantity import Gauge, Reading, Unit

# A busy engine answers its metrics page late, so a few scrapes in a row may fail before the record has a hole.
_LATE_SCRAPES = 5
# and a tick may be missed in a window of a few seconds too
_FEWEST_TICKS = 2
_NOMINAL_NS = 1_000_000_000


def _is_amount(value: float) -> bool:
    return isfinite(value) and value >= 0


def _said(
    evidence: Evidence, span: RunSpan, field: Callable[[EngineSample], float | None]
) -> list[tuple[int, float]]:
    """Return (at, value) from the last scrape before the measured window to the end of the run, in order."""
    begin_ns = span.start_ns + evidence.window.warmup_ns
    values = sorted(
        (sample.at_ns, value)
        for sample in evidence.engine
        if span.start_ns <= sample.at_ns <= span.end_ns
        and (value := field(sample)) is not None
        and _is_amount(value)
    )
    earlier = [pair for pair in values if pair[0] <= begin_ns]
    return [*earlier[-1:], *(pair for pair in values if pair[0] > begin_ns)]


def _nonsense(
    evidence: Evidence, span: RunSpan, field: Callable[[EngineSample], float | None]
) -> str | None:
    """Return when the engine said a value that is none, such as NaN: what it was then nobody knows."""
    begin_ns = span.start_ns + evidence.window.warmup_ns
    for sample in evidence.engine:
        value = field(sample)
        if begin_ns <= sample.at_ns <= span.end_ns and value is not None and not _is_amount(value):
            return (
                f"the engine's metrics say {value} at second {(sample.at_ns - begin_ns) / 1e9:.1f} of the"
                " measured window"
            )
    return None


def _hole(evidence: Evidence, span: RunSpan, said: list[tuple[int, float]]) -> str | None:
    """Return where the metrics do not reach over the measured window, with no hole of half of it or of five ticks."""
    begin_ns = span.start_ns + evidence.window.warmup_ns
    end_ns = begin_ns + evidence.window.duration_ns
    every_ns = evidence.memory_every_ns or _NOMINAL_NS
    within = [at for at, _ in said if at >= begin_ns]
    if not within:
        return "the engine's metrics say nothing in the measured window"
    allowed_ns = max(
        min(_LATE_SCRAPES * every_ns, evidence.window.duration_ns // 2), _FEWEST_TICKS * every_ns
    )
    previous_ns = min(begin_ns, said[0][0])
    for at_ns in [*(at for at, _ in said), end_ns]:
        if at_ns - previous_ns > allowed_ns:
            return (
                f"the engine's metrics say nothing for {format_duration(at_ns - previous_ns)}"
                f" from second {(previous_ns - begin_ns) / 1e9:.1f} of the measured window"
            )
        previous_ns = max(previous_ns, at_ns)
    return None


def _reading(
    span: RunSpan, value: float | None, at_ns: int | None, swept: int, missing: str | None
) -> Reading:
    return Reading(
        run=span.run,
        node=None,
        gpu=None,
        value=value,
        at_ns=at_ns,
        total_bytes=None,
        swept=swept,
        missing=missing,
    )


def _highest(
    field: Callable[[EngineSample], float | None], evidence: Evidence
) -> tuple[Reading, ...]:
    readings = []
    for span in evidence.runs:
        said = _said(evidence, span, field)
        nonsense = _nonsense(evidence, span, field)
        if not said:
            why = nonsense or "the engine's metrics do not say"
            readings.append(_reading(span, None, None, 0, why))
            continue
        at_ns, value = max(said, key=lambda pair: pair[1])
        missing = nonsense or _hole(evidence, span, said)
        readings.append(_reading(span, value, at_ns, len(said), missing))
    return tuple(readings)


def _risen(said: list[tuple[int, float]]) -> float | None:
    """Return how far a counter rose; None if it was not read twice or was reset in between."""
    if len(said) < 2 or any(b[1] < a[1] for a, b in zip(said, said[1:], strict=False)):  # noqa: RUF007
        return None
    return said[-1][1] - said[0][1]


def _preemptions_read(evidence: Evidence) -> tuple[Reading, ...]:
    readings = []
    for span in evidence.runs:
        said = _said(evidence, span, lambda sample: sample.preemptions)
        risen = _risen(said)
        missing = (
            "the counter of preemptions was not read twice, or was reset"
            if risen is None
            else _nonsense(evidence, span, lambda sample: sample.preemptions)
            or _hole(evidence, span, said)
        )
        readings.append(_reading(span, risen, None, len(said), missing))
    return tuple(readings)


def _queue_time_read(evidence: Evidence) -> tuple[Reading, ...]:
    readings = []
    for span in evidence.runs:
        seconds = _said(evidence, span, lambda sample: sample.queue_seconds_sum)
        requests = _said(evidence, span, lambda sample: sample.queue_seconds_count)
        waited, left = _risen(seconds), _risen(requests)
        value = None if waited is None or left is None or left == 0 else waited / left * 1e9
        missing = (
            "the engine's metrics do not say how long requests queued"
            if value is None
            else _nonsense(evidence, span, lambda sample: sample.queue_seconds_sum)
            or _nonsense(evidence, span, lambda sample: sample.queue_seconds_count)
            or _hole(evidence, span, seconds)
        )
        readings.append(_reading(span, value, None, len(seconds), missing))
    return tuple(readings)


KV_PEAK = Gauge(
    name="kv.peak",
    meaning="highest share of the KV cache in use",
    unit=Unit.SHARE,
    source="engine",
    read=partial(_highest, lambda sample: sample.kv_usage_share),
    full_at=1.0,
)
QUEUE_PEAK = Gauge(
    name="queue.peak",
    meaning="most requests waiting in the engine",
    unit=Unit.COUNT,
    source="engine",
    read=partial(_highest, lambda sample: sample.waiting),
)
PREEMPTIONS = Gauge(
    name="preemptions",
    meaning="requests that the engine set back",
    unit=Unit.COUNT,
    source="engine",
    read=_preemptions_read,
)
QUEUE_TIME = Gauge(
    name="queue.time",
    meaning="mean time that requests queued in the engine",
    unit=Unit.SECONDS,
    source="engine",
    read=_queue_time_read,
    rises_only=False,
)
