"""The Azure LLM inference traces: CSV of ``TIMESTAMP,ContextTokens,GeneratedTokens``, stamps to 100 ns.

Published at https://github.com/Azure/AzurePublicDataset under CC-BY-4.0; cite Patel et al., Splitwise, ISCA 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from profiles.tracerow import TraceError, TraceRow

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_LONGEST_LINE_BYTES = 1024
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?", re.ASCII
)
_ROW_FORM = "write rows such as 2023-11-16 18:17:03.9799600,4808,10"


def rows(path: Path) -> Iterator[TraceRow]:
    """Yield the rows of a file in its order, one at a time.

    Raises TraceError at the first line that is not a row, or whose stamp lies before that of the row above.
    """
    try:
        with path.open("rb") as file:
            lines = enumerate(iter(lambda: file.readline(_LONGEST_LINE_BYTES), b""), start=1)
            yield from _rows(lines)
    except OSError as error:
        raise TraceError(0, f"cannot be read: {error.strerror}", "check the path") from None


def _rows(lines: Iterator[tuple[int, bytes]]) -> Iterator[TraceRow]:
    _, first = next(lines, (1, b""))
    if first.decode("utf-8-sig", "replace").strip() != HEADER:
        raise TraceError(1, "not an Azure LLM trace", f"its first line must be {HEADER}")
    minute, minute_ns, last_ns = "", 0, None
    blank = 0
    for number, raw in lines:
        line = raw.decode("ascii", "replace").strip()
        if not line:
            blank = blank or number
            continue
        if blank:
            raise TraceError(blank, "an empty line between rows", "remove it")
        fields = line.split(",")
        if len(fields) != 3:
            raise TraceError(number, f"{len(fields)} fields where 3 belong", _ROW_FORM)
        stamp = _STAMP.fullmatch(fields[0].strip())
        if stamp is None:
            raise TraceError(number, f"not a time stamp: {fields[0]!r}", _ROW_FORM)
        if stamp[1] != minute:
            minute, minute_ns = stamp[1], _minute_ns(stamp[1], number)
        seconds = int(stamp[2])
        if seconds > 59:
            raise TraceError(number, f"not a time stamp: {fields[0]!r}", _ROW_FORM)
        at_ns = minute_ns + seconds * 1_000_000_000 + int((stamp[3] or "0").ljust(9, "0"))
        if last_ns is not None and at_ns < last_ns:
            raise TraceError(number, "earlier than the row above", "sort the rows by their stamp")
        last_ns = at_ns
        yield TraceRow(at_ns, _tokens(fields[1], number), _tokens(fields[2], number), number)


def _minute_ns(text: str, number: int) -> int:
    try:
        minute = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise TraceError(number, f"not a time stamp: {text!r}", _ROW_FORM) from None
    return int(minute.timestamp()) * 1_000_000_000


def _tokens(text: str, number: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 8):
        raise TraceError(number, f"not a count of tokens: {text!r}", _ROW_FORM)
    return int(text)
