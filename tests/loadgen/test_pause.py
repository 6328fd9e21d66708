"""A pause of ours is no fault of the engine's: what arrived meanwhile is read before a limit is enforced."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from loadgen.generator.connections import Connections
from loadgen.generator.wire import Wire
from slas.evidence import Outcome
from tests.loadgen import server as serve
from tests.loadgen.playing import Played, play
from tests.loadgen.server import serving

PAUSE_S = 0.9
ONE = "  chat: {rate: 10/s, arrivals: {model: constant}, prompt_tokens: 8, output_tokens: 40}"
# half the pause; a host that is short of cores may hold the server up for less than that
LIMITS = {"connect": "450ms", "first_token": "450ms", "idle": "450ms", "total": "30s"}
Run = Callable[[Coroutine[Any, Any, Played]], Played]


@contextmanager
def apart(behave: serve.Behaviour) -> Iterator[str]:
    """Serve from a thread of its own, which our pause does not hold up; yield the URL."""
    loop = asyncio.new_event_loop()
    over = asyncio.Event()
    urls: list[str] = []
    ready = threading.Event()

    async def run() -> None:
        async with serving(behave) as server:
            urls.append(server.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("again", [1, 2])
def test_a_stream_goes_on_after_a_pause_of_ours(tmp_path: Path, run: Run, again: int) -> None:
    async def scenario(url: str) -> Played:
        # a pause while sockets are read: the timers come next, before the sockets are looked at again
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()

        def pause() -> None:
            theirs.recv(1)
            time.sleep(PAUSE_S)

        with ours, theirs:
            loop.add_reader(theirs, pause)
            for number in range(again):
                loop.call_later(0.35 + number * (PAUSE_S + 0.03), ours.send, b"x")
            played = await play(tmp_path, url, tenants=ONE, timeouts=LIMITS, drain="20s")
            loop.remove_reader(theirs)
        return played

    with apart(partial(serve.stream, gap_s=0.05)) as url:
        played = run(scenario(url))
    assert played.rows
    assert {(row.outcome, row.stage) for row in played.rows} == {(Outcome.COMPLETED, None)}
    lag_ns = max(delay for sample in played.health for delay in sample.loop_lag_ns)
    assert lag_ns > PAUSE_S * 0.8e9, "the pause itself is told"


def test_a_connection_that_was_made_in_a_pause_of_ours_is_used(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Connections.open
    paused: list[int] = []

    async def none(*_: object) -> None:
        return None

    async def late(self: Connections) -> Wire:
        if not paused:
            paused.append(1)
            asyncio.get_running_loop().call_soon(time.sleep, PAUSE_S)
        return await real(self)

    monkeypatch.setattr(Connections, "fill", none)
    monkeypatch.setattr(Connections, "open", late)
    with apart(serve.stream) as url:
        played = run(play(tmp_path, url, tenants=ONE, timeouts=LIMITS, drain="20s"))
    assert paused
    assert {(row.outcome, row.stage) for row in played.rows} == {(Outcome.COMPLETED, None)}
    assert max(row.connect_ns or 0 for row in played.rows) > PAUSE_S * 0.8e9
