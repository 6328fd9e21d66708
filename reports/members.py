"""JSON lines in gzip members: a file that only grows, and that a kill at any instant leaves readable.

The first line is a header, ``{"format": 1, "kind": ...}``. Each flush appends one whole gzip member of whole
lines, so any gzip reader (``zcat``, pandas, duckdb) reads the file, and a torn member costs at most itself.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic_core import from_json

from reports.fault import FormatError, WriteError

FORMAT = 1
_GZIP = 16 + zlib.MAX_WBITS
# every member of ours starts so: gzip magic, deflate, no flags, no time
_START = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0))


class MemberWriter:
    """Appends lines to one file; nobody else writes to it. Compression is zlib level 1.

    An existing file is continued under the header it has. Lines wait in memory until ``flush``.
    Raises WriteError whenever the file system refuses; the lines stay pending and the next flush tries again.
    """

    __slots__ = ("_descriptor", "_end", "_pending", "path")

    def __init__(self, path: Path, kind: str, header: Mapping[str, object]) -> None:
        self.path = path
        self._pending: list[bytes] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
            self._end = os.fstat(self._descriptor).st_size
        except OSError as cause:
            raise WriteError(path, cause, lost=0) from cause
        if self._end == 0:
            self._pending.append(compact({"format": FORMAT, "kind": kind, **header}))
            try:
                self.flush()
            except WriteError:
                os.close(self._descriptor)
                raise

    def append(self, lines: Iterable[bytes]) -> None:
        """Keep the lines for the next flush. A line is one JSON object without its newline."""
        self._pending.extend(lines)

    def flush(self) -> None:
        """Write all pending lines as one gzip member; nothing pending writes nothing."""
        if not self._pending:
            return
        squeeze = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        member = squeeze.compress(b"\n".join(self._pending)) + squeeze.compress(b"\n")
        self._write(member + squeeze.flush())
        self._pending.clear()

    def _write(self, member: bytes) -> None:
        rest = memoryview(member)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as cause:
            # a full disk still lets go of bytes; a half member would cost its lines twice
            try:
                os.ftruncate(self._descriptor, self._end)
            except OSError as second:
                cause.add_note(f"and the half-written member could not be removed: {second}")
            raise WriteError(self.path, cause, lost=len(self._pending)) from cause
        self._end += len(member)

    def close(self) -> None:
        """Flush, bring the file to the disk and close it; closing twice is no fault."""
        if self._descriptor < 0:
            return
        descriptor = self._descriptor
        try:
            self.flush()
            try:
                os.fsync(descriptor)
            except OSError as cause:
                raise WriteError(self.path, cause, lost=0) from cause
        finally:
            self._descriptor = -1
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class MemberReader:
    """The objects of a file, in order, header apart; iterate once.

    ``torn`` counts, after the iteration, the members that were cut short or damaged and the lines that are
    no JSON; all whole lines of a cut member are read.
    Raises FormatError if the file cannot be opened, is of another kind or of a newer format.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind
        self.header: Mapping[str, Any] = {}
        self.torn = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        headed = False
        for line in self._lines():
            try:
                # twice as quick as json.loads on a row's long list of gaps
                value = from_json(line)
            except ValueError:
                value = None
            if not isinstance(value, dict):
                self.torn += 1
            elif headed:
                yield value
            else:
                self._check(value)
                self.header = value
                headed = True

    def _check(self, header: Mapping[str, Any]) -> None:
        written = header.get("format")
        if type(written) is not int or header.get("kind") != self.kind:
            raise FormatError(
                self.path,
                f"its first line is no header of {self.kind} lines",
                "give a run directory that tailgate wrote",
            )
        if written > FORMAT:
            raise FormatError(
                self.path,
                f"it has format {written}, and this tailgate reads up to {FORMAT}",
                "read it with the tailgate that wrote it, or a newer one",
            )

    def _lines(self) -> Iterator[bytes]:
        try:
            file = self.path.open("rb")
        except OSError as cause:
            raise FormatError.unreadable(self.path, cause) from cause
        with file:
            if os.fstat(file.fileno()).st_size == 0:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                start = 0
                while start < len(data):
                    text, start = self._member(data, start)
                    lines = text.split(b"\n")
                    if lines.pop():
                        self.torn += 1
                    yield from lines

    def _member(self, data: mmap.mmap, start: int) -> tuple[bytes, int]:
        """Return the text of the member at start, whole lines only if it is cut, and where the next begins."""
        inflate = zlib.decompressobj(_GZIP)
        parts: list[bytes] = []
        at = start
        try:
            while not inflate.eof and at < len(data):
                chunk = data[at : at + (1 << 16)]
                at += len(chunk)
                parts.append(inflate.decompress(chunk))
        except zlib.error:
            pass
        else:
            if inflate.eof:
                return b"".join(parts), at - len(inflate.unused_data)
        after = data.find(_START, start + 1)
        if after < 0:
            after = len(data)
        self.torn += 1
        return _whole_lines(data[start:after]), after


def _whole_lines(torn: bytes) -> bytes:
    """Return the whole lines of a member that was cut; nothing if it is damaged rather than cut."""
    inflate = zlib.decompressobj(_GZIP)
    try:
        text = inflate.decompress(torn)
    except zlib.error:
        return b""
    return text[: text.rfind(b"\n") + 1]


def compact(value: Mapping[str, object]) -> bytes:
    """Return the object as one line of JSON in UTF-8, without its newline.

    >>> compact({"tenant": "chat", "gaps": [1, 2]})
    b'{"tenant":"chat","gaps":[1,2]}'
    """
    # a lone surrogate in a server's words is no UTF-8 and must not cost the row
    return _ENCODE(value).encode("utf-8", "replace")


# one encoder for all lines: json.dumps with options builds a new one at every call
_ENCODE = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
).encode
