"""One streamed reply: bytes in, tokens and their stamps out, without a socket.

All events of one socket read share that read's stamp. Most events are recognised as tokens in their bytes,
by the key and spacing that the stream's first token taught; only the first events, the last ones and those that
the bytes leave open go through a JSON parser.
"""

from __future__ import annotations

from array import array

from loadgen.dialect import Dialect
from loadgen.event import Event
from loadgen.generator.http1 import HEAD_LIMIT_BYTES, Body, Head, HttpError, parse_head
from loadgen.generator.sse import EVENT_LIMIT_BYTES, EventStream, StreamError

# How much more than planned an engine may send before it is cut off, and what its usage may say. No engine that
# heeds max_tokens comes near; one that floods must not hold up the requests beside it.
FLOOD_TIMES = 4
FLOOD_EVENTS = 1024
FLOOD_BYTES = 1 << 20
BYTES_AN_EVENT = 1 << 10
BYTES_A_TOKEN = 64
USAGE_TOLERATED_TOKENS = 16
MOST_PROMPT_TOKENS = 10**9
_HEX = {b"%x" % n: n for n in range(1, 8192)} | {b"%X" % n: n for n in range(1, 8192)}
_QUOTE = 0x22


class Mark:
    r"""How a token delta looks in bytes, ``"content":"``, and which marks must not stand beside it.

    A raw quote cannot occur inside a JSON string, so a match is a key with a string; the byte after it tells
    an empty string. Beside reasoning, output must be looked for too, since one event can carry both.
    """

    __slots__ = ("beside", "output", "size", "text")

    def __init__(self, text: bytes, *, output: bool, beside: tuple[bytes, ...]) -> None:
        self.text = text
        self.size = len(text)
        self.output = output
        self.beside = beside

    def matches(self, event: bytes) -> bool:
        """Return true if the event surely is one token of this kind; one that was cut off is not."""
        at = event.find(self.text)
        if at < 0 or not event.endswith(b"}") or event[at + self.size] == _QUOTE:
            return False
        return self.alone(event)

    def alone(self, event: bytes) -> bool:
        """Return true if none of the marks that must not stand beside it does. The event ends after a string."""
        for other in self.beside:
            at = event.find(other)
            if at >= 0 and event[at + len(other)] != _QUOTE:
                return False
        return True


def marks(dialect: Dialect) -> tuple[Mark, ...]:
    """Return the marks that a dialect's tokens can have, in the spacings that JSON encoders write."""
    made = []
    for spacing in (b'":"', b'": "'):
        outputs = tuple(b'"' + key.encode() + spacing for key in dialect.output_keys)
        made += [Mark(text, output=True, beside=()) for text in outputs]
        made += [
            Mark(b'"' + key.encode() + spacing, output=False, beside=outputs)
            for key in dialect.reasoning_keys
        ]
    return tuple(made)


class Reply:
    """The reply to one request for ``asked`` tokens, as it arrives.

    ``stamps`` holds one monotonic ns per token the client counted, in order; ``merged`` counts the tokens that
    shared a read with an earlier one, so ``len(stamps) - merged`` reads carried tokens. ``error`` says why the
    reply cannot be used, ``ended`` that the server said its last word: a finish reason or the end mark. The
    counts are the server's, None where it gave none or where ``doubt`` says why they are not believed.
    """

    __slots__ = (
        "_asked",
        "_body",
        "_bytes",
        "_carry",
        "_dialect",
        "_head",
        "_hot",
        "_last",
        "_mark",
        "_marks",
        "_most",
        "_stream",
        "_whole",
        "_whole_bytes",
        "completion_tokens",
        "doubt",
        "end_mark",
        "error",
        "finish",
        "merged",
        "output_first_ns",
        "over",
        "prompt_tokens",
        "stamps",
    )

    def __init__(self, dialect: Dialect, known: tuple[Mark, ...], *, asked: int) -> None:
        self._dialect = dialect
        self._asked = asked
        self._most = FLOOD_TIMES * asked + FLOOD_EVENTS
        self._bytes = 0  # of the reads that took the long way
        self._marks = known
        self._mark: Mark | None = None
        self._hot = False
        self._carry = b""
        self._head: Head | None = None
        self._body: Body | None = None
        self._stream: EventStream | None = None
        self._whole: list[bytes] = []
        self._whole_bytes = 0
        self._last: bytes | None = None
        self.stamps: array[int] = array("q")
        self.merged = 0
        self.output_first_ns: int | None = None
        self.finish: str | None = None
        self.end_mark = False
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.doubt: str | None = None
        self.error: str | None = None
        self.over = False

    @property
    def status(self) -> int | None:
        """The HTTP status, None before it came."""
        return None if self._head is None else self._head.status

    @property
    def begun(self) -> bool:
        """True once a byte of it came."""
        return self._bytes > 0

    @property
    def ended(self) -> bool:
        """True once the server gave a finish reason or the end mark."""
        return self.end_mark or self.finish is not None

    @property
    def reusable(self) -> bool:
        """True if the connection is fit for another request after this reply."""
        return (
            self.over
            and self._head is not None
            and self._head.keep_alive
            and self._body is not None
            and self._body.finished
            and not self._body.excess
        )

    def feed(self, data: bytes, at_ns: int) -> bool:
        """Take the bytes of one read, stamped ``at_ns``; return true once the reply is over."""
        if self._hot and data.endswith(b"}\n\n\r\n"):
            # Is this read exactly one chunk, holding exactly one event of one line, a token for sure?
            line_end = data.find(b"\r\n", 1, 9)
            start = line_end + 8
            end = len(data) - 4
            mark = self._mark
            if (
                mark is not None
                and _HEX.get(data[:line_end]) == end - line_end
                and data.startswith(b"data: ", line_end + 2)
                and data.find(b"\n", start) == end
                and data.find(b"\r", start) == end + 2
            ):
                found = data.find(mark.text, start)
                if (
                    found > 0
                    and data[found + mark.size] != _QUOTE
                    and (not mark.beside or mark.alone(data))
                    and len(self.stamps) < self._most
                ):
                    self.stamps.append(at_ns)
                    self._last = data
                    return False
        try:
            return self._feed(data, at_ns)
        except HttpError as fault:
            return self._fail(str(fault))
        except StreamError as fault:
            return self._fail(f"{fault} where {self._asked} tokens were asked for")

    def _feed(self, data: bytes, at_ns: int) -> bool:
        self._bytes += len(data)
        limit_bytes = FLOOD_BYTES + BYTES_AN_EVENT * self._most
        if self._bytes > limit_bytes:
            raise StreamError(f"more than {limit_bytes} bytes")
        body = self._body
        if body is None:
            data = self._carry + data
            rest = self._read_head(data)
            if rest is None:
                return False
            body = self._body
            assert body is not None
            if self.error is not None:
                return self._fail(self.error)
            data = rest
        payload = body.feed(data)
        stream = self._stream
        if stream is None:
            self._keep(payload)
        elif payload:
            self._take(stream.feed(payload), at_ns)
            self._hot = body.at_chunk and stream.at_boundary
        if body.finished:
            self._hot = False
            self.over = True
            self._conclude(at_ns)
            return True
        return False

    def _read_head(self, data: bytes) -> bytes | None:
        """Return the bytes after a final head; None, keeping the data, while there is none."""
        at = 0
        while True:
            end = data.find(b"\r\n\r\n", at)
            # the heads of interim replies count: there may be any number of them
            if (self._bytes if end < 0 else end) > HEAD_LIMIT_BYTES:
                raise HttpError("the head does not end")
            if end < 0:
                if not data.startswith(b"HTTP/1."[: len(data) - at], at):
                    raise HttpError(f"not an HTTP/1.1 reply: {data[at : at + 60]!r}")
                self._carry = data[at:]
                return None
            head = parse_head(data[at:end])
            at = end + 4
            if head.status == 101:
                raise HttpError("the server switched protocols")
            if head.status >= 200:
                break
        self._carry = b""
        self._head = head
        self._body = Body(head)
        if head.status == 200:
            if head.encoding:
                self.error = f"content-encoding {head.encoding!r} was not asked for"
            elif head.content_type.startswith("text/event-stream"):
                self._stream = EventStream(most_events=self._most)
        return data[at:]

    def _take(self, events: list[bytes], at_ns: int) -> None:
        before = len(self.stamps)
        try:
            for event in events:
                mark = self._mark
                if mark is not None and mark.matches(event):
                    self.stamps.append(at_ns)
                    self._last = event
                elif event:
                    self._read(event, at_ns)
        finally:
            carried = len(self.stamps) - before
            if carried > 1:
                self.merged += carried - 1

    def _read(self, data: bytes, at_ns: int) -> None:
        """Read an event with the JSON parser, and learn its mark if it carries a token."""
        self._read_last()
        try:
            event = self._dialect.read(data)
        except ValueError as fault:
            self._not_ours(fault)
            return
        if event.error is not None:
            self.error = self.error or f"error event: {event.error}"
        if event.tokens:
            if len(self.stamps) + event.tokens > self._most:
                raise StreamError(f"{len(self.stamps) + event.tokens} tokens")
            for _ in range(event.tokens):
                self.stamps.append(at_ns)
            if event.output and self.output_first_ns is None:
                self.output_first_ns = at_ns
            self._mark = next(
                # output that has not been stamped yet must not hide behind a mark of reasoning
                (
                    mark
                    for mark in self._marks
                    if mark.output == event.output and mark.matches(data)
                ),
                None,
            )
        self._note(event)
        self.end_mark = self.end_mark or event.end

    def _note(self, event: Event) -> None:
        """Keep the finish reason and the usage, of which the last one counts: engines may send it with every token."""
        self.finish = event.finish or self.finish
        prompt, completion, doubt = event.prompt_tokens, event.completion_tokens, event.doubt
        most = self._asked + USAGE_TOLERATED_TOKENS
        if doubt is None and completion is not None and not 0 <= completion <= most:
            doubt = f"{completion} output tokens where {self._asked} were asked for"
        if doubt is None and prompt is not None and not 0 <= prompt <= MOST_PROMPT_TOKENS:
            doubt = f"{prompt} prompt tokens"
        if doubt is not None:
            self.doubt = f"the server's usage is not believed: {doubt}"
            self.prompt_tokens = self.completion_tokens = None
            return
        if completion is not None:
            self.doubt = None
            self.completion_tokens = completion
        if prompt is not None:
            self.prompt_tokens = prompt

    def _keep(self, payload: bytes) -> None:
        self._whole_bytes += len(payload)
        limit_bytes = EVENT_LIMIT_BYTES + BYTES_A_TOKEN * self._asked
        if self._whole_bytes > limit_bytes:
            raise HttpError(f"a reply of more than {limit_bytes} bytes that is no event stream")
        self._whole.append(payload)

    def _conclude(self, at_ns: int) -> None:
        """Read what only the end tells: the finish reason on the last token, or a reply in one piece."""
        if self._stream is not None:
            self._read_last()
        elif self.status == 200:
            self._read_whole(at_ns)

    def _read_last(self) -> None:
        """Read the last token that was recognised in bytes: a finish reason or usage may ride on it."""
        last, self._last = self._last, None
        if last is None:
            return
        try:
            event = self._dialect.read(last[last.find(b"{") : last.rfind(b"}") + 1])
        except ValueError as fault:
            self._not_ours(fault)
        else:
            self._note(event)

    def _not_ours(self, fault: ValueError) -> None:
        self.error = self.error or f"an event that is none of this API: {fault}"[:200]

    def _read_whole(self, at_ns: int) -> None:
        assert self._head is not None
        try:
            event = self._dialect.read_whole(b"".join(self._whole))
        except ValueError as fault:
            kind = self._head.content_type or "untyped"
            self.error = self.error or f"a reply of type {kind} is no event stream: {fault}"[:200]
            return
        if event.error is not None:
            self.error = self.error or event.error
        if event.tokens:
            self.stamps.append(at_ns)
            if event.output:
                self.output_first_ns = at_ns
        self._note(event)

    def cut(self, at_ns: int) -> None:
        """End the reply where it is: the connection is gone, or nobody waits any longer."""
        if self.over:
            return
        body = self._body
        if body is not None and body.until_eof:
            self.over = True
            self._conclude(at_ns)
        elif self._stream is not None:
            self._read_last()

    def words(self) -> str:
        """Return the server's own words in an error reply."""
        return self._dialect.refusal(b"".join(self._whole))

    def _fail(self, why: str) -> bool:
        self.error = self.error or why
        self._hot = False
        self._body = None
        self.over = True
        return True
