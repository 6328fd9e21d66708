from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from launchers.command import FromEnv
from launchers.spec import EngineSheet, EngineSpec, attach, read_engine, watched_by_dcgm
from profiles.sheet import RefusalError, SheetError, catalogue, find, json_schema

FULL = """\
version: 1
engine: vllm
engine_version: "0.33"
model: meta-llama/Llama-3.1-8B-Instruct
served_as: llama
gpus: 4
place: {kind: local}
replicas: 1
parallel: {tensor: 4, pipeline: 1, data: 1}
memory: {gpu_fraction: 0.92, kv_dtype: auto, offload: 0GiB}
limits: {context: 8192, sequences: 256, batched_tokens: 8192}
features: {prefix_cache: true, chunked_prefill: true, scheduling: fcfs}
options: {}
env: {HF_TOKEN: {from_env: MY_TOKEN}, OMP_NUM_THREADS: "1"}
ready_within: 20m
telemetry: {memory: nvml, every: 1s}
"""


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def read(sheet: Path, text: str) -> EngineSpec:
    sheet.write_text(text)
    return read_engine(sheet)[0]


def faults(sheet: Path, text: str) -> list[str]:
    with pytest.raises(SheetError) as refused:
        read(sheet, text)
    assert all(fault.mend for fault in refused.value.faults)
    return [f"{f.spot.line}:{f.spot.column}: {f.field}: {f.fault}" for f in refused.value.faults]


def test_the_sheet_of_the_design(sheet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    spec = read(sheet, FULL)
    assert (spec.name, spec.engine, spec.served_as, spec.gpus) == ("mine", "vllm", "llama", 4)
    assert spec.parallel.tensor == 4
    assert spec.memory.offload_bytes == 0
    assert spec.ready_within_ns == 20 * 60 * 10**9
    assert spec.env == {"HF_TOKEN": FromEnv(name="MY_TOKEN"), "OMP_NUM_THREADS": "1"}
    assert "hunter2" not in repr(spec)


def test_what_is_required_of_every_sheet(sheet: Path) -> None:
    assert faults(sheet, "engine: sim\npreset: static\n") == [
        "1:1: version: required and not given"
    ]
    assert faults(sheet, "version: 1\n") == ["1:1: engine: required and not given"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("engine: vlm", "2:9: engine: no engine is called 'vlm'"),
        ("engine: tensorrt-llm", "2:9: engine: tensorrt-llm is not yet supported"),
        ("engine: sglang", "2:9: engine: sglang is not yet supported"),
        ("engine: sim", "1:1: preset: a sim engine needs a preset"),
        ("engine: command", "1:1: argv: a command engine needs the words that start it"),
        ("engine: attach", "1:1: url: an attached engine needs the URL of its server"),
        ("engine: vllm", "1:1: model: requests must name a model"),
    ],
)
def test_an_engine_says_what_it_needs(sheet: Path, line: str, fault: str) -> None:
    assert fault in faults(sheet, f"version: 1\n{line}\n")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("preset: statik", "4:9: preset: the simulator has no preset 'statik'"),
        ("place: {kind: slurm}", "4:15: place.kind: the place slurm is not yet supported"),
        ("place: {kind: lokal}", "4:15: place.kind: no place is called 'lokal'"),
        ("replicas: 2", "4:11: replicas: more than one replica is not yet supported"),
        ("price: {gpu_hour: $2.80}", "4:1: price: 'price' is not yet supported"),
        ("effort: {days: 12, day_rate: $700}", "4:1: effort: 'effort' is not yet supported"),
        ("limits: {context: 8}", "4:1: limits: the engine sim does not read limits"),
        ("url: http://here", "4:6: url: the engine sim does not read url"),
        ("gpus: 0", "4:7: gpus: the simulator simulates GPUs"),
        ("port: 70000", "4:7: port: must be at most 65535, got 70000"),
        ("ready_within: 30", "4:15: ready_within: duration '30' has no unit"),
        (
            "env: {OMP_NUM_THREADS: 1}",
            "4:24: env.OMP_NUM_THREADS: a variable's value is a text, got 1",
        ),
        (
            "env: {HF_TOKEN: hf_abc}",
            "4:17: env.HF_TOKEN: HF_TOKEN looks like a secret written in plain text",
        ),
        (
            "env: {HF_TOKEN: {from_env: NO_SUCH_VARIABLE}}",
            "4:7: env.HF_TOKEN: the variable NO_SUCH_VARIABLE is not set",
        ),
        (
            "env: {HF_TOKEN: {from_env: PATH, x: z}}",
            "4:34: env.HF_TOKEN.x: unknown key 'x'",
        ),
        (
            "options: {api-key: abc}",
            "4:20: options.api-key: a secret in --api-key would be readable in the process list",
        ),
        ("options: {--dtype: auto}", "4:20: options.--dtype: '--dtype' is no flag"),
        (
            "telemetry: {memory: dcgm}",
            "4:21: telemetry.memory: dcgm needs the address of its page",
        ),
        ("telemetry: {memory: amdsmi}", "4:21: telemetry.memory: amdsmi is not yet supported"),
        ("telemetry: {memory: nvm}", "4:21: telemetry.memory: unknown memory source 'nvm'"),
        (
            "telemetry: {every: 1ms}",
            "4:20: telemetry.every: an interval under 10 ms would disturb what it watches",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(sheet: Path, line: str, fault: str) -> None:
    start = "version: 1\nengine: sim\n" + ("# \n" if "preset" in line else "preset: static\n")
    found = faults(sheet, f"{start}{line}\n")
    assert [f.lower() for f in found] == [fault.lower()]


def test_all_faults_are_told_at_once(sheet: Path) -> None:
    text = (
        "version: 1\nengine: vllm\nmodel: m\ngpus: 2\nargv: [a]\n"
        "features: {scheduling: lifo}\noptions: {max-model-len: 5}\nlimits: {context: 9}\n"
        "env: {API_KEY: x}\n"
    )
    fields = [fault.split(": ")[1] for fault in faults(sheet, text)]
    assert fields == ["gpus", "argv", "features.scheduling", "options.max-model-len", "env.API_KEY"]


@pytest.mark.parametrize(
    ("written", "memory", "url"),
    [
        ("engine: sim\npreset: static", "dcgm", None),
        ("engine: vllm\nmodel: m", "nvml", None),
        ("engine: vllm\nmodel: m\ngpus: 0", "none", None),
        ('engine: command\nmodel: m\nargv: [a, "{port}"]', "none", None),
        ("engine: attach\nmodel: m\nurl: http://h:1/v1", "none", None),
        (
            "engine: attach\nmodel: m\nurl: http://h:1\ntelemetry: {memory: {dcgm: http://h:9400/metrics}}",
            "dcgm",
            "http://h:9400/metrics",
        ),
    ],
)
def test_what_watches_the_memory(sheet: Path, written: str, memory: str, url: str | None) -> None:
    telemetry = read(sheet, f"version: 1\n{written}\n").telemetry
    assert (telemetry.memory, telemetry.dcgm_url) == (memory, url)
    assert telemetry.every_ns == 10**9


def test_an_executable_with_a_slash_is_beside_the_sheet(sheet: Path) -> None:
    text = "version: 1\nengine: vllm\nmodel: m\nexecutable: "
    assert read(sheet, f"{text}venv/bin/vllm\n").executable == str(sheet.parent / "venv/bin/vllm")
    assert read(sheet, f"{text}vllm-nightly\n").executable == "vllm-nightly"


def test_a_server_to_attach_to_is_reachable_now_or_not(sheet: Path) -> None:
    assert attach("https://api.example/v1", "m").ready_within_ns == 0
    text = "version: 1\nengine: attach\nmodel: m\nurl: http://h:1\n"
    assert read(sheet, text).ready_within_ns == 0
    assert read(sheet, f"{text}ready_within: 5s\n").ready_within_ns == 5 * 10**9


@pytest.mark.parametrize(
    "url", ["here:8000", "ftp://here", "http://", "http://u:p@h", "http://h:x", "http://h/?a=1"]
)
def test_what_is_no_address_is_refused(sheet: Path, url: str) -> None:
    with pytest.raises(RefusalError):
        attach(url, "m")
    with pytest.raises(RefusalError):
        watched_by_dcgm(attach("http://h:1", "m"), url)
    found = faults(sheet, f'version: 1\nengine: attach\nmodel: m\nurl: "{url}"\n')
    assert found[0].startswith("4:6: url: ")


def test_dcgm_from_the_command_line_takes_over() -> None:
    spec = watched_by_dcgm(attach("http://h:1", "m"), "http://h:9400/metrics")
    assert (spec.telemetry.memory, spec.telemetry.dcgm_url) == ("dcgm", "http://h:9400/metrics")


@pytest.mark.parametrize("name", sorted(catalogue("launchers")))
def test_the_catalogue_reads(name: str) -> None:
    spec, _ = read_engine(find(name, "launchers"))
    assert spec.name == name
    assert catalogue("launchers")[name]


def test_the_schema_fits_the_sheet() -> None:
    schema = json_schema(EngineSheet)
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator(schema)
    good = {"version": 1, "engine": "sim", "preset": "static"}
    env = {"A": "b", "T": {"from_env": "T"}}
    watched = {"memory": {"dcgm": "http://h:9400"}, "every": "1s"}
    assert judge.is_valid({**good, "env": env, "telemetry": watched})
    assert not judge.is_valid({**good, "env": {"A": 1}})
    assert not judge.is_valid({**good, "env": {"A": {"from": "T"}}})
    assert not judge.is_valid({**good, "telemetry": {"memory": "nvm"}})
    assert not judge.is_valid({**good, "ready_within": 30})


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            "gpus: 4\ntelemetry: {memory: {dcgm: http://h/m}, gpus: [0, 1]}",
            "telemetry.gpus: 2 of the engine's GPUs are named, and it uses 4",
        ),
        ("telemetry: {gpus: [0, 1, 0]}", "telemetry.gpus[2]: GPU 0 is named twice"),
        ("telemetry: {gpus: []}", "telemetry.gpus: must not be empty"),
        ("telemetry: {gpus: [-1]}", "telemetry.gpus[0]: must be at least 0, got -1"),
        ("telemetry: {memory: none, gpus: [1]}", "telemetry.gpus: no GPU is watched"),
    ],
)
def test_gpus_that_cannot_be_the_engines(sheet: Path, lines: str, fault: str) -> None:
    said = faults(sheet, f"version: 1\nengine: attach\nurl: http://h:1\nmodel: m\n{lines}\n")
    assert any(fault in one for one in said)


def test_the_gpus_to_watch_are_named(sheet: Path) -> None:
    text = "version: 1\nengine: attach\nurl: http://h:1\nmodel: m\ntelemetry: {gpus: [2, 0]}\n"
    spec = watched_by_dcgm(read(sheet, text), "http://h:9400/metrics")
    assert (spec.telemetry.memory, spec.telemetry.gpus) == ("dcgm", (2, 0))


@pytest.mark.parametrize("engine", ["vlm", "sglang"])
def test_what_an_unknown_engine_has_wrong_is_told_too(sheet: Path, engine: str) -> None:
    told = faults(sheet, f"version: 1\nengine: {engine}\ngpus: -1\n")
    assert [one.partition(": ")[0] for one in told] == ["2:9", "3:7"]


def test_a_field_that_is_not_read_is_told_beside_one_that_is_wrong(sheet: Path) -> None:
    text = "version: 1\nengine: attach\nurl: http://h:1\nmodel: m\nargv: 3\ngpus: -1\n"
    told = faults(sheet, text)
    assert "5:7: argv: the engine attach does not read argv" in told
    assert any(one.startswith("6:7: gpus: ") for one in told)


def test_what_no_process_can_be_given_is_told_with_its_place(sheet: Path) -> None:
    head = "version: 1\nengine: sim\npreset: static\n"
    assert faults(sheet, f'{head}env: {{"": "1", "A=B": "1"}}\noptions: {{seed: "a\\0b"}}\n') == [
        "4:11: env.'': '' is no name of a variable",
        "4:23: env.A=B: 'A=B' is no name of a variable",
        "5:17: options.seed: a NUL character stands for nothing in a sheet",
    ]


def test_a_program_of_a_user_who_is_not_there_is_looked_for_as_written(sheet: Path) -> None:
    spec = read(sheet, "version: 1\nengine: vllm\nmodel: m\nexecutable: ~nobody-here/vllm\n")
    assert spec.executable == str(sheet.parent / "~nobody-here/vllm")
