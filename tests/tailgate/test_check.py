from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from reports.fault import UsageError
from reports.rows import RowWriter
from reports.rundir import RunDir
from tailgate.check import check_run
from tests.reports.synthetic import synthetic

SLA = b"version: 1\nmust:\n  - error_rate <= 100%\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    manifest, evidence = synthetic(tenants=2, duration_s=4)
    run = RunDir.create(tmp_path / "run")
    hashes = {"sla": hashlib.sha256(SLA).hexdigest(), "profile": "aa" * 32}
    run.write_manifest(replace(manifest, sheets_sha256=hashes))
    run.write_atomic("sheets/sla.yaml", SLA)
    with RowWriter(run.rows_of("local", 0), {}) as rows:
        rows.append(evidence.rows)
    return run


def test_own_sla_that_was_changed_is_refused_and_another_can_be_named(
    run: RunDir, tmp_path: Path
) -> None:
    own = run.sheets / "sla.yaml"
    own.write_bytes(SLA + b"# looser\n")
    with pytest.raises(UsageError, match="not the one that the run was started with") as caught:
        check_run(run.path, sla_name=None, baseline_name=None, strict=False)
    assert "--sla" in caught.value.mend
    assert not run.verdict.exists()
    other = tmp_path / "other.yaml"
    other.write_bytes(SLA)
    check_run(run.path, sla_name=str(other), baseline_name=None, strict=False)
    assert run.verdict.exists()


def test_what_is_gone_beside_the_rows_is_a_warning(run: RunDir) -> None:
    check_run(run.path, sla_name=None, baseline_name=None, strict=False)
    warned = json.loads(run.verdict.read_bytes())["warnings"]
    assert "sheets/profile.yaml: the sheet that the run was started with is gone" in warned
