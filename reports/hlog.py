"""HdrHistogram logs (.hlog, format 1.3): one-second histograms of every latency, tenant, phase and run.

Any HdrHistogram tool reads them (HistogramLogAnalyzer, HistogramLogProcessor with ``-tag``), and from them
alone a run whose rows are gone can still be ruled on. The log writer of the Python package writes no tags and
no usable start time, so lines are written here; a histogram of one second has few buckets in use, and coding
just those is about twenty times as quick as going through all of them.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reports.fault import FormatError
from reports.manifest import Manifest
from reports.rundir import RunDir, write_atomic
from slas.columns import UNBOUNDED, Columns, columns_of
from slas.evidence import Evidence
from slas.histogram import (
    BUCKETS,
    DIGITS,
    HIGHEST_US,
    LOWEST_US,
    Histogram,
    bucket_of_us,
    upper_us,
)
from slas.measurement import HistogramKey
from slas.metric import metrics
from slas.quantity import Latency

Pairs = Sequence[tuple[int, int]]
LOOP_LAG: Final = "loop_lag"
PHASES: Final = ("warmup", "burst", "calm")
_SECOND_NS: Final = 10**9
# HdrHistogram's V2 encoding, in two layers: what is compressed, and the header of it
_COOKIE: Final = 0x1C849303 | 0x10
_COMPRESSED_COOKIE: Final = 0x1C849304 | 0x10
_HEADER: Final = struct.Struct(">iiiiqqd")
_OUTER: Final = struct.Struct(">ii")
_OVER: Final = BUCKETS - 1
_LINE: Final = re.compile(r"(?:Tag=([^, ]*),)?([0-9.]+),([0-9.]+),([0-9.]+),(\S+)")
_NOT_IN_A_TAG: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One line of a log: the values of one tag in [start, start + length), wall time in seconds.

    ``pairs`` are (bucket index, count), ascending, as ``Histogram.sparse`` gives them.
    """

    tag: str
    start_s: float
    length_s: float
    pairs: Pairs


def tag_of(key: HistogramKey) -> str:
    """Return ``<metric>.<tenant>.<phase>.r<run>``; what a tag cannot carry becomes ``_``.

    >>> tag_of(("service.ttft", "chat", "burst", 0))
    'service.ttft.chat.burst.r0'
    """
    metric, tenant, phase, run = key
    return f"{metric}.{_NOT_IN_A_TAG.sub('_', tenant)}.{phase}.r{run}"


def key_of(tag: str) -> HistogramKey:
    """Return the key that ``tag_of`` wrote. Raises ValueError on any other tag."""
    parts = tag.rsplit(".", 3)
    if len(parts) != 4 or not re.fullmatch(r"r[0-9]+", parts[3]):
        raise ValueError(f"tag {tag!r} is not <metric>.<tenant>.<phase>.r<run>")
    metric, tenant, phase, run = parts
    return metric, tenant, phase, int(run[1:])


def write_hlog(path: Path, start_wall_s: float, intervals: Iterable[Interval]) -> None:
    """Write the log atomically, ordered by time and then by tag.

    Raises WriteError if it cannot be written.
    """
    lines = [
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_wall_s:.3f} (seconds since epoch), tailgate, values in us]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for interval in sorted(intervals, key=lambda found: (found.start_s, found.tag)):
        # the format's convention: the maximum is shown in milliseconds when values are microseconds
        highest_ms = upper_us(interval.pairs[-1][0]) / 1000 if interval.pairs else 0.0
        lines.append(
            f"Tag={interval.tag},{interval.start_s:.3f},{interval.length_s:.3f},"
            f"{highest_ms:.3f},{encode(interval.pairs)}"
        )
    write_atomic(path, ("\n".join(lines) + "\n").encode())


def read_hlog(path: Path) -> dict[str, Histogram]:
    """Return all intervals of the log merged by tag; lines without a tag are under ``""``.

    Raises FormatError with the line if one is damaged or has other settings than ours.
    """
    found: dict[str, Histogram] = {}
    for interval in read_intervals(path):
        found.setdefault(interval.tag, Histogram()).add_sparse(interval.pairs)
    return found


def read_intervals(path: Path) -> Iterator[Interval]:
    """Yield the intervals of a log, from us or any HdrHistogram with our settings, in the order written.

    Raises FormatError with the line if one is damaged or has other settings than ours.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.startswith(("#", '"StartTimestamp"')) or not line.strip():
                continue
            match = _LINE.fullmatch(line.strip())
            try:
                if match is None:
                    raise ValueError("not <tag>,<start>,<length>,<max>,<histogram>")
                yield Interval(
                    tag=match[1] or "",
                    start_s=float(match[2]),
                    length_s=float(match[3]),
                    pairs=decode(match[5]),
                )
            except ValueError as fault:
                raise FormatError(
                    path,
                    f"line {number}: {fault}",
                    "delete the folder and derive it again with `tailgate check RUN`",
                ) from fault


def encode(pairs: Pairs) -> str:
    """Return (bucket index, count) pairs, ascending, as HdrHistogram V2 text.

    Counts are ZigZag LEB128; a run of n > 1 empty buckets is the number -n
    (https://github.com/HdrHistogram/HdrHistogram, AbstractHistogram.fillBufferFromCountsArray).
    """
    payload = bytearray()
    following = 0
    for index, count in pairs:
        empty = index - following
        if empty == 1:
            payload.append(0)
        elif empty > 1:
            _append(payload, 2 * empty - 1)
        _append(payload, 2 * count)
        following = index + 1
    header = _HEADER.pack(_COOKIE, len(payload), 0, DIGITS, LOWEST_US, HIGHEST_US, 1.0)
    squeezed = zlib.compress(header + payload)
    return base64.b64encode(_OUTER.pack(_COMPRESSED_COOKIE, len(squeezed)) + squeezed).decode()


def decode(text: str) -> Pairs:
    """Return the (bucket index, count) pairs of HdrHistogram V2 text, ascending.

    Raises ValueError on damage and on other settings than ours (1 us, three digits).
    """
    try:
        wire = base64.b64decode(text, validate=True)
        cookie, length = _OUTER.unpack_from(wire)
        if cookie != _COMPRESSED_COOKIE:
            raise ValueError("not a compressed HdrHistogram V2")
        if length != len(wire) - _OUTER.size:
            raise ValueError("the histogram is cut short")
        body = zlib.decompress(wire[_OUTER.size :])
        cookie, length, offset, digits, lowest, _, _ = _HEADER.unpack_from(body)
    except (binascii.Error, struct.error, zlib.error) as fault:
        raise ValueError(f"damaged histogram: {fault}") from fault
    if cookie != _COOKIE or offset != 0:
        raise ValueError("not an HdrHistogram V2 without an offset")
    if (digits, lowest) != (DIGITS, LOWEST_US):
        raise ValueError(
            f"the histogram has {digits} digits from {lowest}; ours have {DIGITS} from {LOWEST_US} us"
        )
    payload = body[_HEADER.size :]
    if len(payload) < length:
        raise ValueError("the counts are cut short")
    return _pairs(payload[:length])


def _append(payload: bytearray, number: int) -> None:
    """Append an unsigned number of 64 bits in base 128; the ninth byte, if any, holds eight bits."""
    for _ in range(8):
        if number < 0x80:
            payload.append(number)
            return
        payload.append(number & 0x7F | 0x80)
        number >>= 7
    payload.append(number)


def _pairs(payload: bytes) -> Pairs:
    pairs = []
    index = number = shift = 0
    for byte in payload:
        if shift < 56:
            number |= (byte & 0x7F) << shift
            if byte & 0x80:
                shift += 7
                continue
        else:
            number |= byte << shift
        count = number >> 1 ^ -(number & 1)
        number = shift = 0
        if count < 0:
            index -= count
            continue
        if count:
            pairs.append((min(index, _OVER), count))
        index += 1
    if shift:
        raise ValueError("the counts are cut short")
    if index > 2 * BUCKETS:
        raise ValueError("the histogram counts buckets that cannot be")
    return pairs


def write_intervals(run: RunDir, manifest: Manifest, evidence: Evidence) -> tuple[Path, ...]:
    """Derive ``intervals/run-<n>.hlog`` from the rows, one file a run; return their paths.

    A value is in the second in which its request was done. Values of failed requests that have no end are
    not in it: measurements.json counts them. Holes between two intervals of a tag are written as one empty
    interval, since plotters draw a missing one wrong.
    Raises WriteError if they cannot be written.
    """
    host = manifest.hosts[0]
    columns = columns_of(evidence)
    by_run: dict[int, list[Interval]] = {span.run: [] for span in evidence.runs}
    start_s = {
        span.run: (host.epoch_wall_ns + span.start_ns - host.epoch_monotonic_ns) / _SECOND_NS
        for span in evidence.runs
    }
    for key, seconds in (
        *latencies(columns).items(),
        *loop_lags(evidence).items(),
    ):
        run_of = key[3]
        by_run[run_of] += _intervals(tag_of(key), seconds, start_s[run_of])
    for stale in run.intervals.glob("*.hlog"):
        stale.unlink()
    paths = []
    for number, intervals in by_run.items():
        path = run.intervals / f"run-{number}.hlog"
        write_hlog(path, start_s[number], intervals)
        paths.append(path)
    return tuple(paths)


def read_histograms(run: RunDir) -> dict[HistogramKey, Histogram]:
    """Return the histograms of all .hlog files of a run, merged over time.

    Raises FormatError on a damaged file or a tag that is not ours.
    """
    found: dict[HistogramKey, Histogram] = {}
    for path in sorted(run.intervals.glob("*.hlog")):
        for tag, histogram in read_hlog(path).items():
            try:
                key = key_of(tag)
            except ValueError as fault:
                raise FormatError(
                    path, str(fault), "remove the file: it is not of this run"
                ) from fault
            if key in found:
                found[key].add(histogram)
            else:
                found[key] = histogram
    return found


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
        values_us > HIGHEST_US, _OVER, bucket_of_us(np.clip(values_us, 0, HIGHEST_US))
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
