"""A raw client and a server in this process, so that tests see every byte and every read."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from launchers.sim.fault import Faults
from launchers.sim.preset import FAST
from launchers.sim.server import Server, Settings

HOST = "127.0.0.1"
SETTINGS = Settings(
    host=HOST,
    port=0,
    preset=FAST,
    gpus=1,
    seed=0,
    models=("tailgate-sim",),
    policy="priority",
    keep_alive_ns=5_000_000_000,
    api_key=None,
    truth=None,
    faults=Faults(),
    unicode=False,
    die_after_ns=None,
    die_after_requests=None,
    die_status=1,
)


@asynccontextmanager
async def serving(
    *, faults: dict[str, Any] | None = None, send_bytes: int | None = None, **changes: Any
) -> AsyncIterator[int]:
    """A server with these settings, and with kernel buffers of ``send_bytes``; gives its port."""
    settings = replace(SETTINGS, faults=Faults(**faults or {}), **changes)
    listening = socket.socket()
    if send_bytes is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    listening.bind((HOST, 0))
    port: int = listening.getsockname()[1]
    task = asyncio.ensure_future(Server(settings).run(listening))
    await asyncio.sleep(0)
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: ``ended`` False when the connection was gone before it was whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    reads: tuple[bytes, ...]
    ended: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The data of the events, by the SSE specification; comments are left out."""
        lines = self.body.decode().replace("\r\n", "\n").split("\n")
        return [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events that are JSON."""
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [chunk["choices"][0] for chunk in self.chunks if chunk.get("choices")]

    @property
    def text(self) -> str:
        """All content, of a chat or a completion."""
        return "".join(
            choice["text"] if "text" in choice else choice["delta"].get("content", "")
            for choice in self.choices
        )


class Connection:
    """One connection, kept open for several requests; ``reads`` are kept as they came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def request(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Reply:
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        lines = [f"{method} {path} HTTP/1.1", "Host: sim", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        return await self.reply()

    async def reply(self) -> Reply:
        """The next reply, read to its end or to the connection's."""
        reads: list[bytes] = []
        data, self._buffer = self._buffer, b""
        while True:
            found = _whole(data)
            if found is not None:
                reply, self._buffer = found
                return replace(reply, reads=tuple(reads))
            try:
                read = await asyncio.wait_for(self._reader.read(1 << 16), 20)
            except ConnectionError:
                read = b""
            if not read:
                head, _, rest = data.partition(b"\r\n\r\n")
                status, headers = _head(head) if head else (0, {})
                return Reply(status, headers, _dechunk(rest)[0], tuple(reads), ended=False)
            reads.append(read)
            data += read

    async def closed(self) -> bool:
        """Whether the server closes, waiting for it."""
        try:
            return await asyncio.wait_for(self._reader.read(1), 20) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Drop the connection with an RST."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection to the server on ``port``."""
    connection = Connection(*await asyncio.open_connection(HOST, port))
    try:
        yield connection
    finally:
        await connection.close()


async def ask(
    port: int,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """One request on a connection of its own."""
    async with connected(port) as connection:
        return await connection.request(method, path, body, headers)


def chat(tokens: int, prompt: str = "hello there", **options: Any) -> dict[str, Any]:
    """A streaming chat body for exactly ``tokens`` tokens with usage at the end."""
    return {
        "model": "tailgate-sim",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    } | options


async def stream(port: int, tokens: int, **options: Any) -> Reply:
    """A streamed chat."""
    return await ask(port, "POST", "/v1/chat/completions", chat(tokens, **options))


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}


def _whole(data: bytes) -> tuple[Reply, bytes] | None:
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    status, headers = _head(head)
    if headers.get("transfer-encoding") == "chunked":
        if b"\r\n0\r\n\r\n" not in rest:
            return None
        body, rest, ended = _dechunk(rest)
        return (Reply(status, headers, body, (), ended=True), rest) if ended else None
    length = int(headers.get("content-length", "0"))
    if len(rest) < length:
        return None
    return Reply(status, headers, rest[:length], (), ended=True), rest[length:]


def _dechunk(data: bytes) -> tuple[bytes, bytes, bool]:
    """What the whole chunks in ``data`` hold, what follows, and whether the last chunk was there."""
    body = b""
    while True:
        size, found, rest = data.partition(b"\r\n")
        if not found:
            return body, data, False
        length = int(size, 16)
        if len(rest) < length + 2:
            return body, data, False
        assert rest[length : length + 2] == b"\r\n"
        body += rest[:length]
        data = rest[length + 2 :]
        if length == 0:
            return body, data, True
