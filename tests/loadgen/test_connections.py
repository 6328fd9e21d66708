"""What the wire needs from aiohttp below ClientSession, held for the pinned versions."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic_ns

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from loadgen.dialect import dialect
from loadgen.generator import connections as module
from loadgen.generator.connections import KEEP_NS, Connections
from loadgen.generator.exchange import Exchange, judge
from loadgen.generator.reply import Reply, marks
from loadgen.generator.target import Target, request
from loadgen.generator.wire import Wire
from profiles.schedule import PlannedRequest
from reports.rows import read_rows
from slas.evidence import Outcome
from tests.loadgen import server as serve
from tests.loadgen.server import serving
from tests.loadgen.test_service import generator, job, rows_of

PEM = Path(__file__).parent / "fixtures" / "localhost.pem"  # self-signed, for these tests alone


@asynccontextmanager
async def connections(url: str) -> AsyncIterator[Connections]:
    made = Connections(url, connect_ns=1_000_000_000)
    try:
        yield made
    finally:
        await made.close()


def exchange(url: str) -> Exchange:
    spoken = dialect("chat")
    planned = PlannedRequest(
        due_ns=0,
        tenant="chat",
        ordinal=0,
        session="s",
        turn=0,
        think_ns=0,
        burst=False,
        prompt_tokens=1,
        output_tokens=3,
    )
    body = spoken.body(model="m", prompt="hi", output_tokens=3)
    data = request(Target(url=url, model="m").head(spoken), body, "id/1")
    return Exchange(planned, monotonic_ns(), data, Reply(spoken, marks(spoken), asked=3))


async def converse(wire: Wire, made: Exchange, keep: Connections) -> str | None:
    over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    wire.begin(made, lambda _exchange, _at, lost: over.set_result(lost), keep.give)
    return await asyncio.wait_for(over, 5)


def test_the_hooks_that_the_wire_uses_are_there() -> None:
    assert aiohttp.__version__.startswith("3.14."), "pinned in pyproject.toml"
    for name in ("transport", "force_close", "is_connected", "connection_lost", "data_received"):
        assert hasattr(ResponseHandler, name)
    assert issubclass(Wire, ResponseHandler)


async def test_the_connector_makes_our_wire_and_two_exchanges_share_it() -> None:
    async with serving(serve.stream) as server, connections(server.url) as pool:
        assert pool.take() is None
        wire = await pool.open()
        assert isinstance(wire, Wire)
        for _ in range(2):
            made = exchange(server.url)
            assert await converse(wire, made, pool) is None
            assert judge(made.reply).outcome is Outcome.COMPLETED
            assert len(made.reply.stamps) == 3
            assert pool.take() is wire
        assert [asked.number for asked in server.asked] == [0, 1]


async def test_more_than_a_hundred_connections_at_once() -> None:
    async with serving(serve.stream) as server, connections(server.url) as pool:
        await pool.fill(150)
        assert pool.idle == 150
        taken = [pool.take() for _ in range(150)]
        assert None not in taken
        assert pool.take() is None


async def test_idle_connections_take_turns_and_old_ones_are_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(serve.stream) as server, connections(server.url) as pool:
        await pool.fill(3)
        turns = []
        for _ in range(6):
            wire = pool.take()
            assert wire is not None
            turns.append(wire)
            pool.give(wire)
        assert len(set(turns)) == 3
        assert turns[:3] == turns[3:]
        now_ns = monotonic_ns()
        monkeypatch.setattr(module, "monotonic_ns", lambda: now_ns + KEEP_NS + 1)
        assert pool.take() is None
        assert pool.idle == 0


async def test_idle_connections_are_closed_when_old_or_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(serve.stream) as server, connections(server.url) as pool:
        await pool.fill(3)
        pool.prune()
        assert pool.idle == 3
        now_ns = monotonic_ns()
        monkeypatch.setattr(module, "monotonic_ns", lambda: now_ns + KEEP_NS + 1)
        pool.prune()
        assert pool.idle == 0


async def test_a_connection_closed_by_the_server_while_idle_is_passed_over() -> None:
    async with serving(serve.stream) as server, connections(server.url) as pool:
        await pool.fill(1)
    # the server is gone now; its end of the connection was closed with it
    assert pool.take() is None


async def test_words_that_nobody_asked_for_close_the_connection() -> None:
    async def twice(writer: asyncio.StreamWriter, asked: serve.Asked) -> None:
        await serve.stream(writer, asked)
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")

    async with serving(twice) as server, connections(server.url) as pool:
        wire = await pool.open()
        await converse(wire, exchange(server.url), pool)
        await asyncio.sleep(0.1)
        assert pool.take() is None


async def test_filling_stops_at_the_first_refusal() -> None:
    async with serving(serve.stream) as server:
        url = server.url
    async with connections(url) as pool:
        await pool.fill(50)
        assert pool.idle == 0
        with pytest.raises((OSError, aiohttp.ClientError)):
            await pool.open()


async def test_an_abandoned_exchange_closes_its_connection_and_is_not_reported() -> None:
    async def never(writer: asyncio.StreamWriter, asked: serve.Asked) -> None:
        await asyncio.sleep(3600)

    async with serving(never) as server, connections(server.url) as pool:
        wire = await pool.open()
        ended: list[object] = []
        wire.begin(exchange(server.url), lambda *words: ended.append(words), pool.give)
        await asyncio.sleep(0.02)
        wire.abandon()
        await asyncio.sleep(0.02)
        assert not wire.is_connected()
        assert ended == []


def tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(PEM)
    return context


@pytest.mark.parametrize("trusted", [True, False])
async def test_https_verifies_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    async with serving(serve.stream, tls=tls()) as server, generator() as child:
        await child.hear()
        await child.say(job(tmp_path, server.url))
        assert (await child.final()).finished
    rows = list(read_rows(rows_of(tmp_path)))
    assert rows
    if trusted:
        assert {row.outcome for row in rows} == {Outcome.COMPLETED}
    else:
        assert {(row.outcome, row.stage) for row in rows} == {(Outcome.REFUSED, "connect")}
        assert all("certificate" in (row.why or "").lower() for row in rows)


async def test_a_reused_connection_that_closes_unanswered_says_so() -> None:
    async def once(writer: asyncio.StreamWriter, asked: serve.Asked) -> None:
        if asked.number == 0:
            await serve.stream(writer, asked)
        else:
            writer.close()

    async with serving(once) as server, connections(server.url) as pool:
        wire = await pool.open()
        assert await converse(wire, exchange(server.url), pool) is None
        assert pool.take() is wire
        lost = await converse(wire, exchange(server.url), pool)
        assert lost == "the server closed a reused connection before it answered"
