from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from reports.fault import FormatError
from reports.hlog import Interval, read_intervals, write_hlog
from reports.intervals import latencies, write_intervals
from reports.rundir import RunDir, read_summaries
from slas.columns import columns_of
from slas.evidence import Evidence
from slas.histogram import HIGHEST_US, Histogram, upper_us
from tests.reports.synthetic import synthetic


def test_intervals_add_up_to_the_rows(tmp_path: Path) -> None:
    manifest, evidence = synthetic(runs=2, tenants=2, duration_s=8)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(manifest)
    (run.intervals / "stale.hlog").write_text("")
    paths = write_intervals(run, evidence)
    assert sorted(run.intervals.iterdir()) == sorted(paths)
    found = read_summaries(run.path).histograms
    for key in (("ttft", "chat", "calm", 1), ("ttft", "chat", "burst", 2)):
        _, tenant, phase, number = key
        expected = Histogram()
        for row in evidence.rows:
            mine = row.tenant == tenant and row.run == number and row.phase == "measure"
            if mine and row.burst == (phase == "burst") and row.first_ns is not None:
                expected.record_us(-(-(row.first_ns - row.due_ns) // 1000))
        assert expected.total > 0
        assert found[key] == expected
    assert found["loop_lag", "local-0", "calm", 1].total > 0


def test_folder_of_intervals_is_made_anew_and_no_folder_is_a_log(tmp_path: Path) -> None:
    manifest, evidence = synthetic(tenants=2, duration_s=8)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(manifest)
    run.intervals.rmdir()
    (path,) = write_intervals(run, evidence)
    path.unlink()
    path.mkdir()
    with pytest.raises(FormatError, match="a folder where a log must go") as caught:
        write_intervals(run, evidence)
    assert str(path) in str(caught.value)


def test_health_of_a_run_without_rows_and_span_is_kept(tmp_path: Path) -> None:
    manifest, evidence = synthetic(tenants=2, duration_s=8)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(manifest)
    stray = tuple(replace(sample, run=9) for sample in evidence.health[:3])
    paths = write_intervals(run, replace(evidence, health=(*evidence.health, *stray)))
    assert [path.name for path in paths] == ["run-1.hlog", "run-9.hlog"]


def test_seconds_are_those_of_completion_and_holes_are_written_empty(tmp_path: Path) -> None:
    manifest, evidence = synthetic(tenants=2, duration_s=8)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(manifest)
    (path,) = write_intervals(run, evidence)
    seconds = latencies(columns_of(evidence))["e2e", "chat", "burst", 1]
    ends = {
        row.done_ns // 10**9
        for row in evidence.rows
        if row.tenant == "chat" and row.burst and row.outcome == "completed"
    }
    assert set(seconds) == ends
    by_tag: dict[str, list[Interval]] = {}
    for interval in read_intervals(path):
        by_tag.setdefault(interval.tag, []).append(interval)
    for intervals in by_tag.values():
        for before, after in pairwise(intervals):
            assert before.start_s + before.length_s == pytest.approx(after.start_s)


def test_value_beyond_an_hour_is_counted_and_none_is_rounded_below_itself() -> None:
    _, evidence = synthetic(tenants=2, duration_s=4)
    row = next(row for row in evidence.rows if row.phase == "measure" and row.first_ns is not None)
    slow = replace(row, first_ns=row.due_ns + (HIGHEST_US + 1) * 1000, turn=1)
    just = replace(row, first_ns=row.due_ns + 300_000_001, turn=2)
    two = columns_of(replace(evidence, rows=(slow, just)))
    (seconds,) = (found for key, found in latencies(two).items() if key[0] == "ttft")
    histogram = Histogram()
    for pairs in seconds.values():
        histogram.add_sparse(pairs)
    assert histogram.over == 1
    assert histogram.total == 2
    assert all(upper_us(bucket) > 300_000 for bucket, _ in histogram.sparse())


def test_run_without_a_row_has_an_empty_log(tmp_path: Path) -> None:
    manifest, evidence = synthetic(tenants=2, duration_s=4)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(manifest)
    empty: Evidence = replace(evidence, rows=(), health=())
    (path,) = write_intervals(run, empty)
    assert list(read_intervals(path)) == []
    assert read_summaries(run.path).histograms == {}


def test_logs_and_measurements_of_others_are_refused_by_name(tmp_path: Path) -> None:
    manifest, _ = synthetic(tenants=2, duration_s=4)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(manifest)
    foreign = run.intervals / "foreign.hlog"
    write_hlog(foreign, 0.0, [Interval(tag="A", start_s=0.0, length_s=1.0, pairs=())])
    with pytest.raises(FormatError, match=r"foreign\.hlog.*tag 'A'"):
        read_summaries(run.path)
    foreign.unlink()
    run.measurements.write_text('[{"metric": "ttft"}]')
    with pytest.raises(FormatError, match=r"measurements\.json"):
        read_summaries(run.path)
