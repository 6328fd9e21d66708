"""``verdict.json``: the source of truth for machines; every other report says the same in its own words."""

from __future__ import annotations

import json
from dataclasses import asdict

from reports.report import Report, Writer

FORMAT = 1


def render(report: Report) -> bytes:
    """Return the verdict as JSON. Values and limits are in base units (s, B, shares, 1/s)."""
    verdict = report.verdict
    body = {
        "format": FORMAT,
        "run_id": report.manifest.run_id,
        "ruling": verdict.ruling,
        "exit_code": report.exit_code,
        "evidence": verdict.evidence,
        "simulated": verdict.simulated or report.manifest.simulated,
        "quick": report.manifest.quick,
        "strict": verdict.strict,
        "ruled_by": None if report.ruled_by is None else asdict(report.ruled_by),
        "engine_fault": verdict.engine_fault,
        "cut": verdict.cut,
        "aborted": verdict.aborted,
        "checks": [asdict(check) for check in verdict.checks],
        "health": asdict(verdict.health),
        "warnings": list(report.warnings),
        "baseline": None if report.baseline is None else report.baseline.name,
        "schedule_sha256": verdict.schedule_sha256,
        "sheets_sha256": dict(report.manifest.sheets_sha256),
    }
    return json.dumps(body, indent=2, allow_nan=False).encode() + b"\n"


WRITER = Writer(file="verdict.json", render=render)
