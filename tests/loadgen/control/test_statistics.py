"""Contracts with locust's statistics: what we write, locust must count, merge and show as meant."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """
import json
from locust.env import Environment
from loadgen.control.statistics import record
from loadgen.frames import Progress, TenantProgress
from slas.histogram import Histogram

def pairs(*values_us):
    histogram = Histogram()
    for value in values_us:
        histogram.record_us(value)
    return histogram.sparse()

def second(tenants, failures=()):
    return Progress(run=1, lane=0, at_ns=0, in_flight=0, events=0, lateness_max_ns=0, loop_lag_max_ns=0,
                    tenants=tenants, failures=failures)

def tenant(e2e, ttft, itl, tpot, failed=0):
    return TenantProgress(due=0, sent=0, completed=len(e2e), failed=failed,
                          e2e=pairs(*e2e), ttft=pairs(*ttft), itl=pairs(*itl), tpot=pairs(*tpot))

stats = Environment().stats
for _ in range(2):
    record(stats, second(
        {
            "chat": tenant([54_321, 100_000, 250_000], [10_000] * 3, [5_000] * 30, [5_000] * 3, failed=1),
            "code": tenant([1_000_000], [20_000], [], []),
            "mute": tenant([], [], [], [], failed=2),
        },
        (("chat", "refused", "503", 1), ("mute", "timed_out", "first_token", 2)),
    ))
record(stats, second({"quiet": tenant([], [], [], [])}))
shown = {f"{method} {name}": {**entry.to_dict(), "keys": len(entry.response_times),
         "current": entry.get_current_response_time_percentile(0.5), "none": entry.num_none_requests}
         for (name, method), entry in stats.entries.items()}
print(json.dumps({
    "rows": shown,
    "total": stats.total.to_dict(),
    "errors": sorted((error.to_name(), error.occurrences) for error in stats.errors.values()),
    "stamped": all(error.first_seen and error.last_seen for error in stats.errors.values()),
}))
"""


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_tenant_has_a_row_for_each_latency_it_has(shown: dict[str, Any]) -> None:
    assert set(shown["rows"]) == {
        *("E2E chat", "TTFT chat", "ITL chat", "TPOT chat"),
        *("E2E code", "TTFT code", "E2E mute"),
    }


def test_requests_count_once_in_the_aggregated_row(shown: dict[str, Any]) -> None:
    assert shown["total"]["num_requests"] == 2 * (4 + 1 + 2)
    assert shown["total"]["num_failures"] == 2 * (1 + 2)


def test_rows_count_requests_and_failures(shown: dict[str, Any]) -> None:
    row = shown["rows"]["E2E chat"]
    assert (row["num_requests"], row["num_failures"], row["none"]) == (8, 2, 2)
    assert shown["rows"]["ITL chat"]["num_requests"] == 60
    assert shown["rows"]["E2E mute"]["num_failures"] == 4


def test_latencies_are_milliseconds_within_half_a_percent(shown: dict[str, Any]) -> None:
    row = shown["rows"]["E2E chat"]
    assert row["median_response_time"] == pytest.approx(100, rel=0.005)
    assert row["avg_response_time"] == pytest.approx((54.321 + 100 + 250) / 3, rel=0.005)
    assert row["response_time_percentile_0.99"] == pytest.approx(250, rel=0.005)
    assert row["min_response_time"] == 54
    assert row["max_response_time"] == pytest.approx(250, abs=1)
    assert row["keys"] == 3
    assert shown["rows"]["TTFT chat"]["median_response_time"] == pytest.approx(10, rel=0.005)


def test_failures_are_errors_with_their_outcome(shown: dict[str, Any]) -> None:
    assert shown["errors"] == [
        ["E2E chat: refused: 503", 2],
        ["E2E mute: timed_out: first_token", 4],
    ]
    assert shown["stamped"]
