"""A generator's life: say hello, play the jobs that come one after another, and never end in silence."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

from loadgen.frames import Final, Frame, Hello, Job, Quit, Stop
from loadgen.generator.channel import Channel
from loadgen.generator.connections import WIRE
from loadgen.generator.player import Player
from loadgen.generator.target import Target
from profiles.profile import Profile, read_profile
from profiles.sheet import SheetError
from reports.fault import PaperError

log = logging.getLogger(__name__)

ENDED = 0
FAILED = 1


@dataclass(slots=True)
class _Waiting:
    """A job that has not begun; ``stop`` is why it never will."""

    job: Job
    stop: str | None = None


class Service:
    """Serves one channel until it ends; ``run`` returns the exit status."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parent = os.getppid()
        self._channel: Channel | None = None
        self._player: Player | None = None
        self._waiting: deque[_Waiting] = deque()
        self._news = asyncio.Event()
        self._leave: str | None = None
        self._status = ENDED

    async def run(self, descriptor: int) -> int:
        """Play every job that comes over the socket; return 0 unless something of ours failed."""
        self._loop.set_exception_handler(self._on_exception)
        self._loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        self._channel = await Channel.adopt(descriptor, self._hear, self._gone)
        self._channel.send(
            Hello(pid=os.getpid(), loop=type(self._loop).__module__.split(".")[0], wire=WIRE)
        )
        while True:
            await self._news.wait()
            while self._waiting:
                # it stays in the queue, where a stop finds it, until it has been answered
                self._channel.send(await self._play(self._waiting[0]))
                self._waiting.popleft()
                if self._status:
                    return self._end()
            if self._leave is not None:
                return self._end()
            self._news.clear()

    def _end(self) -> int:
        assert self._channel is not None
        self._channel.close()
        return self._status

    async def _play(self, waiting: _Waiting) -> Final:
        job = waiting.job
        try:
            profile = await asyncio.to_thread(_profile, job)
            assert self._channel is not None
            player = Player(job, profile, _target(job), self._channel.send)
        except (SheetError, PaperError, LookupError, ValueError) as fault:
            return _unplayed(job, f"the job could not be begun: {fault}")
        except Exception as fault:  # noqa: BLE001  # the door: whatever it was, control is told
            self._blame(fault)
            return _unplayed(job, f"a bug in the generator: {fault!r}")
        self._player = player
        try:
            if waiting.stop is not None:
                player.stop(waiting.stop)
            final = await player.play()
            if player.bug is not None:
                self._status = FAILED
                log.error("%s", player.bug)
        except Exception as fault:  # noqa: BLE001  # the door: whatever it was, control is told
            self._blame(fault)
            player.fault(fault, "playing")
            player.abandon("a bug in the generator")
            return _unplayed(job, f"a bug in the generator: {fault!r}", rows=player.rows)
        finally:
            self._player = None
        return final

    def _blame(self, fault: BaseException) -> None:
        self._status = FAILED
        log.error("a bug in the generator", exc_info=fault)

    # ---- what may happen at any time

    def _hear(self, frame: Frame) -> None:
        match frame:
            case Job():
                self._waiting.append(_Waiting(job=frame))
            case Stop(why=why):
                self._stop(why)
            case Quit():
                self._leave = "the sitting is over"
                self._stop("the sitting is over")
            case _:
                self._gone(f"control said {type(frame).__name__}, which is ours to say")
        self._news.set()

    def _stop(self, why: str) -> None:
        for waiting in self._waiting:
            waiting.stop = why
        if self._player is not None:
            self._player.stop(why)

    def _on_sigterm(self) -> None:
        if os.getppid() != self._parent:
            self._gone("the parent process is gone")
            return
        self._leave = "SIGTERM"
        self._stop("SIGTERM")
        self._news.set()

    def _gone(self, why: str) -> None:
        """Nobody is left to play for: save the rows and end at once."""
        if self._player is not None:
            self._player.abandon(why)
            log.error("%s; ended in the middle of a run", why)
            os._exit(FAILED)
        for waiting in self._waiting:
            waiting.stop = why
        self._leave = why
        self._news.set()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        message = context["message"]
        if fault is None or isinstance(fault, OSError):
            # a transport's own fault: the exchange on it hears of it as a lost connection
            log.warning("%s: %s", message, fault)
        elif self._player is not None:
            self._player.fault(fault, message)
        else:
            self._blame(fault)
            self._leave = "a bug in the generator"
            self._news.set()


def _profile(job: Job) -> Profile:
    profile, _ = read_profile(Path(job.profile_path))
    return profile.quick() if job.quick else profile


def _target(job: Job) -> Target:
    key = None
    if job.api_key_env is not None:
        key = os.environ.get(job.api_key_env)
        if key is None:
            raise LookupError(f"the environment variable {job.api_key_env} is not set")
    return Target(url=job.url, model=job.model, api_key=key)


def _unplayed(job: Job, why: str, *, rows: int = 0) -> Final:
    return Final(
        run=job.run,
        lane=job.lane,
        finished=False,
        rows=rows,
        planned={},
        end_ns=monotonic_ns(),
        invalid=(why,),
    )
