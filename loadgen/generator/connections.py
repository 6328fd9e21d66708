"""The open connections to one server: made by aiohttp's connector, kept by us, without a hidden limit.

Idle ones wait in a queue and are used in turn, so that steady traffic keeps all of them fresh and what a burst left
over grows old. None is used after ``KEEP_NS`` of idleness: servers of this kind close after 5 s, and a request sent
into that would be lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic_ns

import aiohttp
from aiohttp.client_reqrep import ClientRequest
from yarl import URL

from loadgen.generator.wire import Wire, factory

KEEP_NS = 4_000_000_000
AT_ONCE = 8
_UNLIMITED = aiohttp.ClientTimeout(total=None)
WIRE = f"http/1.1 on aiohttp {aiohttp.__version__}"


class Connections:
    """Connections to the server of ``url``, plain or TLS. Proxies in the environment are not used."""

    def __init__(self, url: str, *, connect_ns: int) -> None:
        loop = asyncio.get_running_loop()
        self._connector = aiohttp.TCPConnector(
            limit=0, use_dns_cache=True, ttl_dns_cache=None, force_close=True
        )
        self._connector._factory = factory(loop)  # type: ignore[assignment]  # a contract test holds it
        self._target = ClientRequest("POST", URL(url), loop=loop)
        self._connect_s = connect_ns / 1e9
        self._idle: deque[Wire] = deque()
        self.opened = 0

    def take(self) -> Wire | None:
        """Return an open connection at once, or None if there is none to be had without waiting."""
        oldest_ns = monotonic_ns() - KEEP_NS
        while self._idle:
            wire = self._idle.popleft()
            if not wire.is_connected():
                continue
            if wire.idle_since_ns >= oldest_ns:
                return wire
            wire.hang_up()
        return None

    def give(self, wire: Wire) -> None:
        """Keep a connection that is fit for another request."""
        self._idle.append(wire)

    async def open(self) -> Wire:
        """Make a new connection, however long that takes. Raises OSError or aiohttp.ClientError.

        The limit is the caller's to hold: a timer in here would go off after a pause of ours, before the loop
        could see that the connection had long been made.
        """
        connection = await self._connector.connect(self._target, [], _UNLIMITED)
        wire = connection.protocol
        assert isinstance(wire, Wire), "aiohttp's connector no longer makes our protocol"
        wire.connection = connection
        wire.idle_since_ns = monotonic_ns()
        self.opened += 1
        return wire

    @property
    def idle(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    async def fill(self, wanted: int) -> None:
        """Open connections, a few at a time, until ``wanted`` are idle or one cannot be made.

        A failure is left to the requests to meet and record: opening ahead is no request.
        """
        while (missing := wanted - len(self._idle)) > 0:
            made = await asyncio.gather(
                *(self._open_in_time() for _ in range(min(missing, AT_ONCE))),
                return_exceptions=True,
            )
            self._idle.extend(wire for wire in made if isinstance(wire, Wire))
            if any(
                isinstance(fault, OSError | aiohttp.ClientError | TimeoutError) for fault in made
            ):
                return
            for fault in made:
                if isinstance(fault, BaseException):
                    raise fault

    async def _open_in_time(self) -> Wire:
        async with asyncio.timeout(self._connect_s):
            return await self.open()

    def prune(self) -> None:
        """Close what has been idle for too long, and forget what the server closed."""
        oldest_ns = monotonic_ns() - KEEP_NS
        kept: deque[Wire] = deque()
        for wire in self._idle:
            if not wire.is_connected():
                continue
            if wire.idle_since_ns >= oldest_ns:
                kept.append(wire)
            else:
                wire.hang_up()
        self._idle = kept

    async def close(self) -> None:
        """Close every connection."""
        while self._idle:
            self._idle.pop().hang_up()
        await self._connector.close()
