"""Whether the instrument was fit to measure: INVALID is about us, never about the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiles.units import NS_PER, format_duration, format_share
from slas.columns import MISSING, UNBOUNDED, Ints
from slas.docket import Docket, Target
from slas.evidence import Evidence, HealthSample
from slas.histogram import rank_of
from slas.measurement import Measurement
from slas.pause import longest, moment_text, pause_text, pauses_of
from slas.quantity import Clock, Latency
from slas.ruling import Health, Ruling
from slas.slot import gone_quiet, held_back, holed_loops, unnumbered

_NS_PER_S = NS_PER["s"]
_NS_PER_US = NS_PER["us"]
_TOLERATED = 0.1
"""The share of the tightest limit that the instrument's own slowness may reach at its p99."""
_KEEPS_UP_NS = _NS_PER_S // 10
"""A generator whose lateness or lag is above this at its p99 does not keep up, whatever is promised."""
_MOST_TOKENS = 1_000_000_000
_BUSY = 0.01
"""Steal or run-queue wait below this share of a second explains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """A check ruled from due and, as if the instrument had been on time, from sent.

    ``regardless``: it is broken by more than all of the instrument's slowness, which therefore does not matter.
    ``undisturbed`` is what it may be without the pauses of the generators, and ``kept_up`` had they kept up; None
    unless it is a FAIL that they can have made.
    """

    target: Target
    limit: float
    from_due: Ruling
    from_sent: Ruling | None
    regardless: bool
    undisturbed: Ruling | None = None
    kept_up: Ruling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None


def examine(docket: Docket, twice: Sequence[Twice], *, stopped: bool, from_ns: int) -> Health:
    """Return the instrument's health. ``twice`` holds the checks that decide the verdict.

    It must have been fit from ``from_ns`` (from the start of the warm-up) to the end of the run.

    ``stopped`` says that the run ended before its plan for a known reason, so that what was not sent, or never came
    due, is no fault of the generators.
    """
    evidence = docket.evidence
    lateness = _lateness(docket, from_ns)
    watched = _watched(evidence, from_ns)
    lag, lane = _lag(evidence, from_ns)
    reasons = [*evidence.invalid, *_disordered(docket), *_miscounted(docket)]
    if not stopped:
        reasons += _undelivered(docket)
        reasons += _unfinished(evidence)
        reasons += _nothing_due(docket)
    open_to_doubt = [ruled for ruled in twice if not ruled.regardless]
    slow = [
        *_outrun(twice, overrun(docket, from_ns)),
        *_differing(open_to_doubt),
        *_too_slow("lateness p99", lateness, _tightest(open_to_doubt, "due")),
        *_too_slow(f"event-loop lag p99 of {lane}", lag, _tightest(open_to_doubt, "gap")),
        *_paused(evidence, open_to_doubt, from_ns),
        *_unwatched(docket, watched, open_to_doubt),
    ]
    fit = not reasons and not slow
    return Health(
        fit=fit,
        reasons=(*reasons, *slow),
        slow=tuple(_slow(docket, twice, from_ns)) if fit else (),
        causes=_causes(evidence, watched),
        mend=_mend(bool(slow), bool(reasons)),
        lateness_p50_s=_seconds(lateness.p50_ns),
        lateness_p99_s=_seconds(lateness.p99_ns),
        lateness_max_s=_seconds(lateness.max_ns),
        loop_lag_p99_s=_seconds(lag.p99_ns),
        loop_lag_max_s=_seconds(lag.max_ns),
        unsent=0 if docket.columns is None else int(docket.columns.unsent.sum()),
        steal_share_max=max(
            (s.steal_share for s in watched if s.steal_share is not None), default=None
        ),
        run_queue_share_max=max(
            (s.run_queue_ns / _NS_PER_S for s in watched if s.run_queue_ns is not None),
            default=None,
        ),
    )


def overrun(docket: Docket, from_ns: int) -> str | None:
    """Return how the generators did not keep up, in words; None if they did."""
    lateness, (lag, lane) = _lateness(docket, from_ns), _lag(docket.evidence, from_ns)
    said = [
        f"{what} is {format_duration(times.p99_ns)}"
        for what, times in (("lateness p99", lateness), (f"event-loop lag p99 of {lane}", lag))
        if times.p99_ns is not None and times.p99_ns > _KEEPS_UP_NS
    ]
    if not said:
        return None
    return f"{' and '.join(said)}, and above {format_duration(_KEEPS_UP_NS)} no generator keeps up"


def lateness_ns(docket: Docket, from_ns: int) -> int | None:
    """Return how late the latest request due from ``from_ns`` on was sent; None if unknown."""
    return _lateness(docket, from_ns).max_ns


def slowness_ns(docket: Docket, from_ns: int) -> int | None:
    """Return the most that the instrument can have added to a latency: its worst lateness and its worst lag.

    None if either is unknown. A server that takes requests in turn is never further behind than the latest of
    them was late, and a read is never stamped later than its loop lagged.
    """
    lateness, (lag, _) = _lateness(docket, from_ns), _lag(docket.evidence, from_ns)
    if lateness.max_ns is None or lag.max_ns is None:
        return None
    return lateness.max_ns + lag.max_ns


def _lag(evidence: Evidence, from_ns: int) -> tuple[_Times, str]:
    """Return the lag of the worst lane of the worst run, that lane, and the longest lag of all.

    A lane that is sick must not hide among sound ones, nor a sick window behind a long, idle drain.
    """
    end_ns = evidence.window.warmup_ns + evidence.window.duration_ns + _NS_PER_S
    lags: dict[tuple[int, str, bool], list[int]] = {}
    for sample in _watched(evidence, from_ns):
        for window_only in (True, False) if sample.at_ns <= end_ns else (False,):
            key = (sample.run, sample.lane, window_only)
            lags.setdefault(key, []).extend(sample.loop_lag_ns)
    times = {key: _times(np.array(values, dtype=np.int64)) for key, values in lags.items()}
    known = {key: one for key, one in times.items() if one.p99_ns is not None}
    if not known:
        return _Times(p50_ns=None, p99_ns=None, max_ns=None), ""
    (_, lane, _), worst = max(known.items(), key=lambda item: item[1].p99_ns or 0)
    highest = max(one.max_ns or 0 for one in known.values())
    return replace(worst, max_ns=highest), lane


def _mend(slow: bool, faulty: bool) -> str | None:
    if slow:
        return (
            "give the generators cores of their own (another machine, or more of them with --generators),"
            " or promise less tightly"
        )
    return "run again" if faulty else None


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS_PER_S


def _times(values_ns: Ints) -> _Times:
    if values_ns.size == 0:
        return _Times(p50_ns=None, p99_ns=None, max_ns=None)
    ordered = np.sort(values_ns)

    def at(share: float) -> int:
        return int(ordered[rank_of(share, ordered.size) - 1])

    return _Times(p50_ns=at(0.5), p99_ns=at(0.99), max_ns=at(1.0))


def _lateness(docket: Docket, from_ns: int) -> _Times:
    """Return how late the requests due from ``from_ns`` on were sent; the unsent are counted elsewhere."""
    columns = docket.columns
    if columns is not None:
        chosen = (columns.due_ns >= from_ns) & (columns.due_ns < columns.window_end_ns)
        late = columns.lateness_ns[chosen]
        return _times(late[(late != MISSING) & (late != UNBOUNDED)])
    kept = _kept_lateness(docket)
    if kept is None or kept.p50 is None:
        return _Times(p50_ns=None, p99_ns=None, max_ns=None)

    def ns(seconds: float | None) -> int | None:
        return None if seconds is None else round(seconds * _NS_PER_S)

    return _Times(p50_ns=ns(kept.p50), p99_ns=ns(kept.p99), max_ns=ns(kept.max))


def _kept_lateness(docket: Docket) -> Measurement | None:
    assert docket.summaries is not None
    return next(
        (
            m
            for m in docket.summaries.measurements
            if m.metric == "lateness" and m.tenant is None and m.phase is None and m.run is None
        ),
        None,
    )


def _watched(evidence: Evidence, from_ns: int) -> list[HealthSample]:
    """Return the generators' seconds from ``from_ns`` to the end of the run: the window is still read in the drain.

    A sample's stamp is the end of its second.
    """
    return [sample for sample in evidence.health if sample.at_ns > from_ns]


# ---------------------------------------------------------------------------------------------------------
# reasons


def _undelivered(docket: Docket) -> Iterable[str]:
    """Yield what of the schedule was not sent, or is not accounted for, by our own fault."""
    columns, evidence = docket.columns, docket.evidence
    if columns is None:
        kept = _kept_lateness(docket)
        if kept is not None and kept.failed:
            yield f"{kept.failed:,} requests that were due were not sent, and their rows are gone"
        return
    for span in evidence.runs:
        mine = columns.run == columns.runs.index(span.run)
        for tenant, planned in sorted(span.planned.items()):
            rows = int((mine & columns.of_tenant(tenant)).sum())
            if rows != planned:
                yield (
                    f"run {span.run}: {planned:,} requests of {tenant} were planned, and {rows:,} are"
                    " accounted for"
                )
    twins = len(evidence.rows) - len(
        {(row.run, row.tenant, row.session, row.turn, row.ordinal) for row in evidence.rows}
    )
    if twins:
        yield f"{twins:,} requests are recorded twice"
    else:
        yield from _holed(docket)
    ours = _unsent_by_us(evidence)
    if ours:
        total = ours.total()
        why, _ = ours.most_common(1)[0]
        yield f"{total:,} requests that were due were not sent: {why}"


def _holed(docket: Docket) -> Iterable[str]:
    """Yield which tenants lack rows that their neighbours' numbers speak of, as many as there may be in all."""
    columns, evidence = docket.columns, docket.evidence
    assert columns is not None
    for span in evidence.runs:
        mine = columns.run == columns.runs.index(span.run)
        for tenant in sorted(span.planned):
            ordinals = np.sort(columns.ordinal[mine & columns.of_tenant(tenant)])
            if np.any(ordinals != np.arange(ordinals.size)):
                yield unnumbered(span.run, tenant)
    yield from holed_loops(evidence)


def _disordered(docket: Docket) -> Iterable[str]:
    """Yield how many requests have stamps that no single clock could have given: their latencies mean nothing."""
    columns = docket.columns
    if columns is None:
        return
    stamps = (
        columns.due_ns,
        columns.sent_ns,
        columns.first_ns,
        columns.last_ns,
        columns.done_ns,
    )
    torn = columns.due_ns < 0
    latest = columns.due_ns
    for stamp in stamps:
        known = stamp != MISSING
        torn |= known & (stamp < latest)
        latest = np.where(known, stamp, latest)
    torn[columns.gap_row[columns.gap_ns < 0]] = True
    # nobody is answered who was not sent, nor waits for a connection for longer than until the request went out
    torn |= (columns.sent_ns == MISSING) & (columns.completed | (columns.first_ns != MISSING))
    waited = columns.connect_ns != MISSING
    until_ns = np.where(columns.sent_ns == MISSING, columns.done_ns, columns.sent_ns)
    torn |= waited & ((columns.connect_ns < 0) | (columns.connect_ns > until_ns - columns.due_ns))
    count = int(torn.sum())
    if count:
        yield f"{count:,} requests have stamps out of order: a clock stepped, or rows are damaged"


def _miscounted(docket: Docket) -> Iterable[str]:
    """Yield how many requests have numbers of tokens that no reply can have had."""
    columns = docket.columns
    if columns is None:
        return
    wrong = np.zeros(columns.size, dtype=np.bool_)
    for tokens in (columns.prompt_tokens, columns.output_tokens):
        wrong |= (tokens != MISSING) & ((tokens < 0) | (tokens > _MOST_TOKENS))
    wrong[columns.gap_row[(columns.gap_tokens < 0) | (columns.gap_tokens > _MOST_TOKENS)]] = True
    count = int(wrong.sum())
    if count:
        yield (
            f"{count:,} requests have fewer than 0 or more than {_MOST_TOKENS:,} tokens: the engine reports"
            " nonsense, or rows are damaged"
        )


def _unsent_by_us(evidence: Evidence) -> Counter[str]:
    """Count why requests were not sent, but for the later turns of sessions that the engine broke."""
    unsent = [row for row in evidence.rows if row.outcome == "unsent"]
    if not unsent:
        return Counter()
    broken: dict[tuple[int, str, str], int] = {}
    for row in evidence.rows:
        if row.outcome not in ("completed", "unsent"):
            key = (row.run, row.tenant, row.session)
            broken[key] = min(broken.get(key, row.turn), row.turn)
    return Counter(
        row.why or "no reason recorded"
        for row in unsent
        if not row.turn > broken.get((row.run, row.tenant, row.session), row.turn)
    )


def _unfinished(evidence: Evidence) -> Iterable[str]:
    for span in evidence.runs:
        if not span.finished:
            yield f"run {span.run} did not finish: a generator never said its last word"


def _nothing_due(docket: Docket) -> Iterable[str]:
    columns, nothing = docket.columns, "nothing was due in the measured window"
    if columns is None:
        assert docket.summaries is not None
        if not any(m.count for m in docket.summaries.measurements if m.metric == "error_rate"):
            yield nothing
            return
    elif not columns.measured.any() and not held_back(docket):
        yield nothing
        return
    yield from gone_quiet(docket)


def _tightest(twice: Iterable[Twice], clock: Clock) -> tuple[str, float] | None:
    """Return (what, ns) of the tightest limit on latencies of a clock, bounds of goodput included."""
    limits: list[tuple[float, str]] = []
    for ruled in twice:
        expression = ruled.target.check.expression
        for bound in expression.bounds:
            if bound.latency.clock == clock:
                limits.append((bound.limit_ns, f"{bound.latency.name} in goodput"))
        metric = expression.metric
        if isinstance(metric, Latency) and metric.clock == clock:
            limits.append((ruled.limit, str(ruled.target)))
    if not limits:
        return None
    limit, what = min(limits)
    return what, limit


def _too_slow(what: str, times: _Times, tightest: tuple[str, float] | None) -> Iterable[str]:
    if tightest is None or times.p99_ns is None:
        return
    name, limit = tightest
    if times.p99_ns > _TOLERATED * limit:
        yield (
            f"{what} is {format_duration(times.p99_ns)}, more than a tenth of the tightest limit"
            f" ({name}: {format_duration(limit)})"
        )


def _slow(docket: Docket, twice: Sequence[Twice], from_ns: int) -> Iterable[str]:
    """Yield in what the instrument was slow, although no ruling depends on it."""
    lateness, (lag, lane) = _lateness(docket, from_ns), _lag(docket.evidence, from_ns)
    yield from _too_slow("lateness p99", lateness, _tightest(twice, "due"))
    yield from _too_slow(f"event-loop lag p99 of {lane}", lag, _tightest(twice, "gap"))
    outrun = overrun(docket, from_ns)
    if outrun is not None:
        yield outrun


def _outrun(twice: Iterable[Twice], how: str | None) -> Iterable[str]:
    for ruled in twice:
        if ruled.kept_up not in (None, ruled.from_due):
            yield (
                f"{ruled.target} is {ruled.from_due}, and may be so because the generators did not keep up"
                f" ({how}): it is {ruled.kept_up} once that is allowed for"
            )


def _differing(twice: Iterable[Twice]) -> Iterable[str]:
    for ruled in twice:
        if ruled.from_sent is not None and ruled.from_sent is not ruled.from_due:
            yield (
                f"{ruled.target} is {ruled.from_due} from when requests were due and {ruled.from_sent}"
                " from when they were sent"
            )


def _paused(evidence: Evidence, twice: Iterable[Twice], from_ns: int) -> Iterable[str]:
    pause = longest(pauses_of(evidence, from_ns))
    for ruled in twice:
        if pause is not None and ruled.undisturbed not in (None, ruled.from_due):
            yield (
                f"{ruled.target} is {ruled.from_due}, and may be so for {pause_text(pause, evidence)} alone:"
                f" it is {ruled.undisturbed} once the pauses are taken off the requests that they can have"
                " touched"
            )


def _unwatched(
    docket: Docket, watched: Sequence[HealthSample], twice: Sequence[Twice]
) -> Iterable[str]:
    # without rows the run is old, and what its generators said of themselves may be gone with them
    if docket.columns is None or any(s.loop_lag_ns for s in watched):
        return
    # where an engine died before the window, nothing was ruled on, and there was no lag left to report
    ruled_on = [one for one in twice if one.from_due in (Ruling.PASS, Ruling.FAIL)]
    tightest = _tightest(ruled_on, "gap") or next(
        (
            (str(ruled.target), ruled.limit)
            for ruled in ruled_on
            if ruled.from_due is Ruling.FAIL and is_timed(ruled.target)
        ),
        None,
    )
    if tightest is not None:
        yield f"the generators did not report their event-loop lag, on which {tightest[0]} depends"


def is_timed(target: Target) -> bool:
    """Return whether a target's ruling rests on when a generator read what the engine sent."""
    expression = target.check.expression
    if isinstance(expression.metric, Latency):
        return expression.metric.clock != "instrument"
    return bool(expression.bounds)


def _causes(evidence: Evidence, window: Sequence[HealthSample]) -> tuple[str, ...]:
    causes = []
    steal = max((s.steal_share for s in window if s.steal_share is not None), default=0.0)
    if steal > _BUSY:
        causes.append(
            f"other machines on this host took up to {format_share(steal)} of the CPU (steal)"
        )
    waiting = max(
        (s for s in window if s.run_queue_ns is not None),
        key=lambda s: s.run_queue_ns or 0,
        default=None,
    )
    if waiting is not None and (waiting.run_queue_ns or 0) > _BUSY * _NS_PER_S:
        causes.append(
            f"generator {waiting.lane} waited {format_duration(waiting.run_queue_ns or 0)} for a core (run"
            f" queue), noted {moment_text(waiting.run, waiting.at_ns, evidence)}"
        )
    return tuple(causes)
