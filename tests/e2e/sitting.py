"""What the end-to-end tests share: sheets made on the spot, the command as a person runs it, who is left."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDS_WITHIN_S = 120

PROFILE = """\
version: 1
warmup: 2s
duration: 4s
drain: 4s
timeouts: {connect: 2s, first_token: 4s, idle: 4s, total: 10s}
tenants:
  chat:
    rate: 12/s
    prompt_tokens: {median: 60, p95: 200}
    output_tokens: 12
  batch:
    concurrency: 2
    prompt_tokens: 40
    output_tokens: 8
"""

SLA = """\
version: 1
must:
  - ttft.p99{tenant=chat} <= 3s
  - error_rate <= 1%
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ended: its exit code, what it said, and the run directory it was given."""

    code: int
    out: str
    err: str
    run: Path

    @property
    def said(self) -> str:
        return self.out + self.err

    @property
    def verdict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "verdict.json").read_text())
        return found

    @staticmethod
    def manifest_of(run: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return every request row of the run."""
        return [
            row
            for file in sorted((self.run / "requests").glob("*.gz"))
            for row in map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
            if "format" not in row
        ]

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "manifest.json").read_text())
        return found


@dataclass(frozen=True, slots=True)
class Table:
    """A folder with the three sheets of a short run, and the command that plays them."""

    folder: Path

    def sheet(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def command(self, *words: str) -> Ended:
        """Run another command of tailgate in the folder."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tailgate", *words],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr, self.folder / "run")

    def argv(self, *extra: str, engine: str | None = "sim-static") -> list[str]:
        base = [sys.executable, "-P", "-m", "tailgate", "run"]
        if engine is not None:
            base += ["--engine", engine]
        return [
            *base,
            *("--profile", str(self.folder / "profile.yaml")),
            *("--sla", str(self.folder / "sla.yaml")),
            *("--out", str(self.folder / "run")),
            *extra,
        ]

    def start(self, *extra: str, engine: str | None = "sim-static") -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*extra, engine=engine),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> Ended:
        try:
            out, err = process.communicate(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"still going after {ENDS_WITHIN_S} s:\n{out}\n{err}") from None
        return Ended(process.returncode, out, err, self.folder / "run")

    def play(self, *extra: str, engine: str | None = "sim-static") -> Ended:
        return self.end(self.start(*extra, engine=engine))


def mark_of(run: Path) -> bytes:
    """Return what every process of the run has in its environment."""
    manifest = json.loads((run / "manifest.json").read_text())
    return f"TAILGATE_RUN_ID={manifest['run_id']}".encode()


def run_mark(run: Path) -> bytes:
    """Return what stands in the environment of every process of the run."""
    run_id = json.loads((run / "manifest.json").read_text())["run_id"]
    return f"TAILGATE_RUN_ID={run_id}".encode()


def survivors(run: Path) -> list[str]:
    """Return the command lines of processes that still belong to the run."""
    mark = mark_of(run)
    left = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                left.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended between the listing and the look
    return left


def eventually(look: Callable[[], object], within_s: float = 10.0) -> object:
    """Return the first true look, or the last one when the time is over."""
    deadline = time.monotonic() + within_s
    while not (seen := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def processes(run: Path, word: str) -> Iterator[int]:
    """Yield the pids of the run's processes whose command line has the word."""
    if not (run / "manifest.json").exists():
        return  # nothing is started before it is written
    mark = mark_of(run)
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if mark in (process / "environ").read_bytes().split(b"\0") and (
                    word.encode() in (process / "cmdline").read_bytes()
                ):
                    yield int(process.name)
            except OSError:
                continue


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def in_flight(run: Path) -> bool:
    """Return whether request rows are on the disk, that is, traffic flows."""
    return opened(run) and any(
        file.stat().st_size > 600 for file in (run / "requests").glob("*.gz")
    )


def opened(run: Path) -> bool:
    return (run / "manifest.json").exists()
