"""Processes of a test, found by a word in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

NAME = "TAILGATE_TEST_MARK"


def living(mark: str) -> list[int]:
    """Return the live processes that carry the mark; zombies have no environment left to carry it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if f"{NAME}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def eventually(holds: Callable[[], bool], within_s: float = 30.0) -> bool:
    """Wait until something holds; the limit is for a machine that is far too busy."""
    until_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def marked() -> Iterator[str]:
    """Give a new mark, and kill whatever still carries it at the end of the test."""
    mark = uuid4().hex
    try:
        yield mark
    finally:
        for pid in living(mark):
            os.kill(pid, signal.SIGKILL)
