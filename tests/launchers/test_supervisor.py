from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, ClassVar

import psutil
import pytest

from launchers import supervisor
from tests.launchers.marks import NAME, eventually, living, marked

SUPERVISOR = str(supervisor.__file__)
TREE = str(Path(__file__).with_name("stubborn_tree.py"))
PYTHON = (sys.executable, "-S")
ROUNDS = 12
# the tree's own: its main program, four shells' sleeps at least
TREE_SIZE = 5


@pytest.fixture
def mark() -> Iterator[str]:
    with marked() as word:
        yield word
        for process in Supervised.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()
        Supervised.started.clear()


class Supervised:
    """A supervisor with its lease in our hand, and what it reports."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, mark: str, log: Path, *words: str) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, "--log", str(log), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, NAME: mark},
            start_new_session=True,
        )
        self.started.append(self.process)

    @property
    def lease(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def report(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def reports(self) -> list[dict[str, Any]]:
        """Return all that is still to be read."""
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout]

    def up(self) -> int:
        """Return the program's pid when all of its tree is there."""
        started = self.report()
        assert started["event"] == "started"
        assert eventually(lambda: self.log.exists() and "up" in self.log.read_text())
        return int(started["pid"])

    def keeper(self) -> int:
        return psutil.Process(self.process.pid).children()[0].pid

    def end(self) -> int:
        return self.process.wait(60)


def test_nothing_of_a_stubborn_tree_outlives_its_lease(mark: str, tmp_path: Path) -> None:
    for number in range(ROUNDS):
        # without any grace the tree is killed while its threads are still dying: the trap for who trusts /proc
        grace_s = "0" if number % 2 else "0.05"
        it = Supervised(mark, tmp_path / f"{number}", "--grace", grace_s, "--", *PYTHON, TREE)
        it.up()
        assert len(living(mark)) > TREE_SIZE
        it.lease.close()
        assert it.end() in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
        assert living(mark) == []
        # the keeper saw its tree out to ECHILD, so that there was nothing for the guardian to find
        assert [told["why"] for told in it.reports() if told["event"] == "gone"] == [
            "the controller is gone"
        ]


def test_what_happened_is_reported(mark: str, tmp_path: Path) -> None:
    it = Supervised(mark, tmp_path / "log", "--grace", "0.05", "--", *PYTHON, TREE)
    it.up()
    it.lease.close()
    exited, gone = it.report(), it.report()
    assert (exited["event"], exited["status"], exited["signal"]) == ("exited", None, 15)
    assert (gone["event"], gone["why"], gone["left"]) == ("gone", "the controller is gone", [])
    assert gone["killed"] >= 2  # the two shells that ignore SIGTERM, and what they started
    it.end()


def test_the_controller_killed_by_9(mark: str, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(600)"
    )
    log = tmp_path / "log"
    words = [sys.executable, "-I", "-S", SUPERVISOR, "--log", str(log), "--grace", "0.05", "--"]
    controller = subprocess.Popen(
        [*PYTHON, "-c", code, *words, *PYTHON, TREE],
        stdout=subprocess.DEVNULL,
        env={**os.environ, NAME: mark},
    )
    assert eventually(lambda: log.exists() and "up" in log.read_text())
    controller.kill()
    controller.wait()
    assert eventually(lambda: living(mark) == [])


@pytest.mark.parametrize("victim", ["guardian", "keeper"])
def test_half_of_the_supervisor_killed_by_9(mark: str, tmp_path: Path, victim: str) -> None:
    it = Supervised(mark, tmp_path / "log", "--grace", "0.05", "--", *PYTHON, TREE)
    it.up()
    os.kill(it.process.pid if victim == "guardian" else it.keeper(), signal.SIGKILL)
    assert eventually(lambda: living(mark) == [])
    assert it.end() != 0


def test_the_group_of_the_supervisor_killed_by_9(mark: str, tmp_path: Path) -> None:
    it = Supervised(mark, tmp_path / "log", "--grace", "0.05", "--", *PYTHON, TREE)
    it.up()
    os.killpg(it.process.pid, signal.SIGKILL)
    assert eventually(lambda: living(mark) == [])
    it.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_tree(mark: str, tmp_path: Path, number: signal.Signals) -> None:
    it = Supervised(mark, tmp_path / "log", "--grace", "0.05", "--", *PYTHON, TREE)
    it.up()
    it.process.send_signal(number)
    assert it.report()["event"] == "exited"
    assert it.report()["why"] == f"signal {number.name}"
    it.end()
    assert living(mark) == []


def test_a_silent_lease_runs_out_and_a_byte_renews_it(mark: str, tmp_path: Path) -> None:
    words = ("--grace", "0.05", "--lease", "1.5", "--", *PYTHON, TREE)
    it = Supervised(mark, tmp_path / "log", *words)
    it.up()
    for _ in range(6):
        it.lease.write(b".")
        it.lease.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            it.process.wait(0.4)
    assert it.report()["event"] == "exited"  # nothing was written for 1.5 s
    assert it.report()["why"] == "the lease ran out"
    it.end()
    assert living(mark) == []


@pytest.mark.parametrize("status", [0, 7])
def test_the_program_ending_by_itself_is_told_at_once_and_its_children_go(
    mark: str, tmp_path: Path, status: int
) -> None:
    it = Supervised(mark, tmp_path / "log", "--grace", "0.05", "--", *PYTHON, TREE, str(status))
    it.up()
    exited = it.report()
    assert (exited["event"], exited["status"], exited["signal"]) == ("exited", status, None)
    assert it.report()["why"] == "the program ended"
    assert it.end() == status
    assert living(mark) == []


def test_a_killed_program_has_its_signal_reported(mark: str, tmp_path: Path) -> None:
    it = Supervised(mark, tmp_path / "log", "--grace", "0.05", "--", *PYTHON, TREE)
    os.kill(it.up(), signal.SIGKILL)
    assert it.report()["signal"] == signal.SIGKILL
    it.report()
    assert it.end() == 128 + signal.SIGKILL
    assert living(mark) == []


def test_a_polite_program_is_not_killed(mark: str, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def leave(*_): print('tidied', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, leave); print('up', flush=True); time.sleep(600)"
    )
    it = Supervised(mark, tmp_path / "log", "--grace", "30", "--", *PYTHON, "-c", code)
    it.up()
    it.lease.close()
    assert it.report()["status"] == 3
    assert it.report()["killed"] == 0
    assert it.end() == 3
    assert "tidied" in it.log.read_text()


def test_a_program_that_does_not_exist(mark: str, tmp_path: Path) -> None:
    it = Supervised(mark, tmp_path / "log", "--", "/nowhere/engine", "--port", "1")
    assert it.report()["event"] == "started"
    assert it.report()["status"] == supervisor.STATUS_NOT_STARTED
    it.end()
    assert "/nowhere/engine: No such file or directory" in it.log.read_text()


def test_the_program_gets_no_descriptor_and_no_blocked_signal_of_the_supervisor(
    mark: str, tmp_path: Path
) -> None:
    code = (
        "import os, signal\n"
        "print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1],\n"
        "      signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,\n"
        "      signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, os.getsid(0) == os.getpid(),\n"
        "      repr(os.read(0, 1)), 'up')"
    )
    it = Supervised(mark, tmp_path / "log", "--", *PYTHON, "-c", code)
    it.up()
    it.end()
    assert it.log.read_text().strip() == "[0, 1, 2] True True True b'' up"
