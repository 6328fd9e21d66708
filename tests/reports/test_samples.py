from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.fault import FormatError
from reports.members import MemberWriter
from reports.samples import ENGINE, HEALTH, MEMORY, SampleKind, SampleWriter, read_samples
from tests.reports.strategies import engine_samples, health_samples, memory_samples
from tests.slas.runs import engine, healthy, memory

KINDS: list[tuple[SampleKind[Any], st.SearchStrategy[Any]]] = [
    (MEMORY, memory_samples),
    (ENGINE, engine_samples),
    (HEALTH, health_samples),
]


@pytest.mark.parametrize(("kind", "samples"), KINDS, ids=lambda value: getattr(value, "kind", ""))
@given(data=st.data())
@settings(max_examples=30)
def test_samples_come_back(
    kind: SampleKind[Any],
    samples: st.SearchStrategy[Any],
    tmp_path_factory: Any,
    data: st.DataObject,
) -> None:
    written = data.draw(st.lists(samples, max_size=5))
    path = tmp_path_factory.mktemp("samples") / "node.jsonl.gz"
    with SampleWriter(path, kind, {"node": "a"}) as writer:
        writer.append(written)
    assert list(read_samples(path, kind)) == written


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS], ids=lambda kind: kind.kind)
def test_line_that_is_no_sample_is_named(kind: SampleKind[Any], tmp_path: Any) -> None:
    path = tmp_path / "node.jsonl.gz"
    with MemberWriter(path, kind.kind, {}) as writer:
        writer.append([b'{"volts": 3}'])
    with pytest.raises(FormatError, match=f"line 2 is no {kind.kind} sample"):
        list(read_samples(path, kind))


HUGE = 10**30


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (MEMORY, {"before_ns": float("nan")}, "before_ns is nan, no integer"),
        (MEMORY, {"after_ns": None}, "after_ns is None, no integer"),
        (MEMORY, {"after_ns": HUGE}, "after_ns is .*, out of range"),
        (MEMORY, {"gpu": 0.5}, "gpu is 0.5, no integer"),
        (MEMORY, {"gpu": -1}, "gpu is -1, out of range"),
        (MEMORY, {"node": 5}, "node is 5, no text"),
        (MEMORY, {"used_bytes": "x"}, "used_bytes is 'x', no integer and not null"),
        (MEMORY, {"used_bytes": -1}, "used_bytes is -1, out of range"),
        (MEMORY, {"total_bytes": HUGE}, "total_bytes is .*, out of range"),
        (MEMORY, {"why": 0}, "why is 0, no text and not null"),
        (ENGINE, {"at_ns": 1.5}, "at_ns is 1.5, no integer"),
        (ENGINE, {"kv_usage_share": float("inf")}, "kv_usage_share is inf, no finite number"),
        (ENGINE, {"running": "2"}, "running is '2', no number and not null"),
        (ENGINE, {"waiting": HUGE}, "waiting is .*, out of range"),
        (ENGINE, {"queue_seconds_sum": True}, "queue_seconds_sum is True, no number"),
        (HEALTH, {"run": "x"}, "run is 'x', no integer"),
        (HEALTH, {"run": -1}, "run is -1, out of range"),
        (HEALTH, {"lane": None}, "lane is None, no text"),
        (HEALTH, {"at_ns": float("nan")}, "at_ns is nan, no integer"),
        (HEALTH, {"loop_lag_ns": [1, float("nan")]}, "loop_lag_ns holds something that is no int"),
        (HEALTH, {"loop_lag_ns": "x"}, "loop_lag_ns is 'x', no list"),
        (HEALTH, {"loop_lag_ns": [HUGE]}, "loop_lag_ns holds an integer that is out of range"),
        (HEALTH, {"events": None}, "events is None, no integer"),
        (HEALTH, {"run_queue_ns": []}, r"run_queue_ns is \[\], no integer and not null"),
        (HEALTH, {"steal_share": "x"}, "steal_share is 'x', no number and not null"),
        (HEALTH, {"steal_share": float("nan")}, "steal_share is nan, no finite number"),
    ],
)
def test_a_value_that_no_sample_may_hold_is_named(
    kind: SampleKind[Any], fields: dict[str, Any], said: str, tmp_path: Any
) -> None:
    samples: dict[str, Any] = {"memory": memory, "engine": engine, "health": healthy}
    path = tmp_path / "node.jsonl.gz"
    with MemberWriter(path, kind.kind, {}) as writer:
        whole = asdict(samples[kind.kind]()[0])
        writer.append([json.dumps(whole).encode(), json.dumps({**whole, **fields}).encode()])
    with pytest.raises(FormatError, match=f"line 3 is no {kind.kind} sample: {said}"):
        list(read_samples(path, kind))


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS], ids=lambda kind: kind.kind)
def test_keys_that_a_later_writer_adds_are_left_aside(kind: SampleKind[Any]) -> None:
    samples: dict[str, Any] = {"memory": memory, "engine": engine, "health": healthy}
    sample = samples[kind.kind]()[0]
    stored = json.loads(json.dumps(asdict(sample)))
    assert kind.make({**stored, "volts": 3}) == sample
