"""A server that does as it is told: streams, refuses, cuts, stalls, or says nothing at all."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True)
class Asked:
    """One request as the server saw it; ``number`` counts its connection's requests from 0."""

    connection: int
    number: int
    head: str
    body: dict[str, Any]
    at_ns: int


@dataclass(slots=True)
class Server:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0


Behaviour = Callable[[asyncio.StreamWriter, Asked], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def token(text: str = " a", finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def usage(prompt: int, completion: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counts})


async def stream(writer: asyncio.StreamWriter, asked: Asked, *, gap_s: float = 0.001) -> None:
    """Answer as planned: as many tokens as asked for, a chunk each."""
    count = asked.body["max_tokens"]
    writer.write(HEAD)
    for number in range(count):
        writer.write(chunk(token(finish="length" if number == count - 1 else None)))
        await asyncio.sleep(gap_s)
    writer.write(chunk(usage(7, count)) + chunk(event(b"[DONE]")) + LAST_CHUNK)


def reply(status: int, body: bytes, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    )
    return (head + more + "\r\n").encode() + body


@asynccontextmanager
async def serving(behave: Behaviour, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve on a free port of this host; every connection is closed at the end."""
    server = Server()
    talks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = server.connections
        server.connections += 1
        talk = asyncio.current_task()
        assert talk is not None
        talks.add(talk)
        number = 0
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                asked = Asked(connection, number, head, body, int(loop.time() * 1e9))
                server.asked.append(asked)
                number += 1
                await behave(writer, asked)
                await writer.drain()
        writer.transport.abort()

    listening = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listening.close()
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks)
