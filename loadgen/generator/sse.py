"""Event streams from bytes, by the WHATWG specification (HTML, section 9.2), without a socket."""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"
EVENT_LIMIT_BYTES = 1 << 18


class StreamError(Exception):
    """The stream is more than anybody asked for; says of what."""


class EventStream:
    r"""Bytes in, the ``data`` of whole events out, however the bytes are cut.

    Lines end with LF, CR or CRLF and with nothing else: U+2028 and U+0085 are text. Comments and the fields
    ``event``, ``id`` and ``retry`` are read over; data lines of one event are joined by LF; an event without
    data is none. An event that the stream ends within is not delivered, as the specification says.
    Work and memory are linear in the bytes and bounded by EVENT_LIMIT_BYTES and ``most_events``, comments
    and empty events included.

    >>> stream = EventStream(most_events=9)
    >>> stream.feed(b": ping\r\n\r\ndata: a\ndata:b")
    []
    >>> stream.feed(b"\n\n")
    [b'a\nb']
    """

    __slots__ = ("_fresh", "_left", "_most_events", "_skip_lf", "_tail", "_tail_bytes")

    def __init__(self, *, most_events: int) -> None:
        self._most_events = self._left = most_events
        self._tail: list[bytes] = []  # the pieces of an event that has not ended
        self._tail_bytes = 0
        self._skip_lf = False
        self._fresh = True

    @property
    def at_boundary(self) -> bool:
        """True between two events, so that the next byte begins one."""
        return not (self._tail or self._skip_lf or self._fresh)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of every event that these bytes complete, in order.

        Raises StreamError beyond a limit; the events of these bytes are then lost.
        """
        if self._skip_lf:
            # the LF of a CRLF that was cut between two reads
            self._skip_lf = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._fresh:
            data = b"".join(self._tail) + data
            self._tail.clear()
            if len(data) < len(BOM) and BOM.startswith(data):
                self._tail.append(data)
                return []
            self._fresh = False
            data = data.removeprefix(BOM)
        events = []
        for block in self._blocks(data):
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append(block[6:])
            elif (event := _joined(block)) is not None:
                events.append(event)
        return events

    def _blocks(self, data: bytes) -> list[bytes]:
        """Return the lines of every event that the data completes, looking at nothing twice."""
        tail = self._tail
        if tail and data.startswith(b"\n") and tail[-1].endswith(b"\n"):
            # the empty line that ends the event was cut between two reads
            tail[-1] = tail[-1][:-1]
            data = b"\n" + data
        blocks = data.split(b"\n\n")
        self._left -= len(blocks) - 1
        if self._left < 0:
            raise StreamError(f"more than {self._most_events} events")
        if self._tail_bytes + len(data) > EVENT_LIMIT_BYTES:
            largest = max(self._tail_bytes + len(blocks[0]), max(map(len, blocks)))
            if largest > EVENT_LIMIT_BYTES:
                raise StreamError(f"an event of more than {EVENT_LIMIT_BYTES >> 10} KiB")
        rest = blocks.pop()
        if blocks and tail:
            blocks[0] = b"".join((*tail, blocks[0]))
        if blocks:
            tail.clear()
            self._tail_bytes = 0
        if rest:
            tail.append(rest)
            self._tail_bytes += len(rest)
        return blocks


def _joined(block: bytes) -> bytes | None:
    """Return the data lines of an event's lines, joined; None if it has none."""
    lines = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines) if lines else None
