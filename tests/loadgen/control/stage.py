"""A locust process on stage: started with fakes behind it, spoken to as tailgate does, watched to its end.

Locust patches the interpreter that imports it, so tests only ever run it as a process of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from loadgen.frames import Frame, Inbox, encode

from .fake_tailgate import job

HERE = Path(__file__).parent
WITHIN_S = 60.0
F = TypeVar("F", bound=Frame)


class Locust:
    """``locust --headless`` with the fake locustfile; with ``lanes``, the test is its tailgate."""

    def __init__(
        self, *arguments: str, lanes: int | None = None, environment: dict[str, Any] | None = None
    ) -> None:
        self.inbox = Inbox()
        self.heard: list[Frame] = []
        self.unread: list[Frame] = []
        descriptors: tuple[int, ...] = ()
        argv = [sys.executable, "-P", "-m", "locust", "-f", str(HERE / "fake_locustfile.py")]
        if lanes is not None:
            self.end, theirs = socket.socketpair()
            self.end.settimeout(WITHIN_S)
            descriptors = (theirs.fileno(),)
            argv += ["--headless", "--channel", str(theirs.fileno()), "--generators", str(lanes)]
        settings = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in (environment or {}).items()
        }
        # no pipe: whatever is left behind would hold it open, and the test would wait for that too
        descriptor, name = tempfile.mkstemp(prefix="locust-")
        self.words = Path(name)
        self.process = subprocess.Popen(
            [*argv, *arguments],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=descriptor,
            env={**os.environ, **settings},
        )
        os.close(descriptor)
        if lanes is not None:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.words.unlink()
        if hasattr(self, "end"):
            self.end.close()

    def say(self, frame: Frame) -> None:
        self.end.sendall(encode(frame))

    def play(self, *scripts: dict[str, Any], run: int = 1) -> None:
        """Give lane i the job that ``scripts[i]`` describes."""
        for lane, script in enumerate(scripts):
            self.say(job(lane, len(scripts), json.dumps(script), run))

    def frames(self) -> Iterator[Frame]:
        while True:
            while self.unread:
                frame = self.unread.pop(0)
                self.heard.append(frame)
                yield frame
            data = self.end.recv(1 << 16)
            if not data:
                return
            self.unread += self.inbox.feed(data)

    def hear(self, kind: type[F], count: int = 1) -> list[F]:
        """Return the next ``count`` frames of a kind; others go by into ``heard``."""
        found: list[F] = []
        for frame in self.frames():
            if isinstance(frame, kind):
                found.append(frame)
                if len(found) == count:
                    return found
        raise AssertionError(f"locust closed the channel after {self.heard}")

    def ended(self) -> tuple[int, str]:
        """Return the exit status and what was written to stderr."""
        status = self.process.wait(WITHIN_S)
        return status, self.words.read_text()


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:.0f} s: {what}"
        time.sleep(0.02)
