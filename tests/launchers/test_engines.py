from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchers.command import Command, File, FromEnv, flags
from launchers.engine import ENGINES
from launchers.spec import EngineSpec, Features, Limits, Memory, Parallel, Telemetry

FIXTURES = Path(__file__).with_name("fixtures")
VERSIONS = ("0.11.2", "0.16.0", "0.32.0", "0.33.0")
WATCHED = Telemetry(memory="none", dcgm_url=None, every_ns=10**9)
GIB = 1 << 30


def spec(**fields: Any) -> EngineSpec:
    defaults = {
        "name": "e",
        "engine": "vllm",
        "model": "org/m",
        "served_as": "m",
        "telemetry": WATCHED,
    }
    return EngineSpec(**{**defaults, **fields})


EVERYTHING = {
    "gpus": 8,
    "parallel": Parallel(tensor=2, pipeline=2, data=2),
    "memory": Memory(gpu_fraction=0.9, kv_dtype="fp8", offload_bytes=3 * GIB // 2),
    "limits": Limits(context=8192, sequences=256, batched_tokens=16384),
    "features": Features(prefix_cache=False, chunked_prefill=True, scheduling="priority"),
}
GOLDEN = {
    "as little as can be": (
        {},
        "vllm serve org/m --served-model-name m --host 127.0.0.1 --port 8123",
    ),
    "everything": (
        EVERYTHING,
        (
            "vllm serve org/m --served-model-name m --host 127.0.0.1 --port 8123"
            " --tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 2"
            " --gpu-memory-utilization 0.9 --kv-cache-dtype fp8 --kv-offloading-size 1.5"
            " --max-model-len 8192 --max-num-seqs 256 --max-num-batched-tokens 16384"
            " --scheduling-policy priority --no-enable-prefix-caching --enable-chunked-prefill"
        ),
    ),
    "an executable and raw options": (
        {
            "executable": "/v/bin/vllm",
            "gpus": 0,
            "memory": Memory(offload_bytes=0),
            "features": Features(prefix_cache=True, chunked_prefill=False),
            "options": {"dtype": "float32", "enforce-eager": True, "seed": 3},
        },
        (
            "/v/bin/vllm serve org/m --served-model-name m --host 127.0.0.1 --port 8123"
            " --enable-prefix-caching --no-enable-chunked-prefill"
            " --dtype float32 --enforce-eager --seed 3"
        ),
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_vllm_argv(case: str) -> None:
    fields, argv = GOLDEN[case]
    asked = spec(**fields)
    assert list(ENGINES["vllm"].objections(asked)) == []
    assert ENGINES["vllm"].command(asked, 8123).argv == tuple(argv.split())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_vllm_of_the_last_years_has_these_flags(version: str) -> None:
    known = set((FIXTURES / f"vllm-{version}.flags").read_text().split())
    command = ENGINES["vllm"].command(spec(**EVERYTHING), 1)
    other_way = Features(prefix_cache=True, chunked_prefill=False)
    words = (*command.argv, *ENGINES["vllm"].command(spec(features=other_way), 1).argv)
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"gpus": 4}, ("gpus",)),
        ({"features": Features(scheduling="lifo")}, ("features", "scheduling")),
        ({"options": {"port": 1}}, ("options", "port")),
        ({"options": {"served-model-name": "x"}}, ("options", "served-model-name")),
        (
            {"limits": Limits(context=5), "options": {"max_model_len": 5}},
            ("options", "max_model_len"),
        ),
        (
            {
                "features": Features(prefix_cache=True),
                "options": {"no-enable-prefix-caching": True},
            },
            ("options", "no-enable-prefix-caching"),
        ),
    ],
)
def test_what_vllm_objects_to(fields: dict[str, Any], field: tuple[str, ...]) -> None:
    found = list(ENGINES["vllm"].objections(spec(**fields)))
    assert [objection.field for objection in found] == [field]


@pytest.mark.parametrize("kind", [kind for kind in ENGINES if ENGINES[kind].started])
def test_an_engine_that_is_started_is_told_its_port_and_keeps_secrets_as_names(kind: str) -> None:
    env = {"HF_TOKEN": FromEnv(name="MY_TOKEN"), "A": "b"}
    asked = spec(
        engine=kind,
        gpus=1,
        preset="static",
        argv=("serve", "--at", "localhost:{port}", "{x}"),
        env=env,
    )
    assert list(ENGINES[kind].objections(asked)) == []
    command = ENGINES[kind].command(asked, 8123)
    assert any("8123" in word for word in command.argv)
    assert command.env == env
    assert command == ENGINES[kind].command(asked, 8123)  # pure


def test_a_command_keeps_all_braces_but_its_port() -> None:
    asked = spec(engine="command", argv=("serve", "{port}:{port}", "{a}", "{{port}}"))
    assert ENGINES["command"].command(asked, 7).argv == ("serve", "7:7", "{a}", "{7}")


def test_a_command_without_its_port_is_refused_unless_the_port_is_fixed() -> None:
    assert [o.field for o in ENGINES["command"].objections(spec(argv=("serve",)))] == [("argv",)]
    assert list(ENGINES["command"].objections(spec(argv=("serve",), port=8000))) == []


def test_options_become_flags() -> None:
    options = {"a": 1, "b": None, "c": [1, "x"], "d": {"k": [True]}, "e": 0.5, "f": "two words"}
    words = ("--a", "1", "--b", "--c", "1", "x", "--d", '{"k":[true]}', "--e", "0.5")
    assert flags(options) == (*words, "--f", "two words")


def test_a_command_without_files_keeps_its_words() -> None:
    assert Command(argv=("a", "{files}")).with_files_in(Path("/x")).argv == ("a", "{files}")
    with_file = Command(argv=("a", "{files}/f"), files=(File(name="f", text=""),))
    assert with_file.with_files_in(Path("/x")).argv == ("a", "/x/f")
