"""Event streams from bytes, by the WHATWG specification (HTML, section 9.2), without a socket."""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"


class EventStream:
    r"""Bytes in, the ``data`` of whole events out, however the bytes are cut.

    Lines end with LF, CR or CRLF and with nothing else: U+2028 and U+0085 are text. Comments and the fields
    ``event``, ``id`` and ``retry`` are read over; data lines of one event are joined by LF; an event without
    data is none. An event that the stream ends within is not delivered, as the specification says.

    >>> stream = EventStream()
    >>> stream.feed(b": ping\r\n\r\ndata: a\ndata:b")
    []
    >>> stream.feed(b"\n\n")
    [b'a\nb']
    """

    __slots__ = ("_fresh", "_skip_lf", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._skip_lf = False
        self._fresh = True

    @property
    def at_boundary(self) -> bool:
        """True between two events, so that the next byte begins one."""
        return not (self._tail or self._skip_lf or self._fresh)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of every event that these bytes complete, in order."""
        if self._skip_lf:
            # the LF of a CRLF that was cut between two reads
            self._skip_lf = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._tail:
            data = self._tail + data
        if self._fresh:
            if len(data) < len(BOM) and BOM.startswith(data):
                self._tail = data
                return []
            self._fresh = False
            data = data.removeprefix(BOM)
        blocks = data.split(b"\n\n")
        self._tail = blocks.pop()
        events = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(block[6:])
            elif (event := _joined(block)) is not None:
                events.append(event)
        return events


def _joined(block: bytes) -> bytes | None:
    """Return the data lines of an event's lines, joined; None if it has none."""
    lines = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines) if lines else None
