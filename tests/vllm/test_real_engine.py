"""tailgate launches a real `vllm serve` on the CPU, replays a real trace at it, rules, and leaves nothing behind.

Opt-in: ``make test-vllm`` installs vLLM into an environment of its own and runs this. No GPU, no model hub.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.prompt import prompt_text

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"
VLLM = HERE.parents[1] / ".venv-vllm" / "bin"
TAILGATE = Path(sys.executable).with_name("tailgate")
TRACE_ROWS = len((FIXTURES / "azure_code_slice.csv").read_text().splitlines()) - 1


@pytest.fixture(scope="module")
def engine_sheet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an engine sheet for a vLLM that serves a tiny model made here, of which our words are the tokens."""
    folder = tmp_path_factory.mktemp("engine")
    words = folder / "words.txt"
    words.write_text(prompt_text(salt="", seed=0, tenant="words", ordinal=0, tokens=20_000))
    model = folder / "tiny"
    maker: list[str | Path] = [VLLM / "python", "-P", HERE / "tiny_model.py", model, words]
    subprocess.run(maker, check=True, timeout=120)
    # Engine and generators share the cores of this machine; the engine is the one that can wait.
    polite = folder / "vllm"
    # The kernel shares cores between sessions first, whatever the nice values inside each.
    polite.write_text(
        "#!/bin/sh\n"
        "[ ! -w /proc/self/autogroup ] || echo 19 > /proc/self/autogroup\n"
        f'exec nice -n 10 {VLLM / "vllm"} "$@"\n'
    )
    polite.chmod(0o755)
    sheet = folder / "vllm-cpu.yaml"
    # float32: with bfloat16 the worker can die of SIGILL in the matrix extensions of some CPUs.
    sheet.write_text(
        f"""\
# A real vLLM on the CPU, serving a tiny random model.
version: 1
engine: vllm
executable: {polite}
model: {model}
served_as: tiny
gpus: 0
limits: {{context: 2048, sequences: 32}}
options: {{dtype: float32, enforce-eager: true, shutdown-timeout: 10}}
env:
  VLLM_CPU_KVCACHE_SPACE: "1"
  VLLM_CPU_OMP_THREADS_BIND: nobind
  OMP_NUM_THREADS: "1"
  HF_HUB_OFFLINE: "1"
  VLLM_NO_USAGE_STATS: "1"
ready_within: 5m
telemetry: {{memory: none, every: 500ms}}
"""
    )
    return sheet


def tailgate(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [TAILGATE, *argv],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr, sep="\n")  # shown by -rA: it is part of the proof
    return done


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def rows(run_dir: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((run_dir / "requests").glob("*.jsonl.gz")):
        with gzip.open(file, "rt") as lines:
            next(lines)  # the header
            yield from map(json.loads, lines)


def survivors(run_id: str) -> list[str]:
    """Return the processes that still carry the run's mark in their environment."""
    mark = f"TAILGATE_RUN_ID={run_id}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = mark in environ.read_bytes().split(b"\0")
            command = environ.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone meanwhile, or not ours
        if (
            marked and command
        ):  # a zombie has no command line; its parent outside decides when it goes
            found.append(command)
    return found


@pytest.fixture(scope="module")
def passed(engine_sheet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of one run under the wide SLA; the engine is started once for it."""
    work = tmp_path_factory.mktemp("work")
    done = tailgate(
        *("run", "--engine", engine_sheet, "--profile", FIXTURES / "profile.yaml"),
        *("--sla", FIXTURES / "wide.yaml", "--out", work / "run"),
        cwd=work,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return work / "run"


def test_a_wide_sla_passes(passed: Path) -> None:
    verdict = read_json(passed / "verdict.json")
    assert verdict["ruling"] == "PASS"
    assert verdict["exit_code"] == 0
    assert verdict["simulated"] is False
    assert {check["ruling"] for check in verdict["checks"]} == {"PASS"}


def test_the_trace_was_replayed_as_recorded_and_scaled(passed: Path) -> None:
    measured = [row for row in rows(passed) if row["phase"] == "measure"]
    code = [row for row in measured if row["tenant"] == "code"]
    assert len(code) == TRACE_ROWS
    assert {row["outcome"] for row in measured} == {"completed"}
    assert {row["usage_from"] for row in measured} == {"server"}
    assert all(row["output_tokens"] == row["output_planned"] for row in measured)
    assert [row for row in measured if row["tenant"] == "chat"]


def test_the_engine_was_watched(passed: Path) -> None:
    with gzip.open(passed / "engine" / "metrics.jsonl.gz", "rt") as lines:
        samples = [json.loads(line) for line in lines][1:]
    assert max(sample["running"] or 0 for sample in samples) > 0
    assert max(sample["kv_usage_share"] or 0 for sample in samples) > 0
    assert (passed / "report.html").stat().st_size > 0


def test_no_process_is_left(passed: Path) -> None:
    assert survivors(read_json(passed / "manifest.json")["run_id"]) == []


def test_a_tight_sla_is_broken_on_the_same_evidence_and_in_a_run(
    passed: Path, engine_sheet: Path, tmp_path: Path
) -> None:
    again = tailgate("check", passed, "--sla", FIXTURES / "tight.yaml", cwd=tmp_path)
    assert again.returncode == 99, again.stderr

    done = tailgate(
        *("run", "--engine", engine_sheet, "--profile", FIXTURES / "profile.yaml"),
        *("--sla", FIXTURES / "tight.yaml", "--quick", "--out", tmp_path / "run"),
        cwd=tmp_path,
    )
    assert done.returncode == 99, done.stdout + done.stderr
    rulings = {
        check["expr"]: check["ruling"]
        for check in read_json(tmp_path / "run" / "verdict.json")["checks"]
    }
    assert rulings == {"e2e.p50{tenant=chat} <= 1500ms": "FAIL", "error_rate <= 1%": "PASS"}
    assert survivors(read_json(tmp_path / "run" / "manifest.json")["run_id"]) == []
