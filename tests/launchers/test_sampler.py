from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.dcgm import MIB
from launchers.sampler import Tally, next_tick, sample
from reports.samples import ENGINE, MEMORY, Sample, SampleWriter, read_samples
from slas.evidence import EngineSample, MemorySample
from tests.launchers.marks import eventually

HERE = Path(__file__).parent
H100 = "NVIDIA-H100"


@given(st.integers(1, 10**10), st.integers(0, 1000), st.integers(0, 10**13))
def test_the_next_tick_is_never_past_and_never_skips_one_that_is_to_come(
    every_ns: int, tick: int, late_ns: int
) -> None:
    now_ns = 7 + tick * every_ns + late_ns
    following = next_tick(7, every_ns, tick, now_ns)
    assert following > tick
    assert 7 + following * every_ns >= now_ns
    assert following == tick + 1 or 7 + (following - 1) * every_ns < now_ns


class Slow:
    """Every third look takes longer than two intervals."""

    def __init__(self, every_ns: int) -> None:
        self._every_ns = every_ns
        self._looks = 0

    def look(self) -> tuple[Sample, ...] | None:
        self._looks += 1
        at_ns = time.monotonic_ns()
        if self._looks % 3 == 0:
            time.sleep(2.2 * self._every_ns / 1e9)
        if self._looks == 2:
            return None
        return (EngineSample(at_ns=at_ns, kv_usage_share=0.5, running=1, waiting=0, preemptions=0),)

    def close(self) -> None:
        pass


def test_missed_ticks_are_counted_and_show_as_gaps(tmp_path: Path) -> None:
    every_ns = 50_000_000
    ended = time.monotonic() + 1.0

    def stopped(for_s: float) -> bool:
        time.sleep(for_s)
        return time.monotonic() > ended

    writer = SampleWriter(tmp_path / "m.jsonl.gz", ENGINE, {})
    tally = sample(Slow(every_ns), writer, every_ns, stopped)
    assert isinstance(tally, Tally)
    assert tally.failed == 1
    assert tally.missed >= 2
    stamps = [one.at_ns for one in read_samples(tmp_path / "m.jsonl.gz", ENGINE)]
    assert len(stamps) == tally.sweeps - tally.failed
    assert max(b - a for a, b in itertools.pairwise(stamps)) > 2 * every_ns
    assert tally.longest_sweep_ns > 2 * every_ns


class Sampler:
    """A sampler process, and what it says."""

    def __init__(self, out: Path, *words: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "launchers.sampler", *words, "--out", str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def end(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        last = self.told()
        assert self.process.wait(30) == 0
        return last

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Driver:
    """The fake library, built once, and the file that holds its GPUs."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._file = folder / "gpus"
        self.env = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(self._file)}

    def set(self, *gpus: tuple[int, int, int, int]) -> None:
        """Replace the GPUs by (total MiB, reserved MiB, used MiB, fault)."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(
            "".join(
                f"{total} {reserved} {used} {fault} {H100} GPU-{n}{n}\n"
                for n, (total, reserved, used, fault) in enumerate(gpus)
            )
        )
        fresh.replace(self._file)


def build(folder: Path, *defines: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the fake NVML cannot be built (apt-get install gcc)")
    out = folder / "libnvidia-ml.so.1"
    source = str(HERE / "fake_nvml.c")
    subprocess.run(["gcc", "-shared", "-fPIC", *defines, "-o", str(out), source], check=True)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> Driver:
    return Driver(tmp_path, library)


@pytest.fixture
def samplers() -> Iterator[list[Sampler]]:
    started: list[Sampler] = []
    yield started
    for sampler in started:
        sampler.close()


NVML = ("memory", "--node", "n1", "--source", "nvml")


def memory(path: Path) -> list[MemorySample]:
    return list(read_samples(path, MEMORY)) if path.exists() else []


def test_nvml_is_read_by_the_real_binding(
    driver: Driver, tmp_path: Path, samplers: list[Sampler]
) -> None:
    driver.set((81920, 600, 10000, 0), (81920, 600, 0, 0))
    out = tmp_path / "m.jsonl.gz"
    sampler = Sampler(out, *NVML, "--every-ns", "20000000", env=driver.env)
    samplers.append(sampler)
    gpus = sampler.told()
    assert gpus["gpus"][1] == {
        "node": "n1",
        "gpu": 1,
        "name": H100,
        "uuid": "GPU-11",
        "total_bytes": 81920 * MIB,
        "driver": "575.1-fake",
    }
    assert sampler.told() == {"event": "ready"}
    assert eventually(lambda: len(memory(out)) >= 4)
    driver.set((81920, 600, 30000, 0), (81920, 600, 0, 15))
    seen = len(memory(out))
    assert eventually(lambda: len(memory(out)) > seen + 4)
    end = sampler.end()
    found = memory(out)
    assert end["event"] == "end"
    assert (end["failed"], end["unwritten"]) == (0, 0)
    assert len(found) == 2 * end["sweeps"]

    first = [one for one in found if one.gpu == 0]
    # used is total - free, so what is reserved counts
    assert {one.used_bytes for one in first} == {10600 * MIB, 30600 * MIB}
    assert {one.total_bytes for one in first} == {81920 * MIB}
    assert all(one.before_ns <= one.after_ns for one in found)
    assert all(a.after_ns <= b.before_ns for a, b in itertools.pairwise(first))
    lost = [one for one in found if one.gpu == 1][-1]
    assert (lost.used_bytes, lost.total_bytes) == (None, None)
    assert lost.why == "NVML: GPU is lost"


def test_what_a_gpu_does_not_support_is_none_with_its_reason(
    driver: Driver, tmp_path: Path, samplers: list[Sampler]
) -> None:
    driver.set((0, 0, 0, 3))
    out = tmp_path / "m.jsonl.gz"
    sampler = Sampler(out, *NVML, "--every-ns", "20000000", env=driver.env)
    samplers.append(sampler)
    assert sampler.told()["gpus"][0]["total_bytes"] is None
    assert sampler.told() == {"event": "ready"}
    sampler.end()
    assert {(one.used_bytes, one.why) for one in memory(out)} == {(None, "NVML: Not Supported")}


@pytest.mark.parametrize("defines", [(), ("-DBEFORE_R510",)])
def test_what_a_driver_fills_with_ones_is_none(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    samplers: list[Sampler],
    defines: tuple[str, ...],
) -> None:
    blank = Driver(tmp_path, build(tmp_path_factory.mktemp("blank"), *defines))
    blank.set((81920, 600, 10000, -1))
    out = tmp_path / "m.jsonl.gz"
    sampler = Sampler(out, *NVML, "--every-ns", "20000000", env=blank.env)
    samplers.append(sampler)
    assert sampler.told()["gpus"][0]["total_bytes"] is None
    assert sampler.told() == {"event": "ready"}
    sampler.end()
    found = memory(out)
    assert {(one.used_bytes, one.total_bytes) for one in found} == {(None, None)}
    assert all("18446744073709551615" in str(one.why) for one in found)


def test_a_driver_from_before_the_second_call(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, samplers: list[Sampler]
) -> None:
    old = Driver(tmp_path, build(tmp_path_factory.mktemp("old"), "-DBEFORE_R510"))
    old.set((81920, 600, 10000, 0))
    out = tmp_path / "m.jsonl.gz"
    sampler = Sampler(out, *NVML, "--every-ns", "20000000", env=old.env)
    samplers.append(sampler)
    sampler.told()
    assert sampler.told() == {"event": "ready"}
    sampler.end()
    assert {one.used_bytes for one in memory(out)} == {10600 * MIB}


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ((), [0, 1, 2]),
        (("--first", "2"), [0, 1]),
        (("--visible", "2,1"), [1, 2]),
        (("--visible", "GPU-22,0", "--first", "1"), [2]),
        (("--gpus", "2,0"), [0, 2]),
        (("--least", "2"), [0, 1, 2]),
    ],
)
def test_only_the_gpus_that_the_engine_uses_are_watched(
    driver: Driver, tmp_path: Path, samplers: list[Sampler], words: tuple[str, ...], gpus: list[int]
) -> None:
    driver.set(*[(1000, 0, 0, 0)] * 3)
    sampler = Sampler(
        tmp_path / "m.jsonl.gz", *NVML, "--every-ns", "1000000000", *words, env=driver.env
    )
    samplers.append(sampler)
    assert [gpu["gpu"] for gpu in sampler.told()["gpus"]] == gpus


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--first", "4"), "the engine is to use 4 GPUs, and 3 of 3 are visible to it"),
        (("--visible", ""), "the engine is to use 1 GPU, and 0 of 3 are visible to it"),
        (("--visible=-1",), "the engine is to use 1 GPU, and 0 of 3 are visible to it"),
        (("--least", "4"), "the engine is to use 4 GPUs, and 3 of 3 are visible to it"),
        (("--gpus", "1,3"), "the engine sheet names GPU 3, and this machine has GPUs 0, 1, 2"),
    ],
)
def test_gpus_that_are_not_there_are_a_fault(
    driver: Driver, tmp_path: Path, samplers: list[Sampler], words: tuple[str, ...], cause: str
) -> None:
    driver.set(*[(1000, 0, 0, 0)] * 3)
    sampler = Sampler(
        tmp_path / "m.jsonl.gz", *NVML, "--every-ns", "1000000000", *words, env=driver.env
    )
    samplers.append(sampler)
    told = sampler.told()
    assert (told["event"], told["cause"]) == ("fault", cause)
    assert sampler.process.wait(30) == 1


def test_a_machine_without_a_driver_is_a_fault(
    driver: Driver, tmp_path: Path, samplers: list[Sampler]
) -> None:
    sampler = Sampler(tmp_path / "m", *NVML, "--every-ns", "1000000000", env=driver.env)
    samplers.append(sampler)
    told = sampler.told()
    assert told["cause"] == "NVML cannot be used here: Driver Not Loaded"
    assert "telemetry: {memory: none}" in told["mend"]


def test_samples_are_on_disk_when_the_sampler_is_killed(
    driver: Driver, tmp_path: Path, samplers: list[Sampler]
) -> None:
    driver.set((1000, 0, 10, 0))
    out = tmp_path / "m.jsonl.gz"
    sampler = Sampler(out, *NVML, "--every-ns", "20000000", env=driver.env)
    samplers.append(sampler)
    assert eventually(lambda: len(memory(out)) > 0)
    sampler.process.kill()
    sampler.process.wait()
    assert all(one.used_bytes == 10 * MIB for one in memory(out))


def test_a_samplers_owner_killed_by_9_takes_it_along(driver: Driver, tmp_path: Path) -> None:
    driver.set((1000, 0, 10, 0))
    out = tmp_path / "m.jsonl.gz"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-P", "-m", "launchers.sampler", *NVML]
    owner = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--every-ns", "20000000", "--out", str(out)],
        stdout=subprocess.PIPE,
        env={**os.environ, **driver.env},
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert eventually(lambda: len(memory(out)) > 0)
    owner.kill()
    owner.wait()
    owner.stdout.close()

    def gone() -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or ") Z " in stat.read_text()

    assert eventually(gone)
