"""HTTP/1.1 replies from bytes: the head, and the body out of its framing (RFC 9112), without a socket."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD_LIMIT_BYTES = 1 << 16
CHUNK_LINE_LIMIT_BYTES = 1 << 10
# in one read, which is 256 KiB at most: no server sends 32 bytes at a time, framing included
MOST_CHUNKS = 1 << 13
_LENGTH = re.compile(rb"[0-9]{1,15}\Z")
_HEX = {spelling: n for n in range(8192) for spelling in (b"%x" % n, b"%X" % n)}
_HEX_DIGITS = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: |\Z)")


class HttpError(Exception):
    """The bytes are no HTTP/1.1 reply; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A final reply's head, as far as a client needs it. ``length_bytes`` is None without a Content-Length."""

    status: int
    keep_alive: bool
    chunked: bool
    length_bytes: int | None
    content_type: str
    encoding: str


def parse_head(head: bytes) -> Head:
    r"""Return what a head says, from its status line to before its empty line.

    Raises HttpError if it is none.

    >>> parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 5").length_bytes
    5
    """
    lines = head.split(b"\r\n")
    match = _STATUS_LINE.match(lines[0])
    if match is None:
        raise HttpError(f"not an HTTP/1.1 reply: {lines[0][:60]!r}")
    keep_alive = match[1] == b"1"
    length: int | None = None
    coding = content_type = encoding = b""
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            raise HttpError(f"bad header line {line[:60]!r}")
        name = name.lower()
        value = value.strip()
        if name == b"content-length":
            if _LENGTH.match(value) is None or (length is not None and length != int(value)):
                raise HttpError(f"bad content-length {value[:60]!r}")
            length = int(value)
        elif name == b"transfer-encoding":
            coding = value.lower()
        elif name == b"content-type":
            content_type = value.lower()
        elif name == b"content-encoding":
            encoding = value.lower()
        elif name == b"connection":
            options = value.lower()
            if b"close" in options:
                keep_alive = False
            elif b"keep-alive" in options:
                keep_alive = True
    if coding and coding != b"chunked":
        raise HttpError(f"transfer-encoding {coding[:60]!r} is not supported")
    return Head(
        status=int(match[2]),
        # RFC 9112 6.3: a reply with both framings may be an attack; read it as chunked, then close
        keep_alive=keep_alive and not (coding and length is not None),
        chunked=bool(coding),
        length_bytes=None if coding else length,
        content_type=content_type.decode("latin-1"),
        encoding="" if encoding == b"identity" else encoding.decode("latin-1"),
    )


class Body:
    """The body of one reply: bytes as they arrive in, body bytes out. Chunk extensions and trailers are read over.

    ``finished`` turns true with the last byte; ``excess`` if bytes came after it, so that the connection is not
    fit for another request. A body without a length ends with the connection (``until_eof``).
    """

    __slots__ = ("_carry", "_chunked", "_left", "_trailer", "excess", "finished", "until_eof")

    def __init__(self, head: Head) -> None:
        empty = head.status in {204, 304} or head.length_bytes == 0
        self._chunked = head.chunked and not empty
        self._left = head.length_bytes or 0
        self._carry = b""
        self._trailer = False
        self.until_eof = not (empty or head.chunked or head.length_bytes is not None)
        self.finished = empty
        self.excess = False

    @property
    def at_chunk(self) -> bool:
        """True where a chunked body's next byte begins a chunk."""
        return self._chunked and not (self._left or self._carry or self._trailer or self.finished)

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes in the data. Raises HttpError if its framing is broken."""
        if self.finished:
            self.excess = self.excess or bool(data)
            return b""
        if self._chunked:
            return self._feed_chunks(data)
        if self.until_eof:
            return data
        taken = data[: self._left]
        self._left -= len(taken)
        if not self._left:
            self.finished = True
            self.excess = len(taken) < len(data)
        return taken

    def _feed_chunks(self, data: bytes) -> bytes:
        if self._carry:
            data = self._carry + data
            self._carry = b""
        if self._trailer:
            self._end(data, 0)
            return b""
        parts = []
        at = 0
        size = len(data)
        left = self._left  # of this chunk, its closing CRLF included
        while at < size:
            if not left:
                line_end = data.find(b"\r\n", at, at + CHUNK_LINE_LIMIT_BYTES)
                if line_end < 0:
                    if size - at >= CHUNK_LINE_LIMIT_BYTES:
                        raise HttpError(f"bad chunk size {data[at : at + 60]!r}")
                    self._carry = data[at:]
                    break
                length = _HEX.get(data[at:line_end])
                if length is None:
                    length = _chunk_size(data[at:line_end])
                if not length:
                    self._trailer = True
                    self._end(data, line_end)
                    break
                at = line_end + 2
                end = at + length
                if end + 2 <= size:
                    if data[end : end + 2] != b"\r\n":
                        raise HttpError(f"bad end of a chunk: {data[end : end + 2]!r}")
                    parts.append(data[at:end])
                    if len(parts) > MOST_CHUNKS:
                        raise HttpError(f"more than {MOST_CHUNKS} chunks at once")
                    at = end + 2
                    continue
                left = length + 2
            taken = data[at : at + left]
            of_body = max(left - 2, 0)
            closing = taken[of_body:]
            seen = max(2 - left, 0)  # bytes of the closing CRLF that came in an earlier read
            if closing != b"\r\n"[seen : seen + len(closing)]:
                raise HttpError(f"bad end of a chunk: {closing!r}")
            parts.append(taken[:of_body])
            left -= len(taken)
            at += len(taken)
        self._left = left
        return b"".join(parts)

    def _end(self, data: bytes, at: int) -> None:
        """Read the trailer section, which begins with the CRLF that ends the last chunk's line."""
        found = data.find(b"\r\n\r\n", at)
        if found >= 0:
            self.finished = True
            self.excess = found + 4 < len(data)
        elif len(data) - at > HEAD_LIMIT_BYTES:
            raise HttpError("the trailers do not end")
        else:
            self._carry = data[at:]


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")
    if _HEX_DIGITS.match(digits) is None:
        raise HttpError(f"bad chunk size {line[:60]!r}")
    return int(digits, 16)
