"""This machine, under a supervisor that outlives a killed controller just long enough to clean up."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from launchers import supervisor
from launchers.command import Command, FromEnv
from launchers.engine import LaunchError
from launchers.listener import Listener, listeners

GIVE_UP_S = 20.0
STARTED_WITHIN_S = 30.0


class Local:
    """Starts commands on this machine; servers listen on the loopback address only."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.node = socket.gethostname()

    def free_port(self) -> int:
        """Return a port that was free an instant ago; the engine still has to win it."""
        with socket.socket() as trial:
            trial.bind((self.host, 0))
            return int(trial.getsockname()[1])

    def listeners(self, port: int) -> tuple[Listener, ...]:
        """Return who listens on the port."""
        return listeners(port)

    def start(
        self, command: Command, *, marks: Mapping[str, str], log: Path, grace_s: float
    ) -> LocalTree:
        """Start the command under a supervisor.

        Raises LaunchError if its program or a variable that holds a secret does not exist.
        """
        # unbuffered, so that a Python engine's last words are in the log when it dies
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **_resolved(command), **marks}
        if shutil.which(command.argv[0], path=environment.get("PATH")) is None:
            raise LaunchError(
                f"there is no program {command.argv[0]!r} to start",
                "install it, put its folder on PATH, or name its file in the engine sheet",
            )
        argv = [
            *(sys.executable, "-I", "-S", str(supervisor.__file__)),
            *("--grace", str(grace_s), "--give-up", str(GIVE_UP_S), "--log", str(log), "--"),
            *command.argv,
        ]
        with log.open("ab") as words:
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=words,
                    bufsize=0,
                    env=environment,
                    # out of reach of a terminal's Ctrl-C and of a kill of our process group
                    start_new_session=True,
                )
            except OSError as fault:
                if fault.errno != errno.E2BIG:
                    raise
                raise LaunchError(
                    "the engine's arguments and variables are longer than the system takes",
                    "shorten argv:, options: or env:",
                ) from fault
        return LocalTree(process, patience_s=grace_s + 2 * GIVE_UP_S + 10)


class LocalTree:
    """One supervised tree on this machine. ``patience_s`` bounds the wait in ``stop``."""

    def __init__(self, process: subprocess.Popen[bytes], *, patience_s: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._lease = process.stdin
        self._words = process.stdout
        os.set_blocking(self._words.fileno(), False)
        self._patience_s = patience_s
        self._partial = b""
        self._ended: str | None = None
        self._left: tuple[int, ...] = ()
        self._pid: int | None = None
        until_s = time.monotonic() + STARTED_WITHIN_S
        while self._pid is None and self.poll() is None:
            if time.monotonic() > until_s:
                self.stop()
                self._ended = "the supervisor did not start the program"
            time.sleep(0.002)

    @property
    def pid(self) -> int:
        """The program's pid, or the supervisor's if it never started one."""
        return self._process.pid if self._pid is None else self._pid

    def poll(self) -> str | None:
        """Return None while the program runs, else how it ended."""
        status = self._process.poll()
        self._read()
        if self._ended is None and status is not None:
            self._ended = f"lost its supervisor (status {status})"
        return self._ended

    def stop(self) -> str | None:
        """End the lease, wait for the supervisor, and return what it could not kill."""
        if not self._lease.closed:
            self._lease.close()
        try:
            self._process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"the supervisor (pid {self._process.pid}) had to be killed"
        if not self._words.closed:
            self._read()
            self._words.close()
        if self._left:
            return f"pids {', '.join(map(str, self._left))} cannot be killed"
        return None

    def owns(self, pid: int) -> bool:
        """Walk up from the process; all of the tree is below the supervisor."""
        try:
            return self._process.pid in (pid, *(p.pid for p in psutil.Process(pid).parents()))
        except psutil.Error:
            return False

    def _read(self) -> None:
        while not self._words.closed:
            chunk = self._words.read(65536)
            if not chunk:
                return
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, report: dict[str, Any]) -> None:
        event = report["event"]
        if event == "started":
            self._pid = report["pid"]
        elif event == "exited":
            self._ended = _how(report["status"], report["signal"])
        elif event == "gone":
            self._left = tuple(report["left"])
            if self._ended is None:
                self._ended = f"was ended: {report['why']}"


def _how(status: int | None, number: int | None) -> str:
    if number is None:
        return f"exited with status {status}"
    return f"was killed by signal {number} ({signal.Signals(number).name})"


def _resolved(command: Command) -> dict[str, str]:
    environment = {}
    for name, value in command.env.items():
        if isinstance(value, FromEnv):
            if value.name not in os.environ:
                raise LaunchError(
                    f"the variable {value.name} is not set, and the engine's {name} comes from it",
                    f"export {value.name}=... before you call tailgate",
                )
            environment[name] = os.environ[value.name]
        else:
            environment[name] = value
    return environment
