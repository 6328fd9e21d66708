from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from profiles.trace import Trace, TraceSheet, survey
from profiles.tracerow import TraceError, TraceRow
from profiles.traces import azure

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
S = 10**9


def write(tmp_path: Path, rows: str, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_text(HEADER + rows)
    return path


def surveyed(
    path: Path, window_ns: int = 60 * S, **fields: object
) -> tuple[Trace, tuple[str, ...]]:
    sheet = TraceSheet.model_validate({"file": path.name, "format": "azure", **fields})
    return survey(sheet, path.parent, window_ns)


ROWS = (
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
    "2023-11-16 18:15:51.2224670,879,55\n"
    "2023-11-16 18:16:01.0000001,0,0\n"
)


def test_azure_rows_keep_their_hundred_nanoseconds(tmp_path: Path) -> None:
    rows = list(azure.rows(write(tmp_path, ROWS)))
    assert [row.at_ns - rows[0].at_ns for row in rows] == [
        *(0, 4_314_579_000, 4_541_877_000, 14_319_410_100),
    ]
    assert rows[1] == TraceRow(rows[1].at_ns, 396, 109, 3)


@pytest.mark.parametrize(
    "row",
    [
        "2024-05-10 00:00:00.009930+00:00,10,2",
        "2024-05-10T00:00:00Z,10,2",
        "2024-05-10 00:00:00,10,2",
        " 2024-05-10 00:00:00.5 , 10 , 2 \r",
    ],
)
def test_azure_stamps_of_later_years_and_crlf_are_read(tmp_path: Path, row: str) -> None:
    (read,) = azure.rows(write(tmp_path, row + "\n\n\n"))
    assert (read.prompt_tokens, read.output_tokens) == (10, 2)


@pytest.mark.parametrize(
    ("rows", "line", "said"),
    [
        ("2023-11-16 18:15:46.68,374\n", 2, "2 fields where 3 belong"),
        (ROWS + "nonsense,1,2\n", 6, "not a time stamp: 'nonsense'"),
        (ROWS + "2023-13-16 18:15:46,1,2\n", 6, "not a time stamp"),
        (ROWS + "2023-11-16 18:17:60,1,2\n", 6, "not a time stamp"),
        (ROWS + "2023-11-16 18:17:46,1.5,2\n", 6, "not a count of tokens: '1.5'"),
        (ROWS + "2023-11-16 18:17:46,-1,2\n", 6, "not a count of tokens: '-1'"),
        (ROWS + "2023-11-16 18:17:46,1,123456789\n", 6, "not a count of tokens"),
        (ROWS + "2023-11-16 18:15:46,1,2\n", 6, "earlier than the row above"),
        ("\n" + ROWS, 2, "an empty line between rows"),
        ("x" * 5000, 2, "1 fields where 3 belong"),
        ("", 0, "no rows in the replayed part"),
    ],
)
def test_malformed_rows_are_told_with_their_line(
    tmp_path: Path, rows: str, line: int, said: str
) -> None:
    with pytest.raises(TraceError) as caught:
        surveyed(write(tmp_path, rows), 3600 * S)
    assert caught.value.line == line
    assert said in caught.value.fault
    assert caught.value.mend


def test_files_that_are_no_trace_are_told(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 100)
    for name, line, said in (
        ("binary.csv", 1, "not an Azure LLM trace"),
        ("none.csv", 0, "no such file"),
        (".", 0, "not a file"),
    ):
        with pytest.raises(TraceError) as caught:
            survey(TraceSheet.model_validate({"file": name, "format": "azure"}), tmp_path, S)
        assert (caught.value.line, said in caught.value.fault) == (line, True)


def test_speed_scale_and_slice(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS)
    trace, _ = surveyed(path, speed=2, scale={"prompt": 0.1, "output": 0.5})
    assert [(row.at_ns, row.prompt_tokens, row.output_tokens) for row in trace.rows()] == [
        (0, 37, 22),
        (2_157_289_500, 40, 54),
        (2_270_938_500, 88, 28),
        (7_159_705_050, 1, 1),
    ]
    sliced, _ = surveyed(path, slice={"from": "4s", "for": "5s"})
    assert [row.at_ns for row in sliced.rows()] == [314_579_000, 541_877_000]
    assert sliced.prompt_tokens.seen == (396, 879)


def test_the_survey_stops_where_the_window_does(tmp_path: Path) -> None:
    trace, warnings = surveyed(write(tmp_path, ROWS + "broken\n"), 5 * S)
    assert trace.rate_hz == pytest.approx(3 / 5)
    assert warnings == ()


def test_a_trace_that_ends_early_is_told_and_its_rate_counts_what_there_is(tmp_path: Path) -> None:
    trace, warnings = surveyed(write(tmp_path, ROWS), 60 * S)
    assert trace.rate_hz == pytest.approx(4 / 14.3194101)
    assert [w for w in warnings if "ends 14.3 s into a window of 60.0 s" in w]


def ticks(tmp_path: Path, per_tick: int = 10) -> Path:
    rows = [
        f"2023-11-16 18:{second // 60:02}:{second % 60:02},{index + 1},5\n"
        for second in range(0, 300, 3)
        for index in range(per_tick)
    ]
    return write(tmp_path, "".join(rows), "ticks.csv")


def test_rounded_stamps_are_spread_over_their_tick_in_order_and_by_the_seed(tmp_path: Path) -> None:
    trace, warnings = surveyed(ticks(tmp_path), 300 * S)
    assert trace.tick_ns == 3 * S
    assert "rounded to 3 s" in warnings[0]
    rows = list(trace.spread_rows(np.random.default_rng(1)))
    at_ns = np.array([row.at_ns for row in rows])
    assert (np.diff(at_ns) >= 0).all()
    assert [row.prompt_tokens for row in rows] == list(range(1, 11)) * 100
    assert (at_ns // (3 * S) == np.repeat(np.arange(100), 10)).all()
    assert stats.kstest((at_ns % (3 * S)) / (3 * S), "uniform").pvalue > 1e-3
    assert rows == list(trace.spread_rows(np.random.default_rng(1)))
    assert rows != list(trace.spread_rows(np.random.default_rng(2)))


def test_rounded_stamps_may_be_replayed_as_they_are(tmp_path: Path) -> None:
    trace, warnings = surveyed(ticks(tmp_path), 300 * S, dequantise="none", speed=3)
    assert trace.tick_ns is None
    assert "replayed as volleys" in warnings[0]
    at_ns = {row.at_ns for row in trace.spread_rows(np.random.default_rng(1))}
    assert at_ns == {tick * S for tick in range(100)}


def test_stamps_that_are_rounded_but_mostly_apart_are_left_alone(tmp_path: Path) -> None:
    trace, _ = surveyed(ticks(tmp_path, per_tick=1), 300 * S)
    assert trace.tick_ns is None


def test_a_span_beyond_int64_is_told_with_its_line(tmp_path: Path) -> None:
    rows = "0001-01-01 00:00:00,1,2\n9999-12-31 00:00:00,1,2\n"
    with pytest.raises(TraceError) as caught:
        surveyed(write(tmp_path, rows), 60 * S)
    assert caught.value.line == 3
    assert "292 years" in caught.value.fault


def test_more_rows_than_can_be_planned_are_told_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiles.trace.MOST_ROWS", 5)
    row = "2023-11-16 18:15:46,1,2\n"
    surveyed(write(tmp_path, row * 5), 60 * S)
    with pytest.raises(TraceError, match=r"line 7: more than 5 rows up to here"):
        surveyed(write(tmp_path, row * 6), 60 * S)
