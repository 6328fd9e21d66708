"""HTTP/1.1 on one connection: requests in, whole replies and hand-made chunks out.

Written here and not taken from aiohttp.web for three reasons. A request is stamped when its bytes are read,
before any parsing or task switch, which is what the truth log needs. A token costs one write of prepared
bytes. And the faults have to cut connections and split bytes anywhere. What the simulator needs of HTTP is
little: Content-Length bodies, keep-alive, chunked replies. Anything else is refused with the proper status.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
_HEAD_BYTES_MOST = 64 * 1024
_BODY_BYTES_MOST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request as it came; header names are lower case, ``received_ns`` is when its last bytes were read."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    received_ns: int


class Connection(asyncio.Protocol):
    """One client connection, one request at a time; requests sent ahead wait in the buffer.

    ``serve`` is called with each request; ``mark`` is put into the head of every reply.
    """

    def __init__(
        self,
        serve: Callable[[Connection, HttpRequest], None],
        register: Callable[[Connection, bool], None],
        mark: str,
    ) -> None:
        self._serve = serve
        self._register = register
        self._mark = mark
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._buffer = b""
        self._busy = False
        self._keep = True
        self._continued = False
        self.idle_since_ns: int | None = time.monotonic_ns()
        self.lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the socket."""
        self._transport = cast("asyncio.Transport", transport)
        self._fd = transport.get_extra_info("socket").fileno()
        self._register(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever is answering that nobody listens any more."""
        self._fd = -1
        self._transport = None
        self._register(self, False)
        if self.lost is not None:
            self.lost()
            self.lost = None

    def data_received(self, data: bytes) -> None:
        """Stamp, then parse when a whole request is there."""
        now_ns = time.monotonic_ns()
        self._buffer = self._buffer + data if self._buffer else data
        self.idle_since_ns = None
        if not self._busy:
            self._parse(now_ns)

    def write(self, data: bytes) -> None:
        """Send ``data`` now, by the socket itself unless earlier bytes are still queued."""
        transport = self._transport
        if transport is None:
            return
        if self._fd >= 0 and not transport.get_write_buffer_size():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:  # the peer has gone; the loop will say so with connection_lost
                self._fd = -1
                transport.abort()
                return
            if sent == len(data):
                return
            data = data[sent:]
        transport.write(data)

    def reply(
        self,
        status: int,
        body: bytes,
        content_type: str | None = "application/json",
        extra: str = "",
    ) -> None:
        """Send a whole reply and wait for the next request."""
        head = self._head(status, content_type, f"content-length: {len(body)}\r\n{extra}")
        self.write(head + body)
        self.end()

    def start_stream(self) -> None:
        """Send the head of an event stream; chunks follow through ``write``, then ``end``."""
        self.write(
            self._head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked\r\n")
        )

    def end(self) -> None:
        """The reply is complete: close, or look for the next request."""
        self.lost = None
        self._busy = False
        if not self._keep:
            self.close()
            return
        self.idle_since_ns = time.monotonic_ns()
        if self._buffer and self._transport is not None:
            # not from within the caller's stack: a client that sends ahead must not nest us
            asyncio.get_running_loop().call_soon(self._parse_ahead)

    def close(self) -> None:
        """Close after what is queued has been sent."""
        self._fd = -1
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Drop the connection in the middle of whatever it was doing."""
        self._fd = -1
        if self._transport is not None:
            self._transport.abort()

    @property
    def peer(self) -> str:
        """The client's address."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if name else "unknown"

    def _head(self, status: int, content_type: str | None, extra: str) -> bytes:
        kind = f"content-type: {content_type}\r\n" if content_type else ""
        close = "" if self._keep else "connection: close\r\n"
        return (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n"
            f"server: tailgate-sim\r\nx-tailgate-simulated: {self._mark}\r\n{kind}{extra}{close}\r\n"
        ).encode()

    def _refuse(self, status: int, why: str) -> None:
        self._keep = False
        self._buffer = b""
        self._busy = True
        self.reply(status, f'{{"detail":"{why}"}}'.encode())

    def _parse_ahead(self) -> None:
        if not self._busy and self._buffer and self._transport is not None:
            self.idle_since_ns = None
            self._parse(time.monotonic_ns())

    def _parse(self, now_ns: int) -> None:
        buffer = self._buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(buffer) > _HEAD_BYTES_MOST:
                self._refuse(431, "Request Header Fields Too Large")
            return
        first, *lines = buffer[:end].decode("latin-1").split("\r\n")
        parts = first.split(" ")
        if len(parts) != 3:
            self._refuse(400, "Bad Request")
            return
        method, target, version = parts
        if version != "HTTP/1.1":
            self._refuse(505, "HTTP Version Not Supported")
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if "transfer-encoding" in headers:
            self._refuse(411, "The simulated engine reads bodies with a Content-Length only")
            return
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _BODY_BYTES_MOST:
            self._refuse(413, "Content Too Large")
            return
        whole = end + 4 + int(length)
        if len(buffer) < whole:
            if headers.get("expect", "").lower() == "100-continue" and not self._continued:
                self._continued = True
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self._buffer = buffer[whole:]
        self._busy = True
        self._continued = False
        self._keep = headers.get("connection", "").lower() != "close"
        self._serve(
            self,
            HttpRequest(
                method=method,
                path=target.partition("?")[0],
                headers=headers,
                body=buffer[end + 4 : whole],
                received_ns=now_ns,
            ),
        )
