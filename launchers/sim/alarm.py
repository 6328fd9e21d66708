"""A wake-up at an absolute instant, good to some 50 us, for one callback of an event loop.

uvloop's and asyncio's own timers move in steps of a millisecond, a tenth of a decoding step. A timerfd on
CLOCK_MONOTONIC, watched by the loop, does not. Python has one in ``os`` from 3.13; until then it is libc's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NS_IN_S = 1_000_000_000
_libc = ctypes.CDLL(None, use_errno=True)


class Alarm:
    """Calls ``ring`` once after each ``set``; raises OSError where the kernel has no timerfd."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._fd = int(_libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), "timerfd_create")
        self._when = (ctypes.c_int64 * 4)()
        loop.add_reader(self._fd, self._read)

    def set(self, at_ns: int) -> None:
        """Ring at ``at_ns`` of the monotonic clock, at once when that is past; an earlier ``set`` is forgotten."""
        # struct itimerspec: interval (none), then the instant; an instant of zero would disarm the timer
        self._when[2], self._when[3] = divmod(max(1, at_ns), _NS_IN_S)
        if _libc.timerfd_settime(self._fd, _ABSOLUTE, self._when, None) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), "timerfd_settime")

    def close(self) -> None:
        """Never ring again."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set again between the poll and this read
        self._ring()
