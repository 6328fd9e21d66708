"""Sending when due: absolute instants, never a sleep after a sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from loadgen.generator.clock import alarm

LEAD_NS: Final = 80_000


class Pacer:
    """Calls ``fire(now_ns)`` at the instant it was last armed for.

    It wakes 80 us early and spins for the rest: a wake-up takes about that long, and takes it before the
    instant, not after. ``fire`` arms it again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[int], None]) -> None:
        self._fire = fire
        self._due_ns: int | None = None
        self._alarm = alarm(loop, self._wake)

    def arm(self, due_ns: int) -> None:
        """Fire at this instant of the monotonic clock, in ns; soon if it has passed."""
        if due_ns != self._due_ns:
            self._due_ns = due_ns
            self._alarm.arm(due_ns - LEAD_NS)

    def rest(self) -> None:
        """Fire no more until armed again."""
        self._due_ns = None

    def _wake(self) -> None:
        due_ns = self._due_ns
        if due_ns is None:
            return
        now_ns = monotonic_ns()
        if now_ns < due_ns - LEAD_NS:
            # a coarse timer woke too early
            self._alarm.arm(due_ns - LEAD_NS)
            return
        while now_ns < due_ns:
            now_ns = monotonic_ns()
        self._due_ns = None
        self._fire(now_ns)

    def close(self) -> None:
        """Fire never again."""
        self._due_ns = None
        self._alarm.close()
