"""The exit codes that other people's builds rely on, in one list."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the process's exit status means; only NOT_READY, INVALID and INCONCLUSIVE are worth a retry."""

    PASS = 0
    BUG = 1
    USAGE = 2
    NOT_READY = 3
    INVALID = 4
    INCONCLUSIVE = 5
    BROKEN_PROMISE = 99
    INTERRUPTED = 130
    TERMINATED = 143
