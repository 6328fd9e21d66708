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


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (MEMORY, {"before_ns": float("nan")}, "before_ns is nan"),
        (MEMORY, {"gpu": 0.5}, "gpu is 0.5"),
        (ENGINE, {"at_ns": 1.5}, "at_ns is 1.5"),
        (HEALTH, {"at_ns": float("nan")}, "at_ns is nan"),
        (HEALTH, {"loop_lag_ns": [1, float("nan")]}, "loop_lag_ns"),
    ],
)
def test_a_stamp_that_is_no_integer_is_named(
    kind: SampleKind[Any], fields: dict[str, Any], said: str, tmp_path: Any
) -> None:
    samples: dict[str, Any] = {"memory": memory, "engine": engine, "health": healthy}
    path = tmp_path / "node.jsonl.gz"
    with MemberWriter(path, kind.kind, {}) as writer:
        stored = {**asdict(samples[kind.kind]()[0]), **fields}
        writer.append([json.dumps(stored).encode()])
    with pytest.raises(FormatError, match=f"line 2 is no {kind.kind} sample: .*{said}"):
        list(read_samples(path, kind))
