"""Runs one program and owns every process that comes of it, so that none outlives whoever asked for it.

    python -I supervisor.py [--grace S] [--lease S] [--give-up S] [--log FILE] -- PROGRAM [ARGUMENT ...]

Standard library only, one file: a launcher copies it to wherever the engine runs.

Standard input is the lease: its end, or ``--lease`` seconds without a byte on it, ends the tree; so do SIGTERM,
SIGINT and SIGHUP. Standard output has one JSON object a line: ``started {pid}``, ``exited {status, signal}`` as
soon as the program itself is gone, and ``gone {why, killed, left}`` when nothing of its tree is left. The
program's own output goes to ``--log``. The exit status is the program's, or 128 + the signal that ended it.

Two processes stand above the program. Both are subreapers, so a descendant that calls setsid or forks twice
becomes a child of the keeper, and the keeper's children become the guardian's when the keeper is killed -9. When
the guardian is killed -9 the keeper sees the end of a pipe. That nothing is left is proved by ECHILD from
waitpid, not by a list of processes: a dying process with threads shows as a zombie while its threads and their
children still live.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
KILL_EVERY_S = 0.01
STATUS_UNKNOWN = 70
STATUS_NOT_STARTED = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the command line asked for; times in seconds, a lease of 0 means that only its end counts."""

    grace_s: float
    lease_s: float
    give_up_s: float
    log: str | None
    argv: tuple[str, ...]


def main(words: Sequence[str] | None = None) -> int:
    """Run the program and return its status when nothing of its tree is left."""
    orders = _orders(words)
    alive_read, alive_write = os.pipe()
    _become_subreaper()
    keeper = os.fork()
    if keeper == 0:
        os.close(alive_write)
        # out of the guardian's process group: a kill of that group must leave one of the two
        os.setsid()
        os._exit(Keeper(orders, alive_read).run())
    os.close(alive_read)
    return _guard(keeper, orders)


def _guard(keeper: int, orders: Orders) -> int:
    """Wait for the keeper, then kill whatever it left; only a killed keeper leaves anything."""
    for number in STOPPING:
        signal.signal(number, lambda got, _frame: _send(keeper, got))
    # the lease is the keeper's to watch; held open here it would only hide that the keeper is gone
    os.close(0)
    status = None
    while status is None:
        pid, ended = os.waitpid(-1, 0)
        if pid == keeper:
            status = ended
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    killed, left = _kill_all(orders.give_up_s, _collect)
    if os.WIFSIGNALED(status) or killed or left:
        _say("gone", why="the supervisor was killed", killed=killed, left=left)
    return _exit_code(status)


class Keeper:
    """Starts the program, waits for its end or for an order to end it, and sees the tree out."""

    def __init__(self, orders: Orders, guardian: int) -> None:
        self._orders = orders
        self._guardian = guardian
        self._status: int | None = None
        self._program = 0

    def run(self) -> int:
        """Return the program's status when its tree is gone."""
        _become_subreaper()
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (*STOPPING, signal.SIGCHLD):
            signal.signal(number, _note)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._start()
        why = self._watch(wake_read)
        killed, left = self._end_tree(wake_read)
        _say("gone", why=why, killed=killed, left=left)
        return STATUS_UNKNOWN if self._status is None else _exit_code(self._status)

    def _start(self) -> None:
        keeper = os.getpid()
        self._program = os.fork()
        if self._program == 0:
            _become(self._orders, keeper)
        _say("started", pid=self._program)

    def _watch(self, wake: int) -> str:
        """Return why the tree must end."""
        lease = self._orders.lease_s
        last_s = time.monotonic()
        while True:
            wait_s = max(0.0, last_s + lease - time.monotonic()) if lease else None
            readable, _, _ = select.select([0, wake, self._guardian], [], [], wait_s)
            if wake in readable:
                numbers = os.read(wake, 4096)
                for number in STOPPING:
                    if number in numbers:
                        return f"signal {signal.Signals(number).name}"
            self._reap()
            if self._status is not None:
                return "the program ended"
            if self._guardian in readable:
                return "the guardian was killed"
            if 0 in readable:
                if not os.read(0, 4096):
                    return "the controller is gone"
                last_s = time.monotonic()
            if lease and time.monotonic() - last_s >= lease:
                return "the lease ran out"

    def _end_tree(self, wake: int) -> tuple[int, tuple[int, ...]]:
        for pid in _descendants(os.getpid()):
            _send(pid, signal.SIGTERM)
        until_s = time.monotonic() + self._orders.grace_s
        while not self._reap():
            wait_s = until_s - time.monotonic()
            if wait_s <= 0:
                break
            if select.select([wake], [], [], wait_s)[0]:
                os.read(wake, 4096)
        return _kill_all(self._orders.give_up_s, self._reap)

    def _reap(self) -> bool:
        """Collect the dead; return True when no child is left, which as subreaper is the proof."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._program:
                self._status = status
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                code = None if number else os.WEXITSTATUS(status)
                _say("exited", status=code, signal=number)


def _become(orders: Orders, keeper: int) -> NoReturn:
    """Turn this forked child into the program."""
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(STATUS_NOT_STARTED)  # the keeper died before it could be asked for
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*STOPPING, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        if orders.log is not None:
            out = os.open(orders.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(out, 2)
        os.dup2(2, 1)
        os.execvp(orders.argv[0], orders.argv)  # noqa: S606 - a shell is what must not be here
    except OSError as fault:
        os.write(2, f"{orders.argv[0]}: {fault.strerror}\n".encode())
    finally:
        os._exit(STATUS_NOT_STARTED)


def _kill_all(give_up_s: float, collect: Callable[[], bool]) -> tuple[int, tuple[int, ...]]:
    """Kill until no child is left; return how many were killed and the pids that would not die in time."""
    until_s = time.monotonic() + give_up_s
    killed: set[int] = set()
    while not collect():
        alive = _descendants(os.getpid())
        if time.monotonic() > until_s:
            return len(killed), tuple(alive)  # in the kernel for good: a driver that hangs
        for pid in alive:
            _send(pid, signal.SIGKILL)
        killed.update(alive)
        time.sleep(KILL_EVERY_S)
    return len(killed), ()


def _collect() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _descendants(root: int) -> list[int]:
    """Return the live processes below ``root``, found by walking through zombies too."""
    children: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # the name of a program may hold spaces and brackets; the last bracket ends it
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        children.setdefault(int(parent), []).append((int(name), state))
    found, todo = [], [root]
    while todo:
        for pid, state in children.get(todo.pop(), ()):
            todo.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def _send(pid: int, number: int) -> None:
    # gone is what was asked; what took another user's rights is named at the end
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Be a handler, so that the wake-up descriptor gets the signal's number."""


def _say(event: str, **facts: object) -> None:
    line = json.dumps({"event": event, **facts}) + "\n"
    try:
        os.write(1, line.encode())
    except OSError as fault:
        if fault.errno not in (errno.EPIPE, errno.EBADF):
            raise


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _become_subreaper() -> None:
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def _orders(words: Sequence[str] | None) -> Orders:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--grace", type=float, default=10.0, help="seconds from SIGTERM to SIGKILL")
    parser.add_argument(
        "--lease", type=float, default=0.0, help="seconds without a byte; 0: no limit"
    )
    parser.add_argument("--give-up", type=float, default=30.0, help="seconds of SIGKILL in vain")
    parser.add_argument("--log", help="file to append the program's output to")
    parser.add_argument("argv", nargs="+", metavar="PROGRAM")
    known = parser.parse_args(words)
    return Orders(
        grace_s=known.grace,
        lease_s=known.lease,
        give_up_s=known.give_up,
        log=known.log,
        argv=tuple(known.argv),
    )


if __name__ == "__main__":
    sys.exit(main())
