"""The instrument's own health: how late the loop wakes, and what the host did to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Final

from loadgen.generator.clock import alarm

EVERY_NS: Final = 20_000_000
_SCHEDSTAT = Path("/proc/self/schedstat")
_STAT = Path("/proc/stat")
_STEAL = 8  # the eighth count of the cpu line, proc_stat(5)


class Probe:
    """Measures how late the event loop serves a wake-up that was due every 20 ms.

    A loop that is held up over several of them owes one delay to each, as each would have seen it: one long
    delay alone would count as little as a short one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ns: int) -> None:
        self._delays_ns: list[int] = []
        self._next_ns = start_ns
        self._alarm = alarm(loop, self._wake)
        self._alarm.arm(start_ns)

    def _wake(self) -> None:
        now_ns = monotonic_ns()
        while self._next_ns <= now_ns:
            self._delays_ns.append(now_ns - self._next_ns)
            self._next_ns += EVERY_NS
        self._alarm.arm(self._next_ns)

    def take(self) -> tuple[int, ...]:
        """Return the delays since the last call, in ns."""
        delays, self._delays_ns = self._delays_ns, []
        return tuple(delays)

    def close(self) -> None:
        """Measure no more."""
        self._alarm.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the kernel has counted so far: this process's wait for a core (ns), stolen and all ticks of the CPUs."""

    run_queue_ns: int | None
    stolen: int | None
    ticks: int | None


def look() -> Host:
    """Read the kernel's counts; what a host does not say is None. May block: not for the event loop."""
    run_queue_ns = stolen = ticks = None
    try:
        run_queue_ns = int(_SCHEDSTAT.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        run_queue_ns = None
    try:
        with _STAT.open() as file:
            counts = [int(count) for count in file.readline().split()[1:]]
        # guest time is counted in user time already
        stolen, ticks = counts[_STEAL - 1], sum(counts[:_STEAL])
    except (OSError, IndexError, ValueError):
        stolen = ticks = None
    return Host(run_queue_ns=run_queue_ns, stolen=stolen, ticks=ticks)


def between(before: Host, after: Host) -> tuple[int | None, float | None]:
    """Return the wait for a core in ns and the share of stolen time between two looks; None where unknown."""
    wait_ns = share = None
    if before.run_queue_ns is not None and after.run_queue_ns is not None:
        wait_ns = after.run_queue_ns - before.run_queue_ns
    if None not in (before.stolen, after.stolen, before.ticks, after.ticks):
        assert before.stolen is not None
        assert after.stolen is not None
        assert before.ticks is not None
        assert after.ticks is not None
        spent = after.ticks - before.ticks
        share = (after.stolen - before.stolen) / spent if spent > 0 else 0.0
    return wait_ns, share
