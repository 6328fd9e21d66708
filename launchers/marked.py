"""Processes by what stands in their environment: the second line behind the supervisor, and for a later sweep.

A program may overwrite its environment (setproctitle does), so no mark proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path


def marked(marks: Mapping[str, str]) -> tuple[int, ...]:
    """Return the other live processes of this machine whose environment holds all the marks."""
    wanted = [f"{name}={value}".encode() for name, value in marks.items()]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or another user's
        if all(word in environment for word in wanted):
            found.append(int(entry.name))
    return tuple(sorted(found))


def kill_marked(marks: Mapping[str, str]) -> tuple[int, ...]:
    """Kill every process that holds all the marks and return their pids."""
    found = marked(marks)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found
