from __future__ import annotations

import os
import subprocess
import time
from uuid import uuid4

import pytest

from launchers.launch import dry_run
from launchers.marked import kill_marked, marked
from launchers.spec import EngineSpec, Telemetry


def test_only_processes_with_every_mark_are_found_and_killed() -> None:
    run = uuid4().hex
    marks = {"TAILGATE_RUN_ID": run, "TAILGATE_PART": "engine"}
    engine = subprocess.Popen(["sleep", "600"], env={**os.environ, **marks})
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, **marks, "TAILGATE_PART": "x"})
    try:
        # a child that is still on its way to exec shows its parent's environment
        until_s = time.monotonic() + 30
        while len(marked({"TAILGATE_RUN_ID": run})) < 2:
            assert time.monotonic() < until_s
        assert marked(marks) == (engine.pid,)
        assert marked({"TAILGATE_RUN_ID": run[:-1]}) == ()
        assert kill_marked(marks) == (engine.pid,)
        assert engine.wait(30) == -9
        assert other.poll() is None
    finally:
        for process in (engine, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("memory", "env", "shown"),
    [
        ("nvml", {}, "CUDA_DEVICE_ORDER=PCI_BUS_ID vllm serve"),
        (
            "nvml",
            {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
            "CUDA_DEVICE_ORDER=FASTEST_FIRST vllm serve",
        ),
        ("none", {}, "vllm serve"),
    ],
)
def test_gpus_are_counted_as_their_watcher_counts_them(
    monkeypatch: pytest.MonkeyPatch, memory: str, env: dict[str, str], shown: str
) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    telemetry = Telemetry(memory=memory, dcgm_url=None, every_ns=10**9)
    spec = EngineSpec(
        name="v", engine="vllm", model="m", served_as="m", env=env, telemetry=telemetry
    )
    assert str(dry_run(spec)).startswith(shown)
