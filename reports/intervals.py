"""``intervals/*.hlog``: one-second histograms of every latency, derived from the rows.

From them alone, failures counted in measurements.json, a run whose rows are gone can still be ruled on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reports.fault import FormatError, WriteError
from reports.hlog import OVER_BUCKET, Interval, Pairs, tag_of, write_hlog
from reports.rundir import RunDir
from slas.columns import UNBOUNDED, Columns, columns_of
from slas.evidence import Evidence
from slas.histogram import BUCKETS, HIGHEST_US, Histogram, bucket_of_us
from slas.measurement import HistogramKey
from slas.metric import metrics
from slas.quantity import Latency

LOOP_LAG: Final = "loop_lag"
PHASES: Final = ("warmup", "burst", "calm")
_SECOND_NS: Final = 10**9


def write_intervals(run: RunDir, evidence: Evidence) -> tuple[Path, ...]:
    """Derive ``intervals/run-<n>.hlog`` from the rows, one file a run; return their paths.

    A value is in the second in which its request was done. Values of failed requests that have no end are
    not in it: measurements.json counts them. Holes between two intervals of a tag are written as one empty
    interval, since plotters draw a missing one wrong.
    Raises WriteError if they cannot be written, FormatError if a folder is in the place of a log.
    """
    host = run.manifest().hosts[0]
    columns = columns_of(evidence)
    # a run that was killed may have rows and no span; its log then starts where the host's clocks were read
    runs = {*columns.runs, *(sample.run for sample in evidence.health)}
    began_ns = dict.fromkeys(sorted(runs), host.epoch_monotonic_ns)
    began_ns |= {span.run: span.start_ns for span in evidence.runs}
    start_s = {
        number: (host.epoch_wall_ns + start_ns - host.epoch_monotonic_ns) / _SECOND_NS
        for number, start_ns in began_ns.items()
    }
    by_run: dict[int, list[Interval]] = {number: [] for number in began_ns}
    for key, seconds in (
        *latencies(columns).items(),
        *loop_lags(evidence).items(),
    ):
        run_of = key[3]
        by_run[run_of] += _intervals(tag_of(key), seconds, start_s[run_of])
    _clear(run.intervals)
    paths = []
    for number, intervals in by_run.items():
        path = run.intervals / f"run-{number}.hlog"
        write_hlog(path, start_s[number], intervals)
        paths.append(path)
    return tuple(paths)


def _clear(folder: Path) -> None:
    """Leave the folder without a log, and make it anew if somebody deleted it.

    Raises WriteError if that fails, FormatError if something that is no file has the name of a log.
    """
    stale = folder
    try:
        folder.mkdir(exist_ok=True)
        for stale in folder.glob("*.hlog"):
            stale.unlink()
    except IsADirectoryError as cause:
        raise FormatError(
            stale, "it is a folder where a log must go", "remove it, and check the run again"
        ) from cause
    except OSError as cause:
        raise WriteError(stale, cause, lost=0) from cause


def latencies(columns: Columns) -> dict[HistogramKey, dict[int, Pairs]]:
    """Return every latency metric by key, and in it the bucket counts of each second that has any.

    Seconds count from the start of the warm-up.
    """
    second = columns.done_ns // _SECOND_NS
    phase = np.where(columns.measured, np.where(columns.burst, 1, 2), 0)
    group = (columns.run * len(columns.tenants) + columns.tenant) * len(PHASES) + phase
    found: dict[HistogramKey, dict[int, Pairs]] = {}
    for name, metric in metrics().items():
        if not isinstance(metric, Latency):
            continue
        samples = metric.samples(columns)
        ended = samples.values_ns != UNBOUNDED
        row = samples.row[ended]
        counted = _counted(group[row], second[row], samples.values_ns[ended])
        for number, seconds in counted.items():
            rest, phase_of = divmod(number, len(PHASES))
            run_of, tenant_of = divmod(rest, len(columns.tenants))
            key = (name, columns.tenants[tenant_of], PHASES[phase_of], columns.runs[run_of])
            found[key] = seconds
    return found


def loop_lags(evidence: Evidence) -> dict[HistogramKey, dict[int, Pairs]]:
    """Return the loop lag of every lane, keyed like a latency with the lane in the tenant's place."""
    found: dict[HistogramKey, dict[int, Pairs]] = {}
    for sample in evidence.health:
        phase = "warmup" if sample.at_ns < evidence.window.warmup_ns else "calm"
        second = sample.at_ns // _SECOND_NS
        lag_us = -(-np.asarray(sample.loop_lag_ns, dtype=np.int64) // 1000)
        histogram = Histogram()
        seconds = found.setdefault((LOOP_LAG, sample.lane, phase, sample.run), {})
        histogram.add_sparse(seconds.get(second, ()))
        histogram.record_many_us(lag_us)
        seconds[second] = histogram.sparse()
    return found


def _counted(
    group: NDArray[np.int64], second: NDArray[np.int64], values_ns: NDArray[np.int64]
) -> dict[int, dict[int, Pairs]]:
    """Return group -> second -> (bucket, count) pairs of the values."""
    if values_ns.size == 0:
        return {}
    # up to the next microsecond: a value must never come out under a limit that it is over
    values_us = -(-values_ns // 1000)
    bucket = np.where(
        values_us > HIGHEST_US, OVER_BUCKET, bucket_of_us(np.clip(values_us, 0, HIGHEST_US))
    )
    seconds = int(second.max()) + 1
    place = (group * seconds + second) * BUCKETS + bucket
    used, counts = np.unique(place, return_counts=True)
    cell, bucket = np.divmod(used, BUCKETS)
    edges = np.flatnonzero(np.diff(cell, prepend=-1))
    found: dict[int, dict[int, Pairs]] = {}
    for first, last in zip(edges.tolist(), (*edges[1:].tolist(), cell.size), strict=True):
        number, second_of = divmod(int(cell[first]), seconds)
        found.setdefault(number, {})[second_of] = list(
            zip(bucket[first:last].tolist(), counts[first:last].tolist(), strict=True)
        )
    return found


def _intervals(tag: str, seconds: Mapping[int, Pairs], start_s: float) -> Iterator[Interval]:
    following: int | None = None
    for second in sorted(seconds):
        if following is not None and second > following:
            yield Interval(
                tag=tag,
                start_s=start_s + following,
                length_s=float(second - following),
                pairs=(),
            )
        yield Interval(tag=tag, start_s=start_s + second, length_s=1.0, pairs=seconds[second])
        following = second + 1
