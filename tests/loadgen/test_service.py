from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

import pytest

from loadgen.frames import Final, Frame, Hello, Inbox, Job, Progress, Quit, Stop, encode
from reports.rows import read_rows
from slas.evidence import Outcome
from tests.loadgen import server as serve
from tests.loadgen.playing import OPEN, SHORT
from tests.loadgen.server import Asked, serving

ROOT = Path(__file__).parents[2]
GENERATOR = (sys.executable, "-P", "-m", "loadgen.generator", "--channel")


class Child:
    """A generator of its own process, and our end of its channel."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket) -> None:
        self.process = process
        self._end = end
        self._inbox = Inbox()
        self._frames: list[Frame] = []

    async def say(self, frame: Frame) -> None:
        await asyncio.get_running_loop().sock_sendall(self._end, encode(frame))

    async def hear(self) -> Frame | None:
        while not self._frames:
            data = await asyncio.get_running_loop().sock_recv(self._end, 1 << 16)
            if not data:
                return None
            self._frames = self._inbox.feed(data)
        return self._frames.pop(0)

    async def final(self) -> Final:
        while True:
            frame = await self.hear()
            assert frame is not None, "the channel ended without a Final"
            if isinstance(frame, Final):
                return frame

    def hang_up(self) -> None:
        self._end.close()


@asynccontextmanager
async def generator() -> AsyncIterator[Child]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    process = await asyncio.create_subprocess_exec(
        *GENERATOR, str(theirs.fileno()), pass_fds=(theirs.fileno(),), cwd=ROOT
    )
    theirs.close()
    child = Child(process, ours)
    try:
        yield child
    finally:
        ours.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


def job(folder: Path, url: str, *, more: str = "", run: int = 0, lead_s: float = 0.3) -> Job:
    sheet = folder / "profile.yaml"
    limits = {"connect": "1s", "first_token": "5s", "idle": "5s", "total": "9s", "drain": "1s"}
    sheet.write_text(SHORT.format(tenants=OPEN, more=more, **limits))
    return Job(
        run=run,
        lane=0,
        lanes=1,
        worker="local",
        run_dir=str(folder),
        profile_path=str(sheet),
        seed=3,
        level_percent=100,
        quick=False,
        url=url,
        model="m",
        api_key_env=None,
        salt=f"salt{run}",
        start_ns=monotonic_ns() + int(lead_s * 1e9),
    )


def rows_of(folder: Path) -> Path:
    return folder / "requests" / "local-0.jsonl.gz"


async def test_it_says_hello_plays_job_after_job_and_ends_with_its_channel(tmp_path: Path) -> None:
    async with serving(serve.stream) as server, generator() as child:
        hello = await child.hear()
        assert isinstance(hello, Hello)
        assert (hello.pid, hello.loop) == (child.process.pid, "uvloop")
        assert "aiohttp" in hello.wire
        for run in (0, 1):
            await child.say(job(tmp_path, server.url, run=run))
            final = await child.final()
            assert (final.run, final.finished, final.invalid) == (run, True, ())
        child.hang_up()
        assert await child.process.wait() == 0
    rows = list(read_rows(rows_of(tmp_path)))
    assert {row.run for row in rows} == {0, 1}
    assert {row.outcome for row in rows} == {Outcome.COMPLETED}
    starts = {asked.body["messages"][0]["content"][:5] for asked in server.asked}
    assert starts == {"salt0", "salt1"}


async def test_quit_ends_it(tmp_path: Path) -> None:
    async with generator() as child:
        await child.hear()
        await child.say(Quit(exit_code=99))
        assert await child.process.wait() == 0


async def test_a_second_without_news_is_still_a_progress_frame(tmp_path: Path) -> None:
    async with serving(serve.stream) as server, generator() as child:
        await child.hear()
        await child.say(job(tmp_path, server.url, more=""))
        frames = []
        while not isinstance(frame := await child.hear(), Final):
            assert frame is not None
            frames.append(frame)
        assert frames
        assert all(isinstance(frame, Progress) for frame in frames)


async def test_a_job_that_cannot_be_begun_is_answered_and_the_next_one_played(
    tmp_path: Path,
) -> None:
    async with serving(serve.stream) as server, generator() as child:
        await child.hear()
        good = job(tmp_path, server.url)
        broken = tmp_path / "broken.yaml"
        broken.write_text("version: 1\ntenants: {}\n")
        await child.say(replace(good, profile_path=str(broken)))
        final = await child.final()
        assert not final.finished
        assert "tenants" in final.invalid[0]
        await child.say(replace(good, api_key_env="TAILGATE_TEST_NO_SUCH_KEY"))
        assert "TAILGATE_TEST_NO_SUCH_KEY" in (await child.final()).invalid[0]
        await child.say(replace(good, start_ns=monotonic_ns() + 200_000_000))
        assert (await child.final()).finished


async def test_stop_right_after_a_job_sends_nothing(tmp_path: Path) -> None:
    async with serving(serve.stream) as server, generator() as child:
        await child.hear()
        await child.say(job(tmp_path, server.url))
        await child.say(Stop(why="changed my mind"))
        final = await child.final()
        assert (final.finished, final.rows) == (False, 0)
        assert final.planned["chat"] >= 19
    assert server.asked == []


async def test_interrupts_are_controls_and_sigterm_is_a_stop(tmp_path: Path) -> None:
    async def slow(writer: asyncio.StreamWriter, asked: Asked) -> None:
        await serve.stream(writer, asked, gap_s=0.05)

    async with serving(slow) as server, generator() as child:
        await child.hear()
        await child.say(job(tmp_path, server.url))
        while not server.asked:
            await asyncio.sleep(0.01)
        child.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.1)
        child.process.send_signal(signal.SIGTERM)
        final = await child.final()
        assert not final.finished
        assert await child.process.wait() == 0
    rows = list(read_rows(rows_of(tmp_path)))
    assert rows
    assert {row.outcome for row in rows} <= {Outcome.COMPLETED, Outcome.UNSENT}


async def test_losing_control_mid_run_saves_the_rows_and_ends_at_once(tmp_path: Path) -> None:
    async def never(writer: asyncio.StreamWriter, asked: Asked) -> None:
        if len(server.asked) > 4:
            await asyncio.sleep(3600)
        await serve.stream(writer, asked)

    async with serving(never) as server, generator() as child:
        await child.hear()
        await child.say(job(tmp_path, server.url))
        while len(server.asked) < 8:
            await asyncio.sleep(0.01)
        child.hang_up()
        assert await child.process.wait() == 1
    rows = list(read_rows(rows_of(tmp_path)))
    assert len(rows) >= 8
    assert {row.outcome for row in rows} == {Outcome.COMPLETED, Outcome.TIMED_OUT}


async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    # a parent that starts a generator, lets us keep its channel open, and is killed
    code = (
        "import subprocess, sys, time;"
        f"subprocess.Popen({[*GENERATOR, str(theirs.fileno())]!r}, pass_fds=({theirs.fileno()},));"
        "time.sleep(60)"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, pass_fds=(theirs.fileno(),), cwd=ROOT
    )
    theirs.close()
    child = Child(parent, ours)
    hello = await child.hear()
    assert isinstance(hello, Hello)
    parent.kill()
    await parent.wait()
    assert await asyncio.wait_for(child.hear(), 10) is None
    ours.close()


@pytest.mark.parametrize("name", ["loadgen.generator.service", "loadgen.dialect"])
def test_neither_gevent_nor_locust_is_met(name: str) -> None:
    code = f"import sys, {name}; print([m for m in ('gevent', 'locust') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_patched_interpreter_is_refused() -> None:
    code = (
        "import sys, types; sys.modules['gevent'] = types.ModuleType('gevent');"
        "sys.argv = ['x', '--channel', '9']; from loadgen.generator.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ},
        check=False,
    )
    assert done.returncode != 0
    assert "gevent imported in a generator" in done.stderr
