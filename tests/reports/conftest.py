from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from reports.report import Report
from reports.rundir import RunDir
from tests.reports.synthetic import report_of, synthetic


@cache
def _measured() -> Report:
    return report_of(*synthetic(runs=2, tenants=3, duration_s=8), RunDir(Path("nowhere")))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """A small synthetic run, ruled FAIL, in a directory of its own."""
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(_measured().manifest)
    return replace(_measured(), run_dir=run)
