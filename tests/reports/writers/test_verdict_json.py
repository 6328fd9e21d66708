from __future__ import annotations

import json
from dataclasses import replace

from reports.report import Report, RuledBy
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


def test_sla_that_ruled_is_named(report: Report) -> None:
    body = json.loads(verdict_json.render(report))
    assert body["ruled_by"] is None
    assert body["quick"] is False
    ruled_by = RuledBy(sla="slas/p95.yaml", sha256="ab" * 32, again="2026-12-01T08:00:00Z")
    body = json.loads(verdict_json.render(replace(report, ruled_by=ruled_by)))
    assert body["ruled_by"] == {
        "sla": "slas/p95.yaml",
        "sha256": "ab" * 32,
        "again": "2026-12-01T08:00:00Z",
    }


def test_measurements_come_back(report: Report) -> None:
    stored = json.loads(measurements_json.render(report))
    assert tuple(Measurement.from_json(body) for body in stored) == report.measurements
    assert {"metric", "tenant", "phase", "run", "unit", "count", "failed", "p99.9"} <= stored[
        0
    ].keys()
