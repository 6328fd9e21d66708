"""The generators of one locust process: started, spoken to by lane, watched, ended.

They are clean interpreters of their own (``subprocess``, never fork alone), so that neither gevent's patches nor
the web page's work disturb their timing, and so that a crash of one is seen at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import gevent
from gevent import Greenlet
from gevent.subprocess import DEVNULL, Popen, TimeoutExpired

from loadgen.control.channel import Channel, ChannelError
from loadgen.frames import Final, Frame, Job, Lost, Stop

GENERATOR: Sequence[str] = (sys.executable, "-P", "-m", "loadgen.generator")
# A generator with a job speaks every second; one that says nothing for so long hangs.
SILENCE_S = 30
EXIT_WITHIN_S = 0.5
GONE_WITHIN_S = 5.0
STDERR = 2


@dataclass(slots=True)
class Generator:
    """One child and what is known of it; ``fault`` is why we ended it ourselves."""

    lane: int
    process: Popen
    channel: Channel
    worker: str = "local"
    busy: bool = False
    silent_s: int = 0
    fault: str | None = None
    lost: Lost | None = None


class Crew:
    """``size`` generators, one a lane. What they say goes to ``up`` unchanged; a crash becomes ``Lost``.

    ``on_fault`` gets a greenlet of ours that ended by an exception: a bug, never the engine's doing.
    """

    def __init__(
        self,
        size: int,
        *,
        up: Callable[[Frame], None],
        on_fault: Callable[[Greenlet], None],
    ) -> None:
        self._up = up
        self._on_fault = on_fault
        self._closing = False
        self._generators = [self._start(lane) for lane in range(size)]
        for generator in self._generators:
            self._spawn(self._listen, generator)
        self._watch = self._spawn(self._watch_silence)

    def route(self, job: Job) -> None:
        """Give a job to the generator of its lane; if that one is gone, say ``Lost`` (again).

        Raises ValueError if there is no such lane.
        """
        if not 0 <= job.lane < len(self._generators):
            raise ValueError(
                f"a job for lane {job.lane}, but lanes are 0..{len(self._generators) - 1}"
            )
        generator = self._generators[job.lane]
        if generator.lost is not None:
            self._up(generator.lost)
            return
        generator.worker = job.worker
        generator.busy = True
        generator.silent_s = 0
        self._tell(generator, job)

    def broadcast(self, stop: Stop) -> None:
        """Tell every generator that is left to stop."""
        for generator in self._generators:
            if generator.lost is None:
                self._tell(generator, stop)

    def kill(self) -> None:
        """Kill every generator at once: each becomes ``Lost``, what is on disk stays."""
        for generator in self._generators:
            generator.fault = generator.fault or "was not waited for after a second interrupt"
            generator.process.kill()

    def close(self) -> None:
        """End every generator and return when none is left; may be called twice."""
        self._closing = True
        self._watch.kill()
        for generator in self._generators:
            generator.channel.close()
        with gevent.Timeout(GONE_WITHIN_S, exception=False):
            for generator in self._generators:
                generator.process.wait()
        for generator in self._generators:
            generator.process.kill()
            generator.process.wait()

    def _start(self, lane: int) -> Generator:
        ours, theirs = Channel.pair()
        process = Popen(
            [*GENERATOR, "--channel", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=DEVNULL,
            stdout=STDERR,
            # a terminal's Ctrl-C is not for generators, not even before they can ignore it
            start_new_session=True,
        )
        theirs.close()
        return Generator(lane=lane, process=process, channel=ours)

    def _spawn(self, work: Callable[..., None], *args: object) -> Greenlet:
        greenlet = gevent.spawn(work, *args)
        greenlet.link_exception(self._on_fault)
        return greenlet

    def _tell(self, generator: Generator, frame: Frame) -> None:
        with suppress(ChannelError):  # its listener reads EOF and says Lost with the exit status
            generator.channel.send(frame)

    def _listen(self, generator: Generator) -> None:
        try:
            for frame in generator.channel.frames():
                generator.silent_s = 0
                if isinstance(frame, Final):
                    generator.busy = False
                self._up(frame)
        except ValueError as fault:
            generator.fault = f"spoke no frame ({fault})"
        if not self._closing:
            self._lose(generator)

    def _lose(self, generator: Generator) -> None:
        try:
            generator.process.wait(EXIT_WITHIN_S)
        except TimeoutExpired:
            generator.fault = generator.fault or "closed its channel and went on"
            generator.process.kill()
            generator.process.wait()
        ended = exit_words(generator.process.returncode)
        why = ended if generator.fault is None else f"{generator.fault}; {ended}"
        generator.lost = Lost(
            worker=f"{generator.worker}-{generator.lane}", why=f"the generator {why}"
        )
        self._up(generator.lost)

    def _watch_silence(self) -> None:
        # Counting our own seconds, not the clock's: when this process is starved, so is its reading.
        while True:
            gevent.sleep(1)
            for generator in self._generators:
                if generator.busy and generator.lost is None:
                    generator.silent_s += 1
                    if generator.silent_s == SILENCE_S:
                        generator.fault = f"said nothing for {SILENCE_S} s"
                        generator.process.kill()


def exit_words(status: int) -> str:
    """Return how a process ended, from its ``returncode``: negative is the signal that killed it."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"
