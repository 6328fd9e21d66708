"""Everything that can go wrong around a run: one clear message, the right exit code, nothing left behind."""

from __future__ import annotations

import http.server
import json
import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.sitting import (
    PROFILE,
    Table,
    eventually,
    free_port,
    in_flight,
    opened,
    processes,
    survivors,
)


def sim_sheet(*flags: str, ready: str = "20s") -> str:
    words = ", ".join(f'"{flag}"' for flag in flags)
    argv = f'["{sys.executable}", "-P", "-m", "launchers.sim", "--port", "{{port}}", "--served-model-name", "sim", {words}]'
    return f"version: 1\nengine: command\nmodel: sim\nready_within: {ready}\nargv: {argv}\n"


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a simulated engine that somebody else runs and that wants a key."""
    yield from serve(tmp_path, "--api-key", "k3y")


def serve(folder: Path, *flags: str) -> Iterator[str]:
    port = free_port()
    argv = [sys.executable, "-P", "-m", "launchers.sim", "--port", str(port), "--preset", "fast"]
    with (folder / "sim.log").open("wb") as log:
        server = subprocess.Popen(
            [*argv, "--served-model-name", "sim", *flags], stdout=log, stderr=log
        )
    try:
        assert eventually(lambda: answers(port), 20), (folder / "sim.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_broken_yaml_is_told_with_every_fault_and_its_place(table: Table) -> None:
    table.sheet("profile.yaml", PROFILE.replace("rate: 12/s", "rate: 12\n    rat: 1/s"))
    table.sheet("sla.yaml", "version: 1\nmust:\n  - tft.p99 <= 3s\n  - error_rate <= 1\n")

    ended = table.play()

    assert ended.code == 2
    assert "profile.yaml:8:11: tenants.chat.rate" in ended.err
    assert "profile.yaml:9:5: tenants.chat.rat" in ended.err
    assert "sla.yaml:3:5" in ended.err
    assert "'ttft'" in ended.err
    assert "sla.yaml:4:" in ended.err
    assert not ended.run.exists()


def test_an_unknown_tenant_in_the_sla_is_a_sheet_error(table: Table) -> None:
    table.sheet("sla.yaml", "version: 1\nmust:\n  - ttft.p99{tenant=chatt} <= 3s\n")

    ended = table.play()

    assert ended.code == 2
    assert "sla.yaml:3:" in ended.err
    assert "chatt" in ended.err
    assert "did you mean 'chat'" in ended.err
    assert not ended.run.exists()


def test_a_burst_that_never_comes_is_a_sheet_error(table: Table) -> None:
    table.sheet("sla.yaml", "version: 1\nmust:\n  - ttft.p99{tenant=batch, phase=burst} <= 3s\n")

    ended = table.play()

    assert ended.code == 2, ended.said
    assert "sla.yaml:3:" in ended.err
    assert "burst" in ended.err


def test_a_memory_check_without_a_memory_source_is_a_sheet_error(table: Table, sim: str) -> None:
    table.sheet("sla.yaml", "version: 1\nmust:\n  - vram.peak <= 85%\n")

    ended = table.play("--url", sim, "--model", "sim", engine=None)

    assert ended.code == 2
    assert "--dcgm" in ended.err


def test_a_taken_port_is_named_with_its_owner(table: Table) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    try:
        port = server.server_address[1]
        table.sheet("engine.yaml", f"version: 1\nengine: sim\npreset: static\nport: {port}\n")

        ended = table.play(engine=str(table.folder / "engine.yaml"))

        assert ended.code == 3, ended.said
        assert str(port) in ended.err
        assert str(os.getpid()) in ended.err
        assert survivors(ended.run) == []
    finally:
        server.server_close()


def test_an_engine_that_exits_while_loading_shows_its_last_words(table: Table) -> None:
    table.sheet("engine.yaml", sim_sheet("--fail-loading", "CUDA out of memory: 3 GiB short"))

    ended = table.play(engine=str(table.folder / "engine.yaml"))

    assert ended.code == 3, ended.said
    assert "CUDA out of memory: 3 GiB short" in ended.err
    assert "mend:" in ended.err
    assert "Traceback" not in ended.err
    assert ended.manifest["state"] == "cut"
    assert survivors(ended.run) == []


def test_an_engine_that_never_gets_ready_ends_at_its_deadline(table: Table) -> None:
    table.sheet("engine.yaml", sim_sheet("--never-ready", ready="3s"))

    ended = table.play(engine=str(table.folder / "engine.yaml"))

    assert ended.code == 3, ended.said
    assert "ready_within" in ended.err
    assert survivors(ended.run) == []


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_an_engine_that_dies_mid_run_fails_it(table: Table, signum: signal.Signals) -> None:
    process = table.start()
    run = table.folder / "run"
    try:
        assert eventually(lambda: in_flight(run), 30)
        (engine,) = [
            pid
            for pid in processes(run, "launchers.sim")
            if b"supervisor" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(engine, signum)
    finally:
        ended = table.end(process)

    assert ended.code == 99, ended.said
    assert "engine" in ended.out
    assert ended.verdict["ruling"] == "FAIL"
    assert ended.rows()
    assert (ended.run / "report.html").exists()
    assert survivors(ended.run) == []


def test_a_generator_killed_mid_run_makes_it_invalid(table: Table) -> None:
    process = table.start()
    run = table.folder / "run"
    try:
        assert eventually(lambda: in_flight(run), 30)
        (generator,) = processes(run, "loadgen.generator")
        os.kill(generator, signal.SIGKILL)
    finally:
        ended = table.end(process)

    assert ended.code == 4, ended.said
    assert ended.verdict["ruling"] == "INVALID"
    assert "generator" in ended.out
    assert survivors(ended.run) == []


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_is_kept_and_says_so(
    table: Table, signum: signal.Signals, code: int
) -> None:
    process = table.start()
    run = table.folder / "run"
    try:
        assert eventually(lambda: in_flight(run), 30)
        process.send_signal(signum)
    finally:
        ended = table.end(process)

    assert ended.code == code, ended.said
    assert ended.manifest["state"] == "cut"
    assert "interrupted" in ended.manifest["cut"]
    assert ended.rows()
    assert ended.verdict["ruling"] == "INVALID"
    assert survivors(ended.run) == []
    again = table.command("check", str(ended.run))
    assert again.code == 4, again.said


def test_a_second_ctrl_c_does_not_wait_for_open_requests(table: Table) -> None:
    table.sheet("engine.yaml", sim_sheet("--stall", "100%", "--stall-for", "60s", "--spare", "1"))
    table.sheet(
        "profile.yaml",
        PROFILE.replace("drain: 4s", "drain: 60s").replace(
            "timeouts: {connect: 2s, first_token: 4s, idle: 4s, total: 10s}",
            "timeouts: {connect: 2s, first_token: 90s, idle: 90s, total: 90s}",
        ),
    )
    process = table.start(engine=str(table.folder / "engine.yaml"))
    run = table.folder / "run"
    assert eventually(lambda: opened(run) and list(processes(run, "loadgen.generator")), 30)
    try:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
    finally:
        ended = table.end(process)

    assert ended.code == 130, ended.said
    assert {row["outcome"] for row in ended.rows()} <= {"timed_out", "unsent"}
    assert ended.rows()
    assert "damaged" not in ended.said
    assert survivors(ended.run) == []


def test_ctrl_c_while_the_engine_loads_leaves_nothing(table: Table) -> None:
    table.sheet("engine.yaml", sim_sheet("--never-ready", ready="60s"))
    process = table.start(engine=str(table.folder / "engine.yaml"))
    run = table.folder / "run"
    try:
        assert eventually(lambda: opened(run) and list(processes(run, "launchers.sim")), 30)
        process.send_signal(signal.SIGINT)
    finally:
        ended = table.end(process)

    assert ended.code == 130, ended.said
    assert eventually(lambda: survivors(ended.run) == [])


def test_tailgate_killed_leaves_no_process_and_a_readable_run(table: Table) -> None:
    process = table.start()
    run = table.folder / "run"
    assert eventually(lambda: in_flight(run), 30)
    process.kill()
    process.communicate()

    assert eventually(lambda: survivors(run) == [], 15), survivors(run)
    again = table.command("check", str(run))
    assert again.code == 4, again.said
    assert "never sealed" in again.said


def test_a_full_disk_makes_the_run_invalid(table: Table) -> None:
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    table.sheet("profile.yaml", PROFILE.replace("rate: 12/s", "rate: 200/s"))
    process = subprocess.Popen(
        table.argv(),
        cwd=table.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=small_files,
    )

    ended = table.end(process)

    assert ended.code == 4, ended.said
    assert "written" in ended.said
    assert "Traceback" not in ended.said
    assert survivors(ended.run) == []


def test_a_pipe_that_breaks_costs_the_words_and_not_the_run(table: Table) -> None:
    command = shlex.join(table.argv())
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"],
        cwd=table.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    run = table.folder / "run"
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"run directory {run}"]
    assert json.loads((run / "verdict.json").read_text())["ruling"] == "PASS"


def test_a_host_without_descriptors_is_our_fault(table: Table) -> None:
    ended = table.end(
        subprocess.Popen(
            table.argv(),
            cwd=table.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)),
        )
    )

    assert ended.code == 4, ended.said
    assert "Too many open files" in ended.said
    assert "Traceback" not in ended.said


def test_an_unreachable_url_is_exit_3(table: Table) -> None:
    ended = table.play("--url", f"http://127.0.0.1:{free_port()}", "--model", "sim", engine=None)

    assert ended.code == 3, ended.said
    assert "Traceback" not in ended.err


def test_a_wrong_model_is_exit_3_and_lists_what_is_served(
    table: Table, sim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIM_KEY", "k3y")

    ended = table.play("--url", sim, "--model", "lama", "--api-key-env", "SIM_KEY", engine=None)

    assert ended.code == 3, ended.said
    assert "lama" in ended.err
    assert "'sim'" in ended.err or " sim" in ended.err


def test_a_refused_key_is_exit_3(table: Table, sim: str) -> None:
    ended = table.play("--url", sim, "--model", "sim", engine=None)

    assert ended.code == 3, ended.said
    assert "401" in ended.err
    assert "--api-key-env" in ended.err


def test_a_key_is_used_and_never_written_down(
    table: Table, sim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIM_KEY", "k3y")

    ended = table.play(
        "--url", f"{sim}/v1", "--model", "sim", "--api-key-env", "SIM_KEY", engine=None
    )

    assert ended.code == 0, ended.said
    for file in ended.run.rglob("*"):
        if file.is_file():
            assert b"k3y" not in file.read_bytes(), file


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a server that answers every request with 503."""
    yield from serve(tmp_path, "--refuse", "1", "--refuse-status", "503")


def test_the_readmes_attached_server_is_ruled_on_without_memory(
    table: Table, sim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIM_KEY", "k3y")

    ended = table.play(
        *("--url", sim, "--model", "sim", "--api-key-env", "SIM_KEY"),
        *("--sla", "latency"),
        engine=None,
    )

    assert ended.code in {0, 4, 99}, (
        ended.said
    )  # a starved host may be slow, the command must be right
    assert ended.verdict["ruling"] in {"PASS", "INVALID", "FAIL"}


def test_every_request_refused_is_a_full_report_and_exit_99(table: Table, refusing: str) -> None:
    ended = table.play("--url", refusing, "--model", "sim", engine=None)

    assert ended.code == 99, ended.said
    assert "503" in ended.out
    assert ended.verdict["ruling"] == "FAIL"
    (errors,) = [check for check in ended.verdict["checks"] if "error_rate" in check["expr"]]
    assert errors["measured"]["value"] == 1
    assert {row["status"] for row in ended.rows()} == {503}
    assert "503" in (ended.run / "report.html").read_text()
    assert (ended.run / "junit.xml").exists()


def test_an_aborted_run_is_a_fail(table: Table, refusing: str) -> None:
    table.sheet("profile.yaml", PROFILE.replace("duration: 4s", "duration: 60s"))
    table.sheet("sla.yaml", "version: 1\nmust:\n  - {expr: error_rate <= 20%, abort_after: 2s}\n")

    ended = table.play("--url", refusing, "--model", "sim", engine=None)

    assert ended.code == 99, ended.said
    assert ended.manifest["aborted"]
    assert ended.manifest["runs"][0]["finished"] is False


def test_a_bug_is_exit_1_and_says_so(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = table.folder / "sitecustomize.py"
    broken.write_text(
        "import tailgate.run\n"
        "def explode(*_): raise ZeroDivisionError('planted')\n"
        "tailgate.run.run = explode\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(table.folder))

    ended = table.play()

    assert ended.code == 1, ended.said
    assert "bug in tailgate" in ended.err
    assert "planted" in ended.err
