"""Where words go: a terminal, a log, or nowhere. Losing it costs the words, never the run or its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console

PLAIN_WIDTH = 100


class Terminal(Console):
    """A console that falls silent when its pipe breaks or its disk is full."""

    def on_broken_pipe(self) -> None:
        """Fall silent; rich would exit with 1 here."""
        self._fall_silent()

    def print(self, *objects: Any, **how: Any) -> None:
        """Print as rich does; a stream that takes nothing more is not written to again."""
        try:
            super().print(*objects, **how)
        except OSError:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self.quiet = True
        unplug(self.file)


def terminal(*, stderr: bool = False) -> Terminal:
    """Return the console on standard output or error: its own width, or 100 plain columns where it is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Terminal(
        stderr=stderr,
        width=None if stream.isatty() else PLAIN_WIDTH,
        no_color=bool(os.environ.get("NO_COLOR")) or None,
    )


def unplug(stream: Any) -> None:
    """Lead the stream's descriptor to nowhere, so that what is buffered for it cannot fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def with_streams(work: Callable[[], int]) -> int:
    """Return what ``work`` returns, with standard streams that can be written to before, while and after."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    code = work()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            unplug(stream)
    return code


def _nowhere() -> TextIO:
    return open(os.devnull, "w")  # it is as long-lived as the stream that it stands in for
