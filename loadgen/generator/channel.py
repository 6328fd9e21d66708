"""Frames over the socket that control left us, on the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from loadgen.frames import Frame, Inbox, encode


class Channel(asyncio.Protocol):
    """Our end. ``hear`` takes every frame; ``gone`` is called once, when the other end is no more."""

    def __init__(self, hear: Callable[[Frame], None], gone: Callable[[str], None]) -> None:
        self._hear = hear
        self._gone = gone
        self._inbox = Inbox()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def adopt(
        cls, descriptor: int, hear: Callable[[Frame], None], gone: Callable[[str], None]
    ) -> Channel:
        """Take over an inherited, connected socket. Raises OSError if the descriptor is none."""
        end = socket.socket(fileno=descriptor)
        end.set_inheritable(False)
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(hear, gone), sock=end)
        return channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        """Hand on the frames that these bytes complete; a line that is none ends the conversation."""
        try:
            frames = self._inbox.feed(data)
        except ValueError as fault:
            self.close()
            self._gone(f"control spoke no frame: {fault}")
            return
        for frame in frames:
            self._hear(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that nobody listens any more."""
        self._transport = None
        self._gone("control is gone")

    def send(self, frame: Frame) -> None:
        """Send one frame; if the other end is gone, ``gone`` says so."""
        if self._transport is not None:
            self._transport.write(encode(frame))

    def close(self) -> None:
        """Send what is left, then end the conversation."""
        if self._transport is not None:
            self._transport.close()
