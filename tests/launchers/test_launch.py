from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from launchers.command import FromEnv
from launchers.engine import LaunchError
from launchers.launch import SETTLE_NS, Running, dry_run, launch
from launchers.marked import marked
from launchers.place import PLACES
from launchers.ready import OnWait
from launchers.spec import EngineSpec, Telemetry, attach
from reports.rundir import RunDir
from reports.samples import ENGINE, MEMORY, read_samples
from tests.launchers.marks import eventually

SERVER = str(Path(__file__).with_name("tiny_server.py"))
OFF = Telemetry(memory="none", dcgm_url=None, every_ns=100_000_000)
OWN_PAGE = Telemetry(memory="dcgm", dcgm_url=None, every_ns=100_000_000)
SECOND_NS = 10**9


class Stage:
    """Launches engines for one test, and sees afterwards that nothing of them is left."""

    def __init__(self, folder: Path) -> None:
        self.run_id = uuid4().hex
        self.run_dir = RunDir.create(folder / "run")
        self.waited: list[str] = []
        self._running: list[Running] = []

    def launch(
        self, spec: EngineSpec, *, key: str | None = None, on_wait: OnWait | None = None
    ) -> Running:
        running = launch(
            spec,
            self.run_dir,
            run_id=self.run_id,
            api_key_env=key,
            on_wait=on_wait if on_wait is not None else self.waited.append,
        )
        self._running.append(running)
        return running

    def fails(
        self, spec: EngineSpec, *, key: str | None = None, on_wait: OnWait | None = None
    ) -> LaunchError:
        with pytest.raises(LaunchError) as refused:
            self.launch(spec, key=key, on_wait=on_wait)
        assert refused.value.exit_code == 3
        assert refused.value.mend
        assert self.left() == ()
        return refused.value

    def left(self) -> tuple[int, ...]:
        return marked({"TAILGATE_RUN_ID": self.run_id})

    def end(self) -> None:
        for running in self._running:
            running.stop()
        left = self.left()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == ()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr("launchers.launch.GRACE_S", 0.3)
    it = Stage(tmp_path)
    yield it
    it.end()


def tiny(*words: str, within_s: float = 60, telemetry: Telemetry = OFF) -> EngineSpec:
    return EngineSpec(
        name="tiny",
        engine="command",
        model="tiny",
        served_as="tiny",
        gpus=0,
        argv=(sys.executable, "-S", SERVER, "--port", "{port}", *words),
        ready_within_ns=int(within_s * SECOND_NS),
        telemetry=telemetry,
    )


@pytest.fixture
def server() -> Iterator[Callable[..., str]]:
    """Start servers that nobody launched; returns their URL."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, port: int | None = None) -> str:
        at = PLACES["local"]().free_port() if port is None else port
        argv = [sys.executable, "-S", SERVER, "--port", str(at), *words]
        started.append(subprocess.Popen(argv))
        assert eventually(lambda: listening(at))
        return f"http://127.0.0.1:{at}"

    yield start
    for process in started:
        process.kill()
        process.wait()


def listening(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


# --- what goes well --------------------------------------------------------------------------------------------


def test_an_engine_is_started_watched_and_stopped(stage: Stage) -> None:
    before_ns = time.monotonic_ns()
    running = stage.launch(tiny("--load-s", "1.6", "--say", "hello"))
    assert before_ns < running.ready_ns < time.monotonic_ns()
    assert running.url.startswith("http://127.0.0.1:")
    assert (running.model, running.version, running.simulated) == ("tiny", "0.33.0", False)
    assert running.argv[:4] == (sys.executable, "-S", SERVER, "--port")
    assert running.pid in stage.left()
    assert running.poll() is None
    assert running.engine_metrics
    assert running.wait_idle(5 * SECOND_NS) is True
    assert any("/health answers 503" in words for words in stage.waited)
    assert len(stage.left()) >= 4  # supervisor twice, engine, samplers

    time.sleep(0.5)
    running.stop()
    running.stop()
    assert stage.left() == ()
    assert (running.invalid, running.warnings) == ((), ())
    assert "hello" in stage.run_dir.engine_log.read_text()
    metrics = list(read_samples(stage.run_dir.engine_metrics, ENGINE))
    assert {(one.kv_usage_share, one.preemptions) for one in metrics} == {(0.25, 3.0)}


def test_memory_is_sampled_from_before_the_engine_is_ready(
    stage: Stage, server: Callable[..., str]
) -> None:
    page = f"{server()}/dcgm/metrics"
    running = stage.launch(
        tiny("--load-s", "0.5", telemetry=replace(OWN_PAGE, dcgm_url=page)),
    )
    (gpu,) = running.gpus
    assert (gpu.gpu, gpu.name, gpu.total_bytes) == (0, "toy", 4096 << 20)
    assert gpu.node == socket.gethostname()
    running.stop()
    samples = list(read_samples(stage.run_dir.memory_of(gpu.node), MEMORY))
    assert samples[0].after_ns < running.ready_ns
    assert {one.used_bytes for one in samples} == {1096 << 20}


def on_page(spec: EngineSpec, page: str, *gpus: int) -> EngineSpec:
    return replace(spec, telemetry=replace(OWN_PAGE, dcgm_url=page, gpus=gpus))


def test_a_page_with_fewer_gpus_than_the_engine_uses_is_refused(
    stage: Stage, server: Callable[..., str]
) -> None:
    url = server("--gpus", "1")
    page = f"{url}/dcgm/metrics"
    cause = f"the engine is to use 4 GPUs, and {page} shows GPU 0"
    assert stage.fails(on_page(replace(tiny(), gpus=4), page)).cause == cause
    assert stage.fails(on_page(replace(attach(url, "tiny"), gpus=4), page)).cause == cause
    named = stage.fails(on_page(attach(url, "tiny"), page, 0, 2))
    assert named.cause == f"the engine sheet names GPU 2, and {page} has GPU 0"


def test_a_page_that_comes_late_and_lacks_gpus_is_a_fault_of_ours(
    stage: Stage, server: Callable[..., str]
) -> None:
    port = PLACES["local"]().free_port()
    page = f"http://127.0.0.1:{port}/dcgm/metrics"
    running = stage.launch(on_page(replace(tiny(), gpus=2), page))
    assert "the memory sampler sees no GPU yet" in running.warnings
    server(port=port)
    node = socket.gethostname()
    assert eventually(lambda: stage.run_dir.memory_of(node).stat().st_size > 400)
    running.stop()
    assert running.invalid == (
        f"the memory sampler: the engine is to use 2 GPUs, and {page} shows GPU 0",
    )


def test_neighbours_gpus_are_not_watched_where_the_engines_are_known(
    stage: Stage, server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server("--gpus", "4")
    page = f"{url}/dcgm/metrics"

    def watched(spec: EngineSpec, *gpus: int) -> tuple[list[int], tuple[str, ...]]:
        running = stage.launch(on_page(spec, page, *gpus))
        running.stop()
        assert running.invalid == ()
        return [gpu.gpu for gpu in running.gpus], running.warnings

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("MINE", "3,GPU-1")
    secret = {"CUDA_VISIBLE_DEVICES": FromEnv(name="MINE")}
    assert watched(replace(tiny(), gpus=2), 1, 3) == ([1, 3], ())
    assert watched(attach(url, "tiny"), 2) == ([2], ())
    assert watched(replace(tiny(), gpus=2, env={"CUDA_VISIBLE_DEVICES": "2,3"})) == ([2, 3], ())
    assert watched(replace(tiny(), gpus=2, env=secret)) == ([1, 3], ())

    gpus, (warning,) = watched(replace(tiny(), gpus=2))
    assert gpus == [0, 1]
    assert "GPUs 0, 1 count as the engine's, since CUDA hands out the first" in warning
    gpus, (warning,) = watched(replace(attach(url, "tiny"), gpus=2))
    assert gpus == [0, 1, 2, 3]
    assert f"GPUs 0, 1, 2, 3 of {page} all count as the engine's" in warning


def test_cuda_counts_gpus_as_their_watchers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    for telemetry, order in (
        (OFF, None),
        (OWN_PAGE, None),
        (replace(OFF, memory="nvml"), "PCI_BUS_ID"),
        (replace(OWN_PAGE, dcgm_url="http://h:9400/metrics"), "PCI_BUS_ID"),
    ):
        command = dry_run(tiny(telemetry=telemetry))
        assert command is not None
        assert command.env.get("CUDA_DEVICE_ORDER") == order


def test_the_simulator_is_launched_with_its_own_page(stage: Stage) -> None:
    running = stage.launch(
        EngineSpec(
            name="sim",
            engine="sim",
            model="m",
            served_as="m",
            preset="fast",
            gpus=2,
            telemetry=OWN_PAGE,
        )
    )
    assert running.simulated
    assert [gpu.gpu for gpu in running.gpus] == [0, 1]
    assert running.engine_metrics
    assert running.poll() is None
    running.stop()
    assert (running.invalid, running.warnings) == ((), ())


def test_a_server_that_runs_is_attached_to_and_left_running(
    stage: Stage, server: Callable[..., str]
) -> None:
    url = server()
    for given in (url, f"{url}/", f"{url}/v1"):
        running = stage.launch(attach(given, "tiny"))
        assert (running.url, running.pid, running.argv) == (url, None, ())
        assert running.warnings == ()
        running.stop()
    assert listening(int(url.rpartition(":")[2]))


def test_a_simulator_is_known_when_attached_to(stage: Stage) -> None:
    own = stage.launch(
        EngineSpec(name="s", engine="sim", model="m", served_as="m", preset="fast", telemetry=OFF)
    )
    assert stage.launch(attach(own.url, "m")).simulated


def test_a_secret_reaches_the_engine_and_nothing_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    spec = replace(
        tiny(),
        argv=("sh", "-c", 'echo "${#HF_TOKEN} letters"; exec "$0" "$@"', *tiny().argv),
        env={"HF_TOKEN": FromEnv(name="MY_TOKEN")},
    )
    assert "hunter2" not in str(dry_run(spec))
    assert 'HF_TOKEN="$MY_TOKEN"' in str(dry_run(spec))
    running = stage.launch(spec)
    assert "7 letters" in stage.run_dir.engine_log.read_text()
    running.stop()
    for file in stage.run_dir.path.rglob("*"):
        assert file.is_dir() or b"hunter2" not in file.read_bytes()
    assert "hunter2" not in repr(running.argv)


def test_a_busy_engine_is_not_idle(stage: Stage) -> None:
    running = stage.launch(tiny("--running", "2"))
    assert running.wait_idle(SECOND_NS // 2) is False


def test_an_engine_that_cannot_show_it_is_idle_is_given_time_to_settle(
    stage: Stage,
) -> None:
    running = stage.launch(tiny("--mute"))
    before_ns = time.monotonic_ns()
    assert running.wait_idle(30 * SECOND_NS) is None
    assert time.monotonic_ns() - before_ns >= SETTLE_NS


def test_dry_run_starts_nothing() -> None:
    command = dry_run(tiny())
    assert command is not None
    assert "{port}" not in command.argv
    assert dry_run(attach("http://127.0.0.1:1", "m")) is None


def test_another_version_than_asked_for_is_a_warning(stage: Stage) -> None:
    running = stage.launch(replace(tiny(), engine_version="0.32"))
    assert running.warnings == ("the sheet says version 0.32, and the engine is 0.33.0",)
    assert running.version == "0.33.0"


# --- what goes wrong before the engine is ready ----------------------------------------------------------------


def test_an_engine_that_exits_while_it_loads(stage: Stage) -> None:
    fault = stage.fails(tiny("--say", "torch.OutOfMemoryError: CUDA out of memory", "--exit", "1"))
    assert fault.cause.startswith("the engine exited with status 1 after ")
    assert fault.cause.endswith("before it was ready: the GPU is out of memory")
    assert "gpu_fraction" in fault.mend
    assert fault.log_tail == ("torch.OutOfMemoryError: CUDA out of memory",)


def test_an_exit_with_status_0_is_a_fault_too(stage: Stage) -> None:
    assert "exited with status 0" in stage.fails(tiny("--exit", "0")).cause


def test_an_engine_that_never_gets_ready(stage: Stage) -> None:
    fault = stage.fails(tiny("--say", "Loading shard 1 of 9", "--load-s", "600", within_s=1.5))
    assert "the engine was not ready after 1." in fault.cause
    assert "/health answers 503" in fault.cause
    assert "ready_within" in fault.mend
    assert fault.log_tail == ("Loading shard 1 of 9",)


def test_an_engine_that_never_listens(stage: Stage) -> None:
    fault = stage.fails(tiny("--deaf", "--stubborn", "--children", "2", within_s=1))
    assert "nobody answers on port" in fault.cause


def test_a_healthy_server_whose_model_does_not_work(stage: Stage) -> None:
    fault = stage.fails(tiny("--completion", "500", within_s=1.5))
    assert "/v1/chat/completions answers 500 to a request for one token" in fault.cause


def test_a_server_without_chat_answers_completions(stage: Stage) -> None:
    assert stage.launch(tiny("--chat", "400")).poll() is None


def test_only_the_last_lines_of_the_log_are_shown(stage: Stage) -> None:
    fault = stage.fails(tiny("--say", "\n".join(f"line {n}" for n in range(50)), "--exit", "1"))
    assert fault.log_tail == tuple(f"line {n}" for n in range(30, 50))
    assert "line 49" in str(fault)


def test_another_model_than_asked_for(stage: Stage) -> None:
    fault = stage.fails(replace(tiny(), served_as="llama"))
    assert fault.cause == "the server does not offer the model 'llama'; it offers 'tiny'"


def test_a_program_that_is_not_there(stage: Stage) -> None:
    fault = stage.fails(replace(tiny(), argv=("no-such-engine", "{port}")))
    assert fault.cause == "there is no program 'no-such-engine' to start"


def test_a_port_that_is_taken(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        fault = stage.fails(replace(tiny(), port=port))
    assert fault.cause.startswith(f"port {port} is taken by pid {os.getpid()} (")


def test_a_listener_that_is_not_the_engine(stage: Stage) -> None:
    # the engine is deaf, and somebody else comes to answer in its place
    port = PLACES["local"]().free_port()
    usurpers: list[subprocess.Popen[bytes]] = []

    def come(_words: str) -> None:
        if not usurpers:
            argv = [sys.executable, "-S", SERVER, "--port", str(port)]
            usurpers.append(subprocess.Popen(argv))

    try:
        fault = stage.fails(replace(tiny("--deaf"), port=port), on_wait=come)
    finally:
        for usurper in usurpers:
            usurper.kill()
            usurper.wait()
    assert f"port {port} is answered by pid {usurpers[0].pid} (" in fault.cause
    assert "not the engine that was started" in fault.cause


def test_a_port_lost_between_picking_and_binding_is_picked_again(
    stage: Stage, server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = PLACES["local"]
    picked = local.free_port
    lost = int(server().rpartition(":")[2])
    ports = iter([lost])
    monkeypatch.setattr(local, "free_port", lambda self: next(ports, None) or picked(self))
    monkeypatch.setattr("launchers.launch.check_port_is_free", lambda place, port: None)
    running = stage.launch(tiny())
    assert not running.url.endswith(f":{lost}")


def test_a_key_variable_that_is_not_set(stage: Stage) -> None:
    assert "NO_SUCH_KEY is not set" in stage.fails(tiny(), key="NO_SUCH_KEY").cause


@pytest.mark.parametrize("key", [None, "WRONG"])
def test_a_started_engine_that_refuses_our_key(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.setenv("WRONG", "guess")
    fault = stage.fails(tiny("--key", "sesame"), key=key)
    assert "(401)" in fault.cause
    assert "guess" not in str(fault)


# --- what goes wrong when attaching ----------------------------------------------------------------------------


def test_nobody_at_the_address(stage: Stage) -> None:
    port = PLACES["local"]().free_port()
    fault = stage.fails(attach(f"http://127.0.0.1:{port}", "m"))
    assert fault.cause == f"http://127.0.0.1:{port} is unreachable: connection refused"


def test_an_address_that_does_not_exist(stage: Stage) -> None:
    fault = stage.fails(attach("http://no-such-host.invalid:8000", "m"))
    assert fault.cause.endswith("is unreachable: the name of its host is not known")


def test_a_server_may_be_waited_for(stage: Stage) -> None:
    port = PLACES["local"]().free_port()
    argv = f"sleep 0.7; exec {sys.executable} -S {SERVER} --port {port}"
    late = subprocess.Popen(["sh", "-c", argv])
    try:
        spec = attach(f"http://127.0.0.1:{port}", "tiny")
        running = stage.launch(replace(spec, ready_within_ns=60 * SECOND_NS))
        assert running.url.endswith(f":{port}")
    finally:
        late.kill()
        late.wait()


def test_a_wrong_model_is_named_with_those_on_offer(
    stage: Stage, server: Callable[..., str]
) -> None:
    fault = stage.fails(attach(server("--model", "llama-8b"), "llama-7b"))
    assert fault.cause == "the server does not offer the model 'llama-7b'; it offers 'llama-8b'"
    assert "llama-8b" in fault.mend


def test_a_wrong_model_of_a_server_that_lists_none(
    stage: Stage, server: Callable[..., str]
) -> None:
    fault = stage.fails(attach(server("--models", "404"), "llama-7b"))
    assert fault.cause.startswith("the server does not know the model 'llama-7b'")


def test_a_key_is_wanted_or_refused_and_never_shown(
    stage: Stage, server: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server("--key", "sesame")
    assert "--api-key-env" in stage.fails(attach(url, "tiny")).mend
    monkeypatch.setenv("MY_KEY", "guess")
    fault = stage.fails(attach(url, "tiny"), key="MY_KEY")
    assert "refuses the key in MY_KEY" in fault.cause
    assert "guess" not in str(fault)
    monkeypatch.setenv("MY_KEY", "sesame")
    assert stage.launch(attach(url, "tiny"), key="MY_KEY").warnings == ()


@pytest.mark.parametrize("status", ["429", "500", "503"])
def test_a_busy_server_is_a_warning(stage: Stage, server: Callable[..., str], status: str) -> None:
    running = stage.launch(attach(server("--completion", status), "tiny"))
    assert any(f"answers {status}" in warning for warning in running.warnings)


def test_a_server_that_never_answers_right_is_no_server(
    stage: Stage, server: Callable[..., str]
) -> None:
    fault = stage.fails(attach(server("--completion", "400"), "tiny"))
    assert "/v1/completions answers 400" in fault.cause


# --- what goes wrong later ---------------------------------------------------------------------------------------


def test_an_engine_killed_by_9_is_noticed_within_a_second(stage: Stage) -> None:
    running = stage.launch(tiny("--children", "2"))
    assert running.pid is not None
    os.kill(running.pid, signal.SIGKILL)
    assert eventually(lambda: running.poll() is not None, within_s=1)
    assert running.poll() == "engine was killed by signal 9 (SIGKILL)"


def test_an_engine_that_leaves_with_status_0_is_a_fault(stage: Stage) -> None:
    running = stage.launch(tiny("--exit-after", "3"))
    assert eventually(lambda: running.poll() is not None)
    assert running.poll() == "engine exited with status 0"
    with stage.run_dir.engine_log.open("a") as log:
        log.write("torch.OutOfMemoryError: CUDA out of memory.\n")
    assert running.poll() == "engine exited with status 0: the GPU is out of memory"


def test_a_supervisor_killed_by_9_ends_the_engine_and_is_noticed(stage: Stage) -> None:
    running = stage.launch(tiny("--children", "2", "--stubborn"))
    assert running.pid is not None
    guardian = int(Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guardian, signal.SIGKILL)
    assert eventually(lambda: running.poll() is not None)


def test_a_sampler_killed_by_9_is_a_fault_of_ours(stage: Stage) -> None:
    running = stage.launch(tiny())
    (sampler,) = marked({"TAILGATE_RUN_ID": stage.run_id, "TAILGATE_PART": "sampler"})
    os.kill(sampler, signal.SIGKILL)
    running.stop()
    assert running.invalid == ("the metrics sampler ended by itself with status -9",)


def test_a_controller_that_dies_takes_everything_along(tmp_path: Path) -> None:
    run_id = uuid4().hex
    code = f"""
import sys, time
from pathlib import Path
from launchers.launch import launch
from launchers.spec import EngineSpec, Telemetry
from reports.rundir import RunDir
spec = EngineSpec(
    name="t", engine="command", model="tiny", served_as="tiny",
    argv=({sys.executable!r}, "-S", {SERVER!r}, "--port", "{{port}}", "--children", "2", "--stubborn"),
    telemetry=Telemetry(memory="none", dcgm_url=None, every_ns=10**9),
)
running = launch(spec, RunDir.create(Path({str(tmp_path / "run")!r})), run_id={run_id!r})
print("up", flush=True)
time.sleep(600)
"""
    controller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert controller.stdout is not None
    assert controller.stdout.readline() == b"up\n"
    assert len(marked({"TAILGATE_RUN_ID": run_id})) >= 5
    controller.kill()
    controller.wait()
    controller.stdout.close()
    assert eventually(lambda: marked({"TAILGATE_RUN_ID": run_id}) == ())


def test_a_key_that_no_header_takes_starts_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2\nX-Evil: 1")
    fault = stage.fails(tiny(), key="MY_KEY")
    assert "MY_KEY holds the end of a line" in fault.cause
    assert "hunter2" not in f"{fault} {fault.mend}"
    assert not stage.run_dir.engine_log.exists()


def test_arguments_longer_than_the_system_takes_start_nothing(stage: Stage) -> None:
    # Linux takes 128 KiB a word
    assert "longer than the system takes" in stage.fails(tiny("--say", "x" * 200_000)).cause
