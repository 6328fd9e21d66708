"""The truth server (truth.c): built, started, ended, and its record read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("truth.c")


class NoCompilerError(Exception):
    """There is no C compiler to build the truth server with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request as the server saw it, in ns of CLOCK_MONOTONIC: read whole, and before each token's write."""

    read_ns: int
    written_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A running truth server."""

    url: str
    pid: int


def build(folder: Path) -> Path:
    """Compile the server into the folder. Raises NoCompilerError, or CalledProcessError with gcc's words."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("no gcc or cc on PATH; install a C compiler")
    program = folder / "truth"
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program


@contextmanager
def serving(program: Path, out: Path, *, ttft_us: int, itl_us: int) -> Iterator[Truth]:
    """Serve until the block ends; ``out`` is then written."""
    process = subprocess.Popen(
        [str(program), str(out), str(ttft_us), str(itl_us)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        yield Truth(url=f"http://127.0.0.1:{port}", pid=process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=10)


def read(out: Path) -> dict[str, Served]:
    """Return what the server saw, by X-Request-Id."""
    seen = {}
    for line in out.read_text().splitlines():
        name, read_ns, *written_ns = line.split()
        seen[name] = Served(read_ns=int(read_ns), written_ns=tuple(map(int, written_ns)))
    return seen
