from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.fault import FormatError
from reports.members import MemberWriter
from reports.samples import ENGINE, HEALTH, MEMORY, SampleKind, SampleWriter, read_samples
from tests.reports.strategies import engine_samples, health_samples, memory_samples

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
