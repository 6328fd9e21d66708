"""This machine as the manifest names it."""

from __future__ import annotations

import os
import platform
import socket
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from reports.manifest import Host

SHOWN_PACKAGES = ("tailgate", "locust", "aiohttp", "uvloop", "numpy", "scipy", "hdrhistogram")


def this_host(role: str) -> Host:
    """Return this machine's facts and the pair of its two clocks, read together."""
    return Host(
        name=socket.gethostname(),
        role=role,
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        kernel=platform.release(),
        python=platform.python_version(),
        epoch_wall_ns=time.time_ns(),
        epoch_monotonic_ns=time.monotonic_ns(),
    )


def versions() -> dict[str, str]:
    """Return the versions of the packages that take part in a measurement."""
    found = {}
    for package in SHOWN_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
