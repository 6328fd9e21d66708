"""Ctrl-C and SIGTERM: an exception where nothing must be drained, a fact to look at where something must."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Self

from tailgate.exits import Exit


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM came at a time when there is nothing to drain."""

    def __init__(self, signum: int) -> None:
        self.exit = Exit.INTERRUPTED if signum == signal.SIGINT else Exit.TERMINATED
        super().__init__(signal.Signals(signum).name)


class Interruption:
    """SIGINT and SIGTERM as a fact to look at while traffic flows, and an exception before and after.

    A second signal while traffic drains is an exception too: the person does not want to wait.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._draining_allowed = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[signum] = signal.signal(signum, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Within, the first signal is only noted in ``signum``."""
        self._draining_allowed = True
        try:
            yield
        finally:
            self._draining_allowed = False

    @property
    def exit(self) -> Exit | None:
        """The exit code that the signal asks for, or None if none came."""
        return None if self.signum is None else Interrupted(self.signum).exit

    def _came(self, signum: int, _frame: FrameType | None) -> None:
        first = self.signum is None
        self.signum = signum
        if not (first and self._draining_allowed):
            raise Interrupted(signum)
