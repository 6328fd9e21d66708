"""HdrHistogram logs (.hlog, format 1.3): tagged histograms of microseconds, one interval a line.

Any HdrHistogram tool reads them (HistogramLogAnalyzer, HistogramLogProcessor with ``-tag``). The log writer of the Python package writes no tags and
no usable start time, so lines are written here; a histogram of one second has few buckets in use, and coding
just those is about twenty times as quick as going through all of them.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reports.fault import FormatError
from reports.replacing import write_atomic
from slas.histogram import (
    BUCKETS,
    DIGITS,
    HIGHEST_US,
    LOWEST_US,
    Histogram,
    upper_us,
)
from slas.measurement import HistogramKey

Pairs = Sequence[tuple[int, int]]
# HdrHistogram's V2 encoding, in two layers: what is compressed, and the header of it
_COOKIE: Final = 0x1C849303 | 0x10
_COMPRESSED_COOKIE: Final = 0x1C849304 | 0x10
_HEADER: Final = struct.Struct(">iiiiqqd")
_OUTER: Final = struct.Struct(">ii")
OVER_BUCKET: Final = BUCKETS - 1
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
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except OSError as cause:
        raise FormatError.unreadable(path, cause) from cause
    with file:
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
            pairs.append((min(index, OVER_BUCKET), count))
        index += 1
    if shift:
        raise ValueError("the counts are cut short")
    if index > 2 * BUCKETS:
        raise ValueError("the histogram counts buckets that cannot be")
    return pairs
