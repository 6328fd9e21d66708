"""What a generator's process does to keep still, and to end when its parent does."""

from __future__ import annotations

import ctypes
import gc
import resource
import signal
import sys
from typing import Final

FORBIDDEN: Final = ("gevent", "locust")
_PR_SET_PDEATHSIG: Final = 1
_MALLOPT: Final = ((-3, 1 << 30), (-1, 1 << 30), (-2, 16 << 20))


class UncleanError(Exception):
    """This process has been patched by gevent: its clocks and sockets cannot be trusted."""


def check_clean() -> None:
    """Raise UncleanError if gevent or locust was imported."""
    found = [name for name in FORBIDDEN if name in sys.modules]
    if found:
        raise UncleanError(
            f"{' and '.join(found)} imported in a generator; start it with python -P -m loadgen.generator"
        )


def settle() -> None:
    """Take as many files as allowed, keep freed memory, and ask for SIGTERM when the parent ends.

    Fresh pages cost tens of microseconds each on a virtual machine, so large blocks must not go back to the
    kernel and come again: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD of mallopt(3), where there is one.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "mallopt"):
        for option, value in _MALLOPT:
            library.mallopt(option, value)
    library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def freeze() -> None:
    """Collect garbage once, then spare everything alive from it, and look seldom from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)
