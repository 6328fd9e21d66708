"""The command as a process: how it loads, fails to, dies, and is told to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from launchers.sim.command import sim

from .client import HOST, ask, chat, stream

ENDS_WITHIN_S = 30


def free_port() -> int:
    with socket.socket() as made:
        made.bind((HOST, 0))
        port: int = made.getsockname()[1]
    return port


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The simulator as a process; it is gone afterwards."""
    port = free_port()
    argv = [sys.executable, "-P", "-m", "launchers.sim", "--port", str(port), "--preset", "fast"]
    process = subprocess.Popen([*argv, *options], stdout=subprocess.PIPE, text=True)
    try:
        yield process, port
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def wait_until_listening(process: subprocess.Popen[str], port: int) -> None:
    until = time.monotonic() + ENDS_WITHIN_S
    while not listens(port):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.02)


async def test_it_serves_says_so_and_stops_when_told() -> None:
    with started("--served-model-name", "m") as (process, port):
        wait_until_listening(process, port)
        assert (await stream(port, 2, model="m")).status == 200
        process.terminate()
        out, _ = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 0
    assert f"Starting simulated server on http://{HOST}:{port}" in out
    assert "shutdown triggered" in out


def test_it_listens_only_when_loaded() -> None:
    with started("--ready-after", "500ms") as (process, port):
        assert process.stdout is not None
        while "Loading" not in process.stdout.readline():
            assert process.poll() is None
        assert not listens(port)
        wait_until_listening(process, port)


def test_it_can_load_for_ever_and_still_stops_when_told() -> None:
    with started("--never-ready") as (process, port):
        assert process.stdout is not None
        while "Loading" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.2)
        assert process.poll() is None
        assert not listens(port)
        process.terminate()
        assert process.wait(ENDS_WITHIN_S) == 0


def test_it_can_fail_to_load_with_a_message() -> None:
    message = "torch.OutOfMemoryError: CUDA out of memory."
    with started("--fail-loading", message) as (process, port):
        out, _ = process.communicate(timeout=ENDS_WITHIN_S)
        assert not listens(port)
    assert process.returncode == 1
    assert message in out
    assert "Engine core initialization failed" in out


def test_a_taken_port_is_named_before_loading() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = str(other.getsockname()[1])
        argv = [sys.executable, "-P", "-m", "launchers.sim", "--ready-after", "1h", "--port", port]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False
        )
    assert done.returncode == 1
    assert f"cannot bind {HOST}:{port}" in done.stdout
    assert "in use" in done.stdout


@pytest.mark.parametrize("status", [0, 7])
def test_it_can_die_after_a_while_with_any_status(status: int) -> None:
    with started("--die-after", "200ms", "--die-status", str(status)) as (process, _):
        out, _ = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == status
    assert "fatal error" in out


async def test_it_can_die_at_a_request() -> None:
    with started("--die-after-requests", "2", "--spare", "1") as (process, port):
        wait_until_listening(process, port)
        replies = [await stream(port, 2) for _ in range(3)]
        process.communicate(timeout=ENDS_WITHIN_S)
    assert [reply.ended for reply in replies] == [True, True, False]
    assert process.returncode == 1


async def test_every_flag_of_a_fault_reaches_the_streams() -> None:
    flags = "--spare 1 --refuse 25% --refuse-status 429 --error 0.25 --error-after 1 --cut 0 --cut-after 2 --stall 0"
    flags += " --stall-after 4 --stall-for 2s --empty 0 --pings 3s --coalesce 2 --split --crlf --no-space"
    flags += " --no-usage --no-done --no-finish --tokens-per-chunk 2 --reasoning 3 --unicode"
    with started(*flags.split()) as (process, port):
        wait_until_listening(process, port)
        faults = (await ask(port, "GET", "/tailgate/sim")).json["faults"]
        await ask(port, "POST", "/v1/chat/completions", chat(8))
        reply = await ask(port, "POST", "/v1/chat/completions", chat(8))
    assert faults == {
        "spare": 1,
        "refuse": 0.25,
        "refuse_status": 429,
        "error": 0.25,
        "error_after": 1,
        "cut": 0.0,
        "cut_after": 2,
        "stall": 0.0,
        "stall_after": 4,
        "stall_ns": 2_000_000_000,
        "empty": 0.0,
        "ping_every_ns": 3_000_000_000,
        "coalesce": 2,
        "split": True,
        "crlf": True,
        "no_space": True,
        "no_usage": True,
        "no_done": True,
        "no_finish": True,
        "tokens_per_chunk": 2,
        "reasoning": 3,
    }
    assert not reply.text.isascii()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "huge"], "'static', 'dynamic', 'fast'"),
        (["--stall-for", "5"], "unit"),
        (["--refuse", "150%"], "refuse is a share of the requests"),
        (["--refuse", "often"], "share"),
        (["--gpus", "0"], "1<=x<=64"),
    ],
)
def test_wrong_options_exit_2_and_say_what_is_right(options: list[str], words: str) -> None:
    result = CliRunner().invoke(sim, options)
    assert result.exit_code == 2, result.output
    assert words in result.output


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(sim, ["--help"])
    assert result.exit_code == 0
    assert "\nExample:\n  tailgate sim --port 8000 --preset dynamic\n" in result.output
    assert sim.get_short_help_str(limit=40) == "Serve a simulated LLM with faults."
