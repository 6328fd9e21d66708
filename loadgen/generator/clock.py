"""Waking at an instant of the monotonic clock: event loops round to milliseconds, timerfd does not."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, Protocol

_SECOND: Final = 1_000_000_000
_CLOCK_MONOTONIC: Final = 1
_TFD_TIMER_ABSTIME: Final = 1


class Alarm(Protocol):
    """Calls back at an instant; arming it again replaces the instant."""

    def arm(self, at_ns: int) -> None:
        """Wake at this instant of the monotonic clock, in ns; at once if it has passed."""
        ...

    def close(self) -> None:
        """Never wake again."""
        ...


class TimerFd:
    """An alarm of the kernel's high-resolution timers (timerfd_create(2)).

    Raises OSError or AttributeError where there are none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._library = ctypes.CDLL(None, use_errno=True)
        self._settime = self._library.timerfd_settime
        self._settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._spec = (ctypes.c_long * 4)()
        self._address = ctypes.addressof(self._spec)
        if sys.version_info >= (3, 13):
            self._descriptor = os.timerfd_create(
                _CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC
            )
        else:
            self._descriptor = self._library.timerfd_create(
                _CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC
            )
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_create: {os.strerror(number)}")
        loop.add_reader(self._descriptor, self._readable)

    def arm(self, at_ns: int) -> None:
        """Wake at this instant of the monotonic clock, in ns; at once if it has passed."""
        # an all-zero time would disarm it
        self._spec[2], self._spec[3] = divmod(max(at_ns, 1), _SECOND)
        if self._settime(self._descriptor, _TFD_TIMER_ABSTIME, self._address, None):
            number = ctypes.get_errno()
            raise OSError(number, f"timerfd_settime: {os.strerror(number)}")

    def _readable(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            # armed again between the wake-up and the read
            return
        self._wake()

    def close(self) -> None:
        """Never wake again."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


class LoopTimer:
    """An alarm of the event loop's own timers, good to about a millisecond: where there is no timerfd."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, at_ns: int) -> None:
        """Wake at this instant of the monotonic clock, in ns; at once if it has passed."""
        self.close()
        self._handle = self._loop.call_later(max(at_ns - monotonic_ns(), 0) / _SECOND, self._wake)

    def close(self) -> None:
        """Never wake again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def alarm(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Alarm:
    """Return the best alarm that this host has."""
    try:
        return TimerFd(loop, wake)
    except (OSError, AttributeError, NotImplementedError):
        return LoopTimer(loop, wake)
