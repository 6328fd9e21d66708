from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.fault import FormatError
from reports.rows import RowReader, RowWriter, read_rows, row_from, row_json, row_line
from slas.evidence import RequestRow
from tests.reports.strategies import rows
from tests.slas.runs import row as court_row

# DESIGN's row, in its order: other people's scripts read these names
NAMES = [
    "run",
    "tenant",
    "phase",
    "burst",
    "ordinal",
    "session",
    "turn",
    "due_ns",
    "connect_ns",
    "sent_ns",
    "first_ns",
    "output_first_ns",
    "last_ns",
    "done_ns",
    "outcome",
    "status",
    "stage",
    "why",
    "finish",
    "prompt_tokens",
    "output_tokens",
    "client_tokens",
    "output_planned",
    "usage_from",
    "gaps",
    "reused_connection",
]


@given(row=rows())
def test_row_survives_its_line(row: RequestRow) -> None:
    line = row_line(row)
    assert b"\n" not in line
    assert row_from(json.loads(line)) == row
    assert list(row_json(row)) == NAMES


@given(written=st.lists(rows(), max_size=10))
@settings(max_examples=30)
def test_rows_and_lines_made_ahead_come_back_alike(
    written: list[RequestRow], tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("rows") / "w-0.jsonl.gz"
    with RowWriter(path, {"lane": 0}) as writer:
        writer.append(written[::2])
        writer.append(row_line(row) for row in written[1::2])
    assert tuple(read_rows(path)) == (*written[::2], *written[1::2])


@given(row=rows(), missing=st.sampled_from([name for name in NAMES if name != "client_tokens"]))
@settings(max_examples=30)
def test_row_without_a_field_is_named(row: RequestRow, missing: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("rows") / "w-0.jsonl.gz"
    with RowWriter(path, {}) as writer:
        writer.append([row])
        stored = json.loads(row_line(row))
        del stored[missing]
        writer.append([json.dumps(stored).encode()])
    with pytest.raises(
        FormatError, match=f"line 3 is no request row: the key '{missing}' is missing"
    ):
        list(read_rows(path))


@given(row=rows())
def test_row_from_before_the_client_counted_tokens_is_read(row: RequestRow) -> None:
    stored = json.loads(row_line(row))
    del stored["client_tokens"]
    assert row_from(stored) == replace(row, client_tokens=None)


@given(row=rows(), field=st.sampled_from(["outcome", "phase", "usage_from"]))
@settings(max_examples=10)
def test_word_that_no_row_may_hold_is_named(
    row: RequestRow, field: str, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("rows") / "w-0.jsonl.gz"
    with RowWriter(path, {}) as writer:
        writer.append([json.dumps({**json.loads(row_line(row)), field: "late"}).encode()])
    with pytest.raises(
        FormatError, match=f"line 2 is no request row: {field} is 'late', not one of"
    ):
        list(read_rows(path))


def test_torn_rest_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "w-0.jsonl.gz"
    with RowWriter(path, {}):
        pass
    with path.open("ab") as file:
        file.write(gzip.compress(b'{"run": 1}\n')[:-3])
    reader = RowReader(path)
    with pytest.raises(FormatError):
        list(reader)
    path.write_bytes(path.read_bytes()[:-20])
    reader = RowReader(path)
    assert list(reader) == []
    assert reader.torn == 1


HUGE = 10**30


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("run", "1", "run is '1', no integer"),
        ("run", -1, "run is -1, out of range"),
        ("tenant", None, "tenant is None, no text"),
        ("tenant", [], "tenant is [], no text"),
        ("session", 5, "session is 5, no text"),
        ("phase", {}, "phase is {}, no text"),
        ("burst", "yes", "burst is 'yes', neither true nor false"),
        ("ordinal", HUGE, "out of range"),
        ("first_ns", float("nan"), "first_ns is nan, no integer and not null"),
        ("due_ns", 1.5, "due_ns is 1.5, no integer"),
        ("due_ns", None, "due_ns is None, no integer"),
        ("due_ns", -HUGE, "out of range"),
        ("done_ns", True, "done_ns is True, no integer"),
        ("sent_ns", "1", "sent_ns is '1', no integer and not null"),
        ("last_ns", 2**63, "last_ns is 9223372036854775808, out of range"),
        ("outcome", {"a": 1}, "outcome is {'a': 1}, no text"),
        ("outcome", "late", "not one of completed, refused, broken, timed_out, unsent"),
        ("usage_from", [], "usage_from is [], no text"),
        ("status", "200", "status is '200', no integer and not null"),
        ("status", HUGE, "out of range"),
        ("why", {"a": 1}, "why is {'a': 1}, no text and not null"),
        ("why", ["x" * 10**6], "why is ["),
        ("finish", [1], "finish is [1], no text and not null"),
        ("stage", 1, "stage is 1, no text and not null"),
        ("prompt_tokens", "x", "prompt_tokens is 'x', no integer and not null"),
        ("output_tokens", -5, "output_tokens is -5, out of range"),
        ("output_tokens", 2.0, "output_tokens is 2.0, no integer"),
        ("client_tokens", 2.0, "client_tokens is 2.0, no integer and not null"),
        ("reused_connection", 1, "reused_connection is 1, neither true nor false"),
        ("gaps", None, "gaps is None, no object"),
        ("gaps", {}, "the key 'gaps.ns' is missing"),
        ("gaps", {"ns": [1]}, "the key 'gaps.tokens' is missing"),
        ("gaps", {"ns": 5, "tokens": 5}, "gaps.ns is 5, no list"),
        ("gaps", {"ns": "ab", "tokens": [1, 1]}, "gaps.ns is 'ab', no list"),
        ("gaps", {"ns": [1], "tokens": []}, "gaps.ns has 1 values and gaps.tokens 0"),
        ("gaps", {"ns": [1, float("nan")], "tokens": [1, 1]}, "gaps.ns holds"),
        ("gaps", {"ns": [-1], "tokens": [1]}, "gaps.ns holds an integer that is out of range"),
        ("gaps", {"ns": [HUGE], "tokens": [1]}, "gaps.ns holds an integer that is out of range"),
        ("gaps", {"ns": [1], "tokens": [0.5]}, "gaps.tokens holds something that is no integer"),
    ],
)
def test_a_value_that_no_row_may_hold_is_named(
    name: str, value: object, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "local-0.jsonl.gz"
    header = {"format": 1, "kind": "requests"}
    # a row of the same types before it: what was looked at once must not let the next one through
    lines = [header, row_json(court_row()), {**row_json(court_row()), name: value}]
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    with pytest.raises(FormatError, match="line 3 is no request row") as caught:
        list(read_rows(path))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_keys_that_a_later_writer_adds_are_left_aside() -> None:
    row = court_row()
    assert row_from({**json.loads(row_line(row)), "carbon": 3}) == row


def test_a_row_without_a_field_says_which(tmp_path: Path) -> None:
    path = tmp_path / "local-0.jsonl.gz"
    short = {name: value for name, value in row_json(court_row()).items() if name != "due_ns"}
    header = {"format": 1, "kind": "requests"}
    path.write_bytes(
        gzip.compress("".join(json.dumps(line) + "\n" for line in (header, short)).encode())
    )
    with pytest.raises(FormatError, match="the key 'due_ns' is missing"):
        list(read_rows(path))
