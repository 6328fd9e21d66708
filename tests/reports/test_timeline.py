from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reports.timeline import MOST_BINS, timelines
from slas.columns import columns_of
from slas.evidence import Evidence, MemorySample, Outcome, RequestRow
from slas.histogram import rank_of
from tests.reports.synthetic import GIB, SECOND_NS, synthetic


def rows_of(evidence: Evidence, run: int) -> list[RequestRow]:
    return [row for row in evidence.rows if row.run == run]


@pytest.fixture
def evidence() -> Evidence:
    return synthetic(runs=2, tenants=3, duration_s=8)[1]


def test_arrivals_and_failures_are_counted_where_they_were_due(evidence: Evidence) -> None:
    refused = [
        replace(row, outcome=Outcome.REFUSED) if row.ordinal == 3 else row for row in evidence.rows
    ]
    evidence = replace(evidence, rows=tuple(refused))
    for timeline in timelines(evidence, columns_of(evidence)):
        rows = rows_of(evidence, timeline.run)
        for tenant, hz in timeline.arrivals_hz.items():
            assert hz.sum() * timeline.bin_s == sum(row.tenant == tenant for row in rows)
        assert timeline.failed_hz.sum() == sum(row.outcome != "completed" for row in rows)
        second = next(row.due_ns // SECOND_NS for row in rows if row.outcome != "completed")
        assert timeline.failed_hz[second] > 0


def test_percentiles_are_those_of_the_second(evidence: Evidence) -> None:
    timeline = timelines(evidence, columns_of(evidence))[1]
    for second in range(timeline.bins):
        found = sorted(
            (row.first_ns - row.due_ns) / SECOND_NS
            for row in rows_of(evidence, 2)
            if row.first_ns is not None and row.due_ns // SECOND_NS == second
        )
        if found:
            assert timeline.ttft_p50_s[second] == found[rank_of(0.5, len(found)) - 1]
            assert timeline.ttft_p99_s[second] == found[rank_of(0.99, len(found)) - 1]
        else:
            assert np.isnan(timeline.ttft_p99_s[second])


def test_in_flight_is_the_most_of_each_second(evidence: Evidence) -> None:
    timeline = timelines(evidence, columns_of(evidence))[0]
    rows = rows_of(evidence, 1)
    for second in range(timeline.bins):
        start, end = second * SECOND_NS, (second + 1) * SECOND_NS
        instants = [start, *(row.sent_ns or 0 for row in rows if start <= (row.sent_ns or 0) < end)]
        most = max(sum((row.sent_ns or 0) <= at < row.done_ns for row in rows) for at in instants)
        assert abs(timeline.in_flight[second] - most) <= 1


def test_highest_memory_of_a_bin_is_kept(evidence: Evidence) -> None:
    spike = MemorySample(
        before_ns=evidence.runs[0].start_ns + 3 * SECOND_NS + 500,
        after_ns=evidence.runs[0].start_ns + 3 * SECOND_NS + 900,
        node="localhost",
        gpu=1,
        used_bytes=79 * GIB,
        total_bytes=80 * GIB,
    )
    unknown = replace(spike, gpu=0, used_bytes=None, why="the driver does not say")
    spiky = replace(evidence, memory=(*evidence.memory, spike, unknown))
    first, second = timelines(spiky, columns_of(spiky))
    assert first.vram_bytes["localhost", 1][3] == 79 * GIB
    assert first.vram_bytes["localhost", 1][2] < 79 * GIB
    assert second.vram_bytes["localhost", 1].max() < 79 * GIB
    assert first.vram_total_bytes["localhost", 0] == 80 * GIB


def test_long_run_has_no_more_bins_than_a_page_can_show(evidence: Evidence) -> None:
    late = replace(evidence.rows[0], done_ns=3600 * SECOND_NS)
    long = replace(evidence, rows=(late, *evidence.rows[1:]))
    timeline = timelines(long, columns_of(long))[0]
    assert timeline.bins <= MOST_BINS
    assert timeline.end_s >= 3600
    assert sum(hz.sum() for hz in timeline.arrivals_hz.values()) * timeline.bin_s == len(
        rows_of(evidence, 1)
    )


def test_run_without_a_span_or_a_row_is_drawn(evidence: Evidence) -> None:
    killed = replace(evidence, runs=())
    assert [timeline.vram_bytes for timeline in timelines(killed, columns_of(killed))] == [{}, {}]
    empty = replace(evidence, rows=())
    for timeline in timelines(empty, columns_of(empty)):
        assert timeline.in_flight.max() == 0
        assert np.isnan(timeline.ttft_p99_s).all()
