"""A generator process, driven as control drives it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadgen.frames import Final, Frame, Hello, Inbox, Job, encode

ROOT = Path(__file__).parents[1]


@dataclass(slots=True)
class Generator:
    """A child and our end of its channel."""

    pid: int
    end: socket.socket
    inbox: Inbox
    frames: list[Frame]

    def hear(self) -> Frame:
        """Return its next frame. Raises ConnectionError if it is gone."""
        while not self.frames:
            data = self.end.recv(1 << 18)
            if not data:
                raise ConnectionError("the generator is gone")
            self.frames = self.inbox.feed(data)
        return self.frames.pop(0)

    def play(self, job: Job) -> Final:
        """Have it play a job and return its last word."""
        self.end.sendall(encode(job))
        while not isinstance(frame := self.hear(), Final):
            pass
        return frame


@contextmanager
def started() -> Iterator[Generator]:
    """Start a generator and end it with the block."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "loadgen.generator", "--channel", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        cwd=ROOT,
    )
    theirs.close()
    generator = Generator(pid=process.pid, end=ours, inbox=Inbox(), frames=[])
    try:
        hello = generator.hear()
        assert isinstance(hello, Hello), hello
        yield generator
    finally:
        ours.close()
        process.wait(timeout=10)
