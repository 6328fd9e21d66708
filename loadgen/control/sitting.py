"""The sitting: one conversation with a tailgate process, from its first job to its exit code.

tailgate speaks jobs and stops, which go to the generators; what generators say goes up to it unchanged. The
verdict is tailgate's alone: locust's process takes over the exit code and adds nothing to it.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import gevent
from gevent import Greenlet
from gevent.event import Event
from gevent.subprocess import DEVNULL, Popen, TimeoutExpired

from loadgen.control.channel import Channel, ChannelError
from loadgen.control.crew import Crew, exit_words
from loadgen.frames import Frame, Job, Lost, Progress, Quit, Stop

TAILGATE: Sequence[str] = (sys.executable, "-P", "-m", "tailgate")
# After its last word tailgate may still stop an engine and write reports.
TAILGATE_GONE_WITHIN_S = 120.0
TERMINATED_WITHIN_S = 30.0
BUG = 1

log = logging.getLogger(__name__)


class Sitting:
    """A conversation over ``channel`` with ``generators`` generators behind us.

    ``record`` sees every ``Progress``; ``on_end`` is called once, in a greenlet of ours, when ``exit_code`` is
    known and no generator is left. ``process`` is the tailgate process if we started it.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        generators: int,
        record: Callable[[Progress], None],
        on_end: Callable[[Sitting], None],
        process: Popen | None = None,
    ) -> None:
        self.exit_code = BUG
        self.over = Event()
        self._channel = channel
        self._process = process
        self._record = record
        self._on_end = on_end
        self._signum: signal.Signals | None = None
        self._asked: Stop | None = None
        self._sent: set[int] = set()
        self._job_seen = False
        self._faulty = False
        self._crew = Crew(generators, up=self._up, on_fault=self._on_fault)
        gevent.spawn(self._converse).link_exception(self._on_fault)

    @classmethod
    def adopt(
        cls,
        descriptor: int,
        *,
        generators: int,
        record: Callable[[Progress], None],
        on_end: Callable[[Sitting], None],
    ) -> Sitting:
        """Sit with the tailgate process that started us. Raises OSError if ``descriptor`` is no socket."""
        return cls(Channel.adopt(descriptor), generators=generators, record=record, on_end=on_end)

    @classmethod
    def summon(
        cls,
        arguments: Sequence[str],
        *,
        generators: int,
        record: Callable[[Progress], None],
        on_end: Callable[[Sitting], None],
    ) -> Sitting:
        """Start ``tailgate run`` with the arguments and sit with it."""
        ours, theirs = Channel.pair()
        process = Popen(
            [*TAILGATE, "run", "--for-locust", str(theirs.fileno()), *arguments],
            pass_fds=(theirs.fileno(),),
            stdin=DEVNULL,
            # Ctrl-C reaches tailgate as our word, so that the drain is not raced by the terminal
            start_new_session=True,
        )
        theirs.close()
        return cls(ours, generators=generators, record=record, on_end=on_end, process=process)

    def stop(self, why: str) -> None:
        """Ask tailgate to end the run early; ``over`` follows when it has drained and ruled."""
        self._asked = Stop(why=why)
        if self._process is not None and not self._job_seen:
            # it may be waiting for an engine, deaf to frames
            self._signal(self._process, signal.SIGINT)
        else:
            self._up(self._asked)

    def interrupt(self, signum: signal.Signals) -> None:
        """End the sitting for a signal; the exit code will be 128 + ``signum``. The second time, do not drain."""
        again = self._signum is not None
        self._signum = self._signum or signum
        self._asked = Stop(why="Ctrl-C" if signum == signal.SIGINT else signum.name)
        if self._process is not None:
            # tailgate drains at the first and not at the second, and tells its report what came
            self._signal(self._process, signum)
        elif again:
            self._crew.kill()
        else:
            self._up(self._asked)

    def fault(self, why: str) -> None:
        """Tell tailgate of a fault of ours: its run is INVALID, and this process exits with 1."""
        self._faulty = True
        self._up(Lost(worker="control", why=why))

    def _signal(self, process: Popen, signum: signal.Signals) -> None:
        self._sent.add(signum)
        process.send_signal(signum)

    def _up(self, frame: Frame) -> None:
        with suppress(ChannelError):  # _converse reads EOF and ends the sitting
            self._channel.send(frame)
        if isinstance(frame, Progress):
            self._record(frame)

    def _on_fault(self, greenlet: Greenlet) -> None:
        self.fault(f"a bug in control: {greenlet.exception!r}")

    def _converse(self) -> None:
        said: int | None = None
        try:
            said = self._listen()
        except ValueError as fault:
            log.error("tailgate spoke no frame: %s", fault)
        finally:
            # whatever happened, who waits for the end must hear of it
            try:
                self._crew.close()
                self._channel.close()
                self.exit_code = self._ruled(said)
            finally:
                self.over.set()
                self._on_end(self)

    def _listen(self) -> int | None:
        """Pass tailgate's words on; return its exit code, or None if it fell silent without one."""
        for frame in self._channel.frames():
            match frame:
                case Job():
                    self._crew.route(frame)
                    if self._asked is not None and not self._job_seen:
                        self._up(self._asked)  # a signal may be lost on a process that is starting
                    self._job_seen = True
                case Stop():
                    self._crew.broadcast(frame)
                case Quit():
                    return frame.exit_code
                case _:
                    raise ValueError(f"{type(frame).__name__} is not tailgate's to say")
        return None

    def _ruled(self, said: int | None) -> int:
        code = said
        if self._process is not None:
            code = self._adopted(self._process, said)
        elif said is None:
            log.error(
                "the tailgate process is gone without a verdict; its run directory has what was measured"
            )
        if code is None or self._faulty:
            return BUG
        return code if self._signum is None or code == BUG else 128 + self._signum

    def _adopted(self, process: Popen, said: int | None) -> int | None:
        """Return the exit code of the tailgate process we started; both its word and its status must be 0 to pass."""
        try:
            status: int = process.wait(TAILGATE_GONE_WITHIN_S)
        except TimeoutExpired:
            log.error("the tailgate process (pid %d) hangs: ending it", process.pid)
            process.terminate()
            try:
                process.wait(TERMINATED_WITHIN_S)
            except TimeoutExpired:
                process.kill()
                process.wait()
            return None
        if -status in self._sent:
            return 128 - status  # it was still too young to say so itself
        if status < 0:
            log.error(
                "the tailgate process %s; its run directory has what was measured",
                exit_words(status),
            )
            return None
        if status == 0 and said is None:
            log.error("the tailgate process exited with status 0 and without a verdict")
            return None
        return status or said
