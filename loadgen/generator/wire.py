"""One connection, made by aiohttp's connector and spoken on by us.

aiohttp resolves, connects, secures and tunnels; the exchange on the open connection is ours, because its own
client reads a stream at half the speed and a tenth too late (docs/decisions).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from aiohttp.connector import Connection

    from loadgen.generator.exchange import Exchange
    from loadgen.generator.reply import Reply

Ended = Callable[["Exchange", int, str | None], None]
Idle = Callable[["Wire"], None]


def factory(loop: asyncio.AbstractEventLoop) -> Callable[[], Wire]:
    """Return what a connector makes its protocols with."""
    return functools.partial(Wire, loop)


class Wire(ResponseHandler):
    """A connection that carries one exchange at a time.

    Slots, because an instance dictionary of more than 30 names loses CPython's fast attribute access.
    """

    __slots__ = (
        "_answered",
        "_ended",
        "_exchange",
        "_idle",
        "_reply",
        "connection",
        "idle_since_ns",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._reply: Reply | None = None
        self._exchange: Exchange | None = None
        self._ended: Ended | None = None
        self._idle: Idle | None = None
        self._answered = False
        self.connection: Connection | None = None
        self.idle_since_ns = 0

    def begin(self, exchange: Exchange, ended: Ended, idle: Idle) -> None:
        """Send the exchange's request. ``ended(exchange, at_ns, lost)`` is called once, whatever happens.

        ``idle(wire)`` is called before it if the connection is fit for another.
        """
        transport = self.transport
        assert transport is not None
        assert self._exchange is None
        self._exchange = exchange
        self._reply = exchange.reply
        self._ended = ended
        self._idle = idle
        exchange.wire = self
        exchange.sent_ns = monotonic_ns()
        transport.write(exchange.request)
        exchange.request = b""  # the transport has it; thousands in flight need not keep it twice

    def data_received(self, data: bytes) -> None:
        """Stamp the read before anything else looks at it."""
        at_ns = monotonic_ns()
        reply = self._reply
        if reply is None:
            self._unasked(data)
        elif reply.feed(data, at_ns):
            self._over(at_ns, None)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the exchange, if there is one: never silence."""
        at_ns = monotonic_ns()
        super().connection_lost(exc)
        reply = self._reply
        if reply is not None:
            reply.cut(at_ns)
            self._over(at_ns, self._lost(exc))
        elif self.connection is not None:
            self.hang_up()

    def _lost(self, exc: BaseException | None) -> str:
        assert self._reply is not None
        if self._answered and not self._reply.begun:
            # it may have closed before the request came; nothing is sent twice, so the row says it
            return "the server closed a reused connection before it answered"
        return f"the connection was lost: {exc or 'the server closed it'}"

    def abandon(self) -> None:
        """Stop waiting for the reply and close the connection; ``ended`` is not called."""
        self._exchange = self._reply = self._ended = self._idle = None
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection for good."""
        connection, self.connection = self.connection, None
        if self.transport is not None:
            self.transport.abort()
        if connection is not None:
            connection.close()

    def _over(self, at_ns: int, lost: str | None) -> None:
        exchange, ended, idle = self._exchange, self._ended, self._idle
        assert exchange is not None
        assert ended is not None
        assert idle is not None
        reusable = lost is None and exchange.reply.reusable and self.is_connected()
        self._exchange = self._reply = self._ended = self._idle = None
        exchange.wire = None
        if reusable:
            self._answered = True
            self.idle_since_ns = at_ns
            idle(self)
        else:
            self.hang_up()
        ended(exchange, at_ns, lost)

    def _unasked(self, data: bytes) -> None:
        if self._parser is not None:
            # aiohttp is speaking CONNECT to a proxy on it
            super().data_received(data)
        else:
            # nobody asked: such a connection is out of step
            self.hang_up()
