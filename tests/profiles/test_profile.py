from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from profiles.arrivals.gamma import Gamma
from profiles.arrivals.poisson import Poisson
from profiles.lengths import Fixed, Lognormal
from profiles.profile import MOST_SURGES, MOST_TENANTS, ProfileSheet, read_profile
from profiles.sheet import SheetError, catalogue, find, json_schema

S = 10**9
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "traffic.yaml"
    path.write_text(text)
    return path


def faults_of(tmp_path: Path, text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(SheetError) as caught:
        read_profile(write(tmp_path, text))
    assert all(fault.mend for fault in caught.value.faults)
    return [
        (f"{fault.spot.line}:{fault.spot.column}", fault.field, fault.fault)
        for fault in caught.value.faults
    ]


def test_a_rate_is_all_that_a_profile_needs(tmp_path: Path) -> None:
    profile, sheet = read_profile(
        write(tmp_path, "version: 1\ntenants:\n  chat: {rate: 1/s}\n  loop: {concurrency: 2}\n")
    )
    assert sheet.value.version == 1
    assert (profile.name, profile.seed, profile.max_in_flight) == ("traffic", 0, None)
    assert (profile.warmup_ns, profile.duration_ns, profile.drain_ns) == (10 * S, 60 * S, 30 * S)
    timeouts = profile.timeouts
    assert (timeouts.connect_ns, timeouts.first_token_ns, timeouts.idle_ns, timeouts.total_ns) == (
        *(5 * S, 30 * S, 30 * S, 300 * S),
    )
    chat, loop = profile.tenants
    assert (chat.name, chat.rate_hz, chat.concurrency, chat.api) == ("chat", 1.0, None, "chat")
    assert chat.arrival == Poisson()
    assert isinstance(chat.prompt_tokens, Lognormal)
    assert (loop.rate_hz, loop.concurrency, loop.arrival, loop.closed) == (None, 2, None, True)
    assert profile.constant_rate


def test_everything_that_a_profile_can_say(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    text = """\
version: 1
seed: 9
warmup: 0s
duration: 30s
drain: 1m
timeouts: {first_token: 2s}
max_in_flight: 500
surges:
  - {at: 10s, for: 5s, factor: 6, tenants: [chat]}
  - {at: 1s, for: 1s, factor: 0.5}
tenants:
  chat:
    rate: 30/min
    arrivals: {model: gamma, cv: 4}
    prompt_tokens: 7
    output_tokens: {min: 2, max: 3}
  replay:
    trace: {file: t.csv, format: azure, speed: 2, dequantise: none}
    api: completions
  batch: {concurrency: 8}
"""
    profile, _ = read_profile(write(tmp_path, text))
    assert [(s.at_ns, s.for_ns, s.factor, s.tenants) for s in profile.surges] == [
        (10 * S, 5 * S, 6.0, ("chat",)),
        (S, S, 0.5, ("chat", "replay")),
    ]
    chat, replay, _ = profile.tenants
    assert (chat.rate_hz, chat.arrival) == (0.5, Gamma(cv=4))
    assert chat.prompt_tokens == Fixed(tokens=7)
    assert replay.trace is not None
    assert replay.trace.path == tmp_path / "t.csv"
    assert replay.mean_rate_hz == replay.trace.rate_hz > 0
    assert (profile.timeouts.first_token_ns, profile.timeouts.idle_ns) == (2 * S, 30 * S)
    assert not profile.constant_rate


def test_every_fault_of_a_profile_is_told_at_once(tmp_path: Path) -> None:
    text = """\
version: 1
warmup: 5
duration: 0s
surges:
  - {at: 30s, for: 5s, factor: 0, tenants: [chat, caht, batch, chat]}
tenants:
  chat:
    rate: 0/s
    arrivals: {model: posson}
  Code:
    rate: 1/s
    arrivals: {model: gamma, cv: 4, cvv: 3}
    output_tokens: {median: 10}
  slow:
    rate: -1/s
    arrivals: {model: weibull, cv: 2}
    prompt_tokens: 0
    sessions: {turns: 4}
    shared_prefix: {tokens: 512}
    priority: 0
  both: {rate: 1/s, concurrency: 2}
  none: {api: grpc}
  batch:
    concurrency: 0.5
    arrivals: {cv: 3}
  lost: {trace: {file: x.csv, format: mooncake, speed: 0}}
  rows: {trace: {file: x.csv, format: azur}, prompt_tokens: 5}
  loop: {concurrency: 2, arrivals: {model: poisson}}
  idle: {}
  on:
    rate: 5
    arrivals: {model: gama}
  deep: {rate: 1/s, prompt_tokens: {median: 9, p95: 5}, output_tokens: [5], arrivals: gamma}
"""
    told = faults_of(tmp_path, text)
    absent = "no such file: "
    assert [(spot, field, absent if absent in fault else fault) for spot, field, fault in told] == [
        ("2:9", "warmup", "duration '5' has no unit"),
        ("3:11", "duration", "must be more than 0"),
        ("5:32", "surges[0].factor", "must be more than 0, got 0"),
        ("5:51", "surges[0].tenants[1]", "unknown tenant 'caht'"),
        ("5:57", "surges[0].tenants[2]", "tenant 'batch' is a closed loop and cannot surge"),
        ("5:64", "surges[0].tenants[3]", "tenant 'chat' is named twice"),
        ("8:11", "tenants.chat.rate", "must be more than 0, got '0/s'"),
        ("9:23", "tenants.chat.arrivals.model", "unknown arrival model 'posson'"),
        ("10:3", "tenants.Code", "'Code' does not match ^[a-z0-9_-]{1,64}$"),
        ("12:37", "tenants.Code.arrivals.cvv", "unknown key 'cvv'"),
        ("13:5", "tenants.Code.output_tokens", "median does not describe lengths"),
        ("15:11", "tenants.slow.rate", "negative rate '-1/s'"),
        ("16:23", "tenants.slow.arrivals.model", "'weibull' is not yet supported"),
        ("17:20", "tenants.slow.prompt_tokens", "must be at least 1, got 0"),
        ("18:5", "tenants.slow.sessions", "'sessions' is not yet supported"),
        ("19:5", "tenants.slow.shared_prefix", "'shared_prefix' is not yet supported"),
        ("20:5", "tenants.slow.priority", "'priority' is not yet supported"),
        ("21:16", "tenants.both.rate", "rate and concurrency exclude each other"),
        ("22:3", "tenants.none", "no traffic: none of rate, concurrency and trace is given"),
        ("24:18", "tenants.batch.concurrency", "expected a whole number, got 0.5"),
        ("25:5", "tenants.batch.arrivals", "arrivals need a rate; this tenant has a concurrency"),
        ("25:5", "tenants.batch.arrivals.model", "required and not given"),
        ("26:24", "tenants.lost.trace.file", absent),
        ("26:39", "tenants.lost.trace.format", "'mooncake' is not yet supported"),
        ("26:56", "tenants.lost.trace.speed", "must be at least 0.001, got 0"),
        ("27:24", "tenants.rows.trace.file", absent),
        ("27:39", "tenants.rows.trace.format", "unknown trace format 'azur'"),
        ("27:61", "tenants.rows.prompt_tokens", "a trace has its own lengths"),
        ("28:26", "tenants.loop.arrivals", "arrivals need a rate; this tenant has a concurrency"),
        ("29:3", "tenants.idle", "no traffic: none of rate, concurrency and trace is given"),
        ("30:3", "tenants.on", "'on' is a truth value to some YAML readers"),
        ("31:11", "tenants.on.rate", "rate '5' has no unit"),
        ("32:23", "tenants.on.arrivals.model", "unknown arrival model 'gama'"),
        ("33:53", "tenants.deep.prompt_tokens.p95", "p95 5 is below the median 9"),
        ("33:57", "tenants.deep.output_tokens", "expected lengths in tokens, got [5]"),
        ("33:87", "tenants.deep.arrivals", "expected an arrival model, got 'gamma'"),
    ]


def test_faults_of_all_stages_are_told_together(tmp_path: Path) -> None:
    text = """\
version: 2
duration: 20s
surges: [{at: 18s, for: 3s, factor: 2, tenants: [b]}]
tenants:
  a: {rate: -1/s, concurrency: x, trace: {file: none.csv, format: azure, dequantise: "off"}}
  b: {concurrency: 1}
"""
    told = [f"{spot} {field}: {fault}" for spot, field, fault in faults_of(tmp_path, text)]
    for expected in (
        "1:10 version: ",
        "3:15 surges[0].at: ends at 21.0 s",
        "3:50 surges[0].tenants[0]: tenant 'b' is a closed loop",
        "5:13 tenants.a.rate: rate and concurrency and trace exclude each other",
        "5:32 tenants.a.concurrency: expected a whole number",
        "5:49 tenants.a.trace.file: no such file",
        "5:86 tenants.a.trace.dequantise: unknown value 'off', expected 'auto' or 'none'",
    ):
        assert any(one.startswith(expected) for one in told), (expected, told)
    assert len(told) == 7


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("version: 1\ntenants: {}\n", ("2:1", "tenants", "must not be empty")),
        ("version: 1\n", ("1:1", "tenants", "required and not given")),
        (
            "version: 1\nduration: 20s\nsurges: [{at: 18s, for: 3s, factor: 2}]\ntenants: {a: {rate: 1/s}}\n",
            ("3:15", "surges[0].at", "ends at 21.0 s, after the measured window of 20.0 s"),
        ),
        (
            "version: 1\nsurges: [{at: 1s, for: 3s, factor: 2}]\ntenants: {a: {concurrency: 1}}\n",
            ("2:10", "surges[0]", "no open-loop tenant to hit"),
        ),
        (
            "version: 1\nduration: 9000h\ntenants: {a: {rate: 1/s}}\n",
            ("2:11", "duration", "longer than 30 days"),
        ),
        (
            "version: 1\nseed: -1\ntenants: {a: {rate: 1/s}}\n",
            ("2:7", "seed", "must be at least 0, got -1"),
        ),
    ],
)
def test_faults_that_come_alone(tmp_path: Path, text: str, fault: tuple[str, str, str]) -> None:
    assert faults_of(tmp_path, text) == [fault]


def test_a_trace_at_fault_names_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(TRACE + "nonsense\n")
    text = (
        "version: 1\ntenants:\n"
        "  a: {trace: {file: bad.csv, format: azure}}\n"
        "  b: {trace: {file: none.csv, format: azure}}\n"
    )
    with pytest.raises(SheetError) as caught:
        read_profile(write(tmp_path, text))
    told = str(caught.value)
    assert (
        f"{tmp_path}/bad.csv:3:1: tenants.a.trace.file: 1 fields where 3 belong\n  mend: " in told
    )
    assert f"{tmp_path}/traffic.yaml:4:21: tenants.b.trace.file: no such file: " in told


def test_quick_is_short(tmp_path: Path) -> None:
    profile, _ = read_profile(write(tmp_path, "version: 1\ntenants: {a: {rate: 1/s}}\n"))
    assert (profile.quick().warmup_ns, profile.quick().duration_ns) == (5 * S, 20 * S)
    short, _ = read_profile(
        write(tmp_path, "version: 1\nwarmup: 1s\nduration: 2s\ntenants: {a: {rate: 1/s}}\n")
    )
    assert short.quick() == short


@pytest.mark.parametrize("name", sorted(catalogue("profiles")))
def test_the_catalogue_can_be_read_by_us_and_by_the_schema(name: str) -> None:
    path = find(name, "profiles")
    profile, _ = read_profile(path)
    assert profile.name == name
    written: Any = yaml.safe_load(path.read_text())
    jsonschema.Draft202012Validator(json_schema(ProfileSheet)).validate(written)


def test_the_schema_refuses_what_the_sheet_refuses() -> None:
    schema = json_schema(ProfileSheet)
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    good: dict[str, Any] = {
        "rate": "1/s",
        "arrivals": {"model": "gamma", "cv": 4},
        "prompt_tokens": 5,
    }
    assert check.is_valid({"version": 1, "tenants": {"a": good}})
    wrongs: list[dict[str, Any]] = [
        {"arrivals": {"model": "posson"}},
        {"arrivals": {"model": "gamma"}},
        {"arrivals": {"cv": 4}},
        {"rate": 1},
        {"prompt_tokens": {"median": 5}},
        {"sessions": {}},
    ]
    for wrong in wrongs:
        assert not check.is_valid({"version": 1, "tenants": {"a": good | wrong}}), wrong


def test_more_tenants_or_surges_than_can_be_played_are_refused(tmp_path: Path) -> None:
    tenants = "".join(f" t{i}: {{rate: 1/s}}\n" for i in range(MOST_TENANTS + 1))
    surges = "".join(f"- {{at: {i}ms, for: 1ms, factor: 2}}\n" for i in range(MOST_SURGES + 1))
    text = f"version: 1\ntenants:\n{tenants}surges:\n{surges}"
    assert faults_of(tmp_path, text) == [
        ("2:1", "tenants", f"more than {MOST_TENANTS} of them"),
        (f"{MOST_TENANTS + 4}:1", "surges", f"more than {MOST_SURGES} of them"),
    ]


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ('"a\\0b.csv"', "a NUL character stands for nothing in a sheet"),
        ("a" * 5000, "cannot be looked up: 'File name too long'"),
        ("circle.csv", "cannot be looked up: "),
    ],
)
def test_a_trace_whose_name_cannot_be_looked_up_has_its_place(
    tmp_path: Path, file: str, said: str
) -> None:
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    text = f"version: 1\ntenants:\n a:\n  trace: {{file: {file}, format: azure}}\n"
    [(place, field, fault)] = faults_of(tmp_path, text)
    assert (place, field) == ("4:17", "tenants.a.trace.file")
    assert said in fault


HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
DENSE = f"{HEAD}2023-11-16 18:15:46.0,1,2\n2023-11-16 18:15:46.0000001,1,2\n"
MANY = ", ".join(["{at: 0s, for: 60s, factor: 10000}"] * 100)
TRACED = "tenants: {a: {trace: {file: x.csv, format: azure"


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("tenants: {a: {rate: 1000001/s}}", "tenants.a.rate", "a mean rate of 1e+06/s, more than"),
        ("tenants: {a: {rate: 200000/s}}", "tenants.a.rate", "about 14,000,000 requests"),
        (f"{TRACED}}}}}}}", "tenants.a.trace", "a mean rate of 2e+07/s"),
        (
            "surges: [{at: 0s, for: 60s, factor: 10000}]\ntenants: {a: {rate: 20/s}}",
            "tenants.a.rate",
            "about 12,000,200 requests under the surges",
        ),
        (
            f"surges: [{MANY}]\n{TRACED}}}}}, b: {{rate: 1/s}}}}",
            "surges",
            "together they hurry 'a' more than can be planned",
        ),
        (
            "duration: 500h\ntenants: {a: {rate: 1/h, arrivals: {model: on_off, busy: 50%, dwell: 1ms}}}",
            "tenants.a.rate",
            "requests and spells",
        ),
        (
            "warmup: 0s\ntenants: {a: {rate: 100000/s}, b: {rate: 80000/s}}",
            "tenants",
            "about 10,800,000 requests in all",
        ),
        (
            "tenants: {a: {concurrency: 100000}, b: {concurrency: 100000}}",
            "tenants",
            "about 12,800,000 requests in all",
        ),
    ],
)
def test_more_than_can_be_planned_is_refused(
    tmp_path: Path, text: str, field: str, said: str
) -> None:
    (tmp_path / "x.csv").write_text(DENSE)
    told = faults_of(tmp_path, f"version: 1\n{text}\n")
    assert told[0][1] == field
    assert said in told[0][2]
