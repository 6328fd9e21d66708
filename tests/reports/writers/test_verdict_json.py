from __future__ import annotations

import json

from reports.report import Report
from reports.writers import measurements_json, verdict_json
from slas.measurement import Measurement


def test_verdict_has_the_fields_that_builds_read(report: Report) -> None:
    body = json.loads(verdict_json.render(report))
    assert body["format"] == 1
    assert body["ruling"] == "FAIL"
    assert body["exit_code"] == 99
    assert body["evidence"] == "2 runs, 95%"
    assert body["simulated"] is True
    assert body["schedule_sha256"] == report.verdict.schedule_sha256
    assert {"fit", "reasons", "lateness_p99_s", "loop_lag_p99_s"} <= body["health"].keys()
    check = body["checks"][0]
    for field in (
        "expr",
        "level",
        "tenant",
        "gpu",
        "phase",
        "limit",
        "because",
        "mend",
        "file",
        "line",
    ):
        assert field in check
    assert check["ruling"] == "FAIL"
    assert {"value", "unbounded", "unit", "low", "high", "samples", "runs"} <= check[
        "measured"
    ].keys()
    unbounded = body["checks"][-1]["measured"]
    assert unbounded["value"] is None
    assert unbounded["unbounded"] is True


def test_measurements_come_back(report: Report) -> None:
    stored = json.loads(measurements_json.render(report))
    assert tuple(Measurement.from_json(body) for body in stored) == report.measurements
    assert {"metric", "tenant", "phase", "run", "unit", "count", "failed", "p99.9"} <= stored[
        0
    ].keys()
