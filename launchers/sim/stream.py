"""What becomes of the tokens of one request: a stream of events, a bent one, or a whole body at the end."""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections.abc import Callable
from typing import Protocol

from launchers.sim.events import DONE, LAST_CHUNK, PING, Events, chunk, event
from launchers.sim.fault import Faults
from launchers.sim.request import Asked, error
from launchers.sim.text import Reply
from launchers.sim.truth import Truth
from launchers.sim.wire import Connection

_PIECE_PAUSE_S = 0.001


class Owner(Protocol):
    """Takes the tokens of one generation."""

    def token(self, *, last: bool) -> None:
        """One more token is there."""
        ...

    def ping(self) -> bool:
        """Send a comment if that is possible now; False once the reply is over."""
        ...


class Recorder:
    """The truth about one request, handed to the log when it ends."""

    __slots__ = ("_identity", "_open", "_received_ns", "_tokens", "_truth", "_writes_ns")

    def __init__(self, truth: Truth, identity: str | None, received_ns: int) -> None:
        self._truth = truth
        self._identity = identity
        self._received_ns = received_ns
        self._writes_ns = array("q")
        self._tokens = array("q")
        self._open = True

    def note(self, tokens: int) -> None:
        """A write that carries ``tokens`` tokens is about to be made."""
        self._writes_ns.append(time.monotonic_ns())
        self._tokens.append(tokens)

    def close(self) -> None:
        """The request ended, however it did; only the first call counts."""
        if self._open:
            self._open = False
            self._truth.record(self._identity, self._received_ns, self._writes_ns, self._tokens)


class WholeReply:
    """Collects nothing: the text is known, so the body is written when the last token is due."""

    def __init__(self, connection: Connection, body: Callable[[], bytes], recorder: Recorder | None, tokens: int) -> None:  # fmt: skip
        self._connection = connection
        self._body = body
        self._recorder = recorder
        self._tokens = tokens

    def token(self, *, last: bool) -> None:
        """Answer at the last one."""
        if last:
            if self._recorder is not None:
                self._recorder.note(self._tokens)
                self._recorder.close()
            self._connection.reply(200, self._body())

    def ping(self) -> bool:
        """A whole body has no room for comments."""
        return False


class PlainStream:
    """One event a token, as fast as can be."""

    __slots__ = ("_after", "_asked", "_at", "_before", "_connection", "_events", "_heads", "_over",
                 "_recorder", "_reply")  # fmt: skip

    def __init__(
        self, connection: Connection, asked: Asked, events_: Events, recorder: Recorder | None
    ) -> None:
        self._connection = connection
        self._asked = asked
        self._events = events_
        self._recorder = recorder
        self._reply: Reply = asked.reply
        self._at = 0
        self._before, after = events_.frame()
        self._after = after + b"\r\n"
        self._heads: dict[int, bytes] = {}
        self._over = False

    def token(self, *, last: bool) -> None:
        """Write its event, with what stands before the first and after the last."""
        at = self._at
        self._at = at + 1
        if at and not last:
            word = self._reply.escaped(at)
            head = self._heads.get(len(word)) or self._head(len(word))
            data = b"".join((head, word, self._after))
        else:
            data = self._edge(at, last=last)
        if self._recorder is not None:
            self._recorder.note(1)
        self._connection.write(data)
        if last:
            self._over = True
            if self._recorder is not None:
                self._recorder.close()
            self._connection.end()

    def ping(self) -> bool:
        """A comment between two events."""
        if not self._over:
            self._connection.write(chunk(PING))
        return not self._over

    def _head(self, word_bytes: int) -> bytes:
        """The chunk's size line and the event up to the word, for words of this length."""
        payload_bytes = len(self._before) + word_bytes + len(self._after) - 2
        head = b"%x\r\n%b" % (payload_bytes, self._before)
        self._heads[word_bytes] = head
        return head

    def _edge(self, at: int, *, last: bool) -> bytes:
        payloads: list[bytes] = []
        if at == 0:
            role = self._events.role()
            if role is not None:
                payloads.append(role)
        word = self._reply.word(at)
        if not last:
            payloads.append(self._events.word(word, at + 1))
            return b"".join(map(chunk, payloads))
        payloads.append(self._events.last(word, at + 1))
        if self._asked.include_usage:
            payloads.append(self._events.usage(at + 1))
        payloads.append(DONE)
        return b"".join(map(chunk, payloads)) + LAST_CHUNK


class BentStream:
    """A stream with faults, or with usage on every event: made event by event, the slow way.

    ``abort`` frees the engine of a request whose stream ends before its tokens do.
    """

    def __init__(
        self,
        connection: Connection,
        asked: Asked,
        events_: Events,
        recorder: Recorder | None,
        *,
        faults: Faults,
        number: int,
        abort: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._asked = asked
        self._events = events_
        self._recorder = recorder
        self._faults = faults
        self._number = number
        self._abort = abort
        self._produced = 0
        self._sent = 0
        self._tokens_held = 0  # in the payloads that are held back
        self._held: list[bytes] = []
        self._stalled = False
        self._ending = False
        self._over = False
        self._cuts = random.Random(number)  # noqa: S311 -- where to split, not a secret
        self._pieces: list[bytes] = []
        self._drip: asyncio.TimerHandle | None = None

    def token(self, *, last: bool) -> None:
        """Turn one more token into events, unless this is where the stream goes wrong."""
        if self._ending:
            return
        faults, number = self._faults, self._number
        if faults.hit(faults.empty, number):
            self._finish([DONE])
            return
        if self._produced == faults.cut_after and faults.hit(faults.cut, number):
            self._fail()
            self._over = True
            self._connection.cut()
            return
        if self._produced == faults.error_after and faults.hit(faults.error, number):
            message = "The server had an error while processing your request."
            self._finish([event(error(message, "InternalServerError", None, 500)), DONE])
            return
        if self._produced == faults.stall_after and faults.hit(faults.stall, number):
            self._stalled = True
            asyncio.get_running_loop().call_later(faults.stall_ns / 1e9, self._resume)
        self._produced += 1
        payloads = self._payloads(last=last)
        if last:
            self._finish(payloads, whole=True)
        else:
            self._hold(payloads)

    def _payloads(self, *, last: bool) -> list[bytes]:
        payloads: list[bytes] = []
        if self._produced == 1:
            role = self._events.role()
            if role is not None:
                payloads.append(role)
        thinking = self._faults.reasoning
        turns = self._produced == thinking  # a chunk does not mix reasoning and content
        full = self._produced - self._sent >= self._faults.tokens_per_chunk
        if not (last or turns or full):
            return payloads
        reply = self._asked.reply
        first = self._sent
        text = "".join(map(reply.word, range(first, self._produced)))
        if first and first == thinking:
            text = text.lstrip(" ")  # the answer proper begins here
        reasoning = self._produced <= thinking
        self._tokens_held += self._produced - first
        self._sent = self._produced
        if not last or self._faults.no_finish:
            payloads.append(self._events.word(text, self._produced, reasoning=reasoning))
            return payloads
        payloads.append(self._events.last(text, self._produced, reasoning=reasoning))
        if self._asked.include_usage and not self._faults.no_usage:
            payloads.append(self._events.usage(self._produced, min(thinking, self._produced)))
        if not self._faults.no_done:
            payloads.append(DONE)
        return payloads

    def _hold(self, payloads: list[bytes]) -> None:
        self._held += payloads
        if not self._stalled and len(self._held) >= self._faults.coalesce:
            self._send()

    def _resume(self) -> None:
        self._stalled = False
        self._send()

    def _finish(self, payloads: list[bytes], *, whole: bool = False) -> None:
        self._held += payloads
        if not whole:
            self._fail()
        self._ending = True
        if not self._stalled:
            self._send()

    def _fail(self) -> None:
        self._ending = True
        self._abort()

    def _send(self) -> None:
        payloads, self._held = [self._styled(payload) for payload in self._held], []
        if self._faults.coalesce > 1:
            payloads = [b"".join(payloads)]
        if self._faults.split:
            payloads = [piece for payload in payloads for piece in self._split(payload)]
        data = b"".join(chunk(payload) for payload in payloads if payload)
        if self._ending:
            data += LAST_CHUNK
        if self._faults.split:
            self._pieces += self._split(data)
            if self._drip is None:
                self._drop()
        else:
            self._write(data)
            if self._ending:
                self._close()

    def _close(self) -> None:
        self._over = True
        if self._recorder is not None:
            self._recorder.close()
        self._connection.end()

    def ping(self) -> bool:
        """A comment, unless it would fall between the pieces of an event."""
        if not self._over and not self._pieces:
            self._write(chunk(PING))
        return not self._over

    def _write(self, data: bytes) -> None:
        if self._recorder is not None and self._tokens_held:
            self._recorder.note(self._tokens_held)
            self._tokens_held = 0
        self._connection.write(data)

    def _drop(self) -> None:
        """Write one piece, then the next a little later, so that a reader sees them apart."""
        self._drip = None
        if self._pieces:
            self._write(self._pieces.pop(0))
        if self._pieces:
            loop = asyncio.get_running_loop()
            self._drip = loop.call_later(_PIECE_PAUSE_S, self._drop)
        elif self._ending and not self._held:
            # at once: a comment behind the last chunk would stand before the next reply
            self._close()

    def _styled(self, payload: bytes) -> bytes:
        if self._faults.no_space and payload.startswith(b"data: "):
            payload = b"data:" + payload[6:]
        if self._faults.crlf:
            payload = payload.replace(b"\n", b"\r\n")  # JSON holds no bare line ends
        return payload

    def _split(self, data: bytes) -> list[bytes]:
        """``data`` in up to three pieces, cut anywhere."""
        cuts = sorted(self._cuts.randrange(len(data) + 1) for _ in range(2))
        return [data[: cuts[0]], data[cuts[0] : cuts[1]], data[cuts[1] :]]
