from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from reports.fault import FormatError, UsageError, WriteError
from reports.members import MemberWriter
from reports.replacing import write_atomic
from reports.rows import RowWriter
from reports.rundir import RunDir, doubts, read_evidence, read_summaries, sheet_of
from reports.samples import ENGINE, HEALTH, MEMORY, SampleWriter
from tests.reports.synthetic import synthetic


def test_create_names_the_run_by_time_and_four_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDir.create()
    assert run.path.parent == tmp_path / "runs"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{4}", run.path.name)
    assert run.requests.is_dir()
    assert RunDir.create().path != run.path


def test_create_takes_a_new_or_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert RunDir.create(tmp_path / "empty").path == tmp_path / "empty"
    assert RunDir.create(tmp_path / "deep" / "new").intervals.is_dir()


def test_create_refuses_a_directory_in_use_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.tex").write_text("")
    for path in (tmp_path / "used", tmp_path / "used" / "thesis.tex"):
        with pytest.raises(UsageError, match="not a new or empty directory") as caught:
            RunDir.create(path)
        assert caught.value.exit_code == 2
    assert [file.name for file in (tmp_path / "used").iterdir()] == ["thesis.tex"]


def test_create_where_nothing_can_be_written_is_a_write_error() -> None:
    with pytest.raises(WriteError):
        RunDir.create(Path("/proc/tailgate"))


def test_open_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        RunDir.open(tmp_path)
    with pytest.raises(UsageError, match=r"no manifest\.json"):
        read_evidence(tmp_path / "absent")


def test_write_atomic_leaves_the_old_bytes_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["verdict.json"]
    folder = tmp_path / "report.html"
    folder.mkdir()
    with pytest.raises(WriteError):
        write_atomic(folder, b"a page")
    assert {file.name for file in tmp_path.iterdir()} == {"verdict.json", "report.html"}


def store(tmp_path: Path) -> RunDir:
    """Write the synthetic run to disk as a generator and its samplers would."""
    manifest, evidence = synthetic(runs=2, tenants=2, duration_s=4)
    run = RunDir.create(tmp_path / "run")
    run.write_manifest(replace(manifest, state="open"))
    for lane in range(2):
        with RowWriter(run.rows_of("local", lane), {"worker": "local", "lane": lane}) as rows:
            for start in range(0, len(evidence.rows), 50):
                rows.append(evidence.rows[start : start + 50][lane::2])
                rows.flush()
    with SampleWriter(run.memory_of("localhost"), MEMORY, {}) as memory:
        memory.append(evidence.memory)
    with SampleWriter(run.engine_metrics, ENGINE, {}) as engine:
        engine.append(evidence.engine)
    with SampleWriter(run.health_of("local", 0), HEALTH, {}) as health:
        health.append(evidence.health)
    return run


def test_evidence_comes_back_from_disk(tmp_path: Path) -> None:
    _, evidence = synthetic(runs=2, tenants=2, duration_s=4)
    run = store(tmp_path)
    run.seal()
    found = read_evidence(run.path)
    key = lambda row: (row.run, row.tenant, row.ordinal)  # noqa: E731
    assert sorted(found.rows, key=key) == sorted(evidence.rows, key=key)
    assert replace(found, rows=evidence.rows) == evidence


def test_run_that_was_never_sealed_is_cut(tmp_path: Path) -> None:
    found = read_evidence(store(tmp_path).path)
    assert not found.sealed
    assert found.cut is not None
    assert "never sealed" in found.cut


def test_torn_tail_is_read_and_makes_a_sealed_run_invalid(tmp_path: Path) -> None:
    run = store(tmp_path)
    file = run.rows_of("local", 1)
    whole = len(read_evidence(run.path).rows)
    file.write_bytes(file.read_bytes()[:-40])
    assert whole - 25 <= len(read_evidence(run.path).rows) < whole
    assert read_evidence(run.path).invalid == ()
    run.seal()
    assert read_evidence(run.path).invalid == (
        "1 pieces of the sealed run's raw files are damaged",
    )


def test_seal_keeps_a_cut_run_cut(tmp_path: Path) -> None:
    run = store(tmp_path)
    run.write_manifest(replace(run.manifest(), cut="Ctrl-C", ended=None))
    sealed = run.seal()
    assert sealed.state == run.manifest().state == "cut"
    assert sealed.ended is not None
    assert read_evidence(run.path).cut == "Ctrl-C"


def test_rows_of_a_newer_format_are_refused(tmp_path: Path) -> None:
    run = store(tmp_path)
    file = run.rows_of("remote", 0)
    with MemberWriter(file, "requests", {"format": 9}):
        pass
    with pytest.raises(FormatError, match="format 9"):
        read_evidence(run.path)


@pytest.mark.parametrize("damage", ["folder", "dangling"])
@pytest.mark.parametrize(
    "name", ["requests/local-0", "health/local-0", "memory/localhost", "engine/metrics"]
)
def test_what_is_no_file_in_the_place_of_one_is_named(
    name: str, damage: str, tmp_path: Path
) -> None:
    run = store(tmp_path)
    file = run.path / f"{name}.jsonl.gz"
    file.unlink()
    if damage == "folder":
        file.mkdir()
    else:
        file.symlink_to(tmp_path / "absent")
    with pytest.raises(FormatError, match="it cannot be read: ") as caught:
        read_evidence(run.path)
    assert str(file) in str(caught.value)


def test_log_that_is_a_folder_is_named(tmp_path: Path) -> None:
    run = store(tmp_path)
    file = run.intervals / "run-1.hlog"
    file.mkdir()
    with pytest.raises(FormatError, match="it cannot be read: Is a directory") as caught:
        read_summaries(run.path)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("left", ["folder gone", "files gone", "headers alone"])
def test_sealed_run_whose_rows_are_gone_says_so(left: str, tmp_path: Path) -> None:
    run = store(tmp_path)
    run.seal()
    assert not read_evidence(run.path).rows_missing
    for file in run.requests.iterdir():
        file.unlink()
        if left == "headers alone":
            with RowWriter(file, {}):
                pass
    if left == "folder gone":
        run.requests.rmdir()
    planned = tuple(replace(span, planned={"chat": 3}) for span in run.manifest().runs)
    run.write_manifest(replace(run.manifest(), runs=planned))
    found = read_evidence(run.path)
    assert found.rows_missing
    assert "ruled from histograms alone: the rows are gone" in doubts(run, run.manifest(), found)


@pytest.mark.parametrize("state", ["open", "cut", "sealed"])
def test_rows_that_were_not_planned_or_not_yet_written_are_not_missing(
    state: Literal["open", "cut", "sealed"], tmp_path: Path
) -> None:
    run = store(tmp_path)
    for file in run.requests.iterdir():
        file.unlink()
    planned = {"chat": 0 if state == "sealed" else 3}
    runs = tuple(replace(span, planned=planned) for span in run.manifest().runs)
    plan = replace(run.manifest().plan, concurrency={})
    run.write_manifest(replace(run.manifest(), runs=runs, plan=plan, state=state))
    assert not read_evidence(run.path).rows_missing


def test_sheet_is_the_one_that_the_run_was_started_with_or_refused(tmp_path: Path) -> None:
    run = store(tmp_path)
    sheet = run.sheets / "sla.yaml"
    with pytest.raises(UsageError, match="is gone"):
        sheet_of(run, "sla")
    sheet.write_bytes(b"version: 1\n")
    hashes = {"sla": hashlib.sha256(b"version: 1\n").hexdigest()}
    run.write_manifest(replace(run.manifest(), sheets_sha256=hashes))
    assert sheet_of(run, "sla") == sheet
    sheet.write_bytes(b"version: 1\n# mine\n")
    with pytest.raises(UsageError, match="not the one that the run was started with") as caught:
        sheet_of(run, "sla")
    assert str(sheet) in str(caught.value)
    assert "--sla" in caught.value.mend
    sheet.unlink()
    sheet.mkdir()
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        sheet_of(run, "sla")


def test_changed_profile_and_engine_sheets_are_doubts_and_no_more(tmp_path: Path) -> None:
    run = store(tmp_path)
    names = ("profile", "engine")
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in (*names, "sla")}
    run.write_manifest(replace(run.manifest(), sheets_sha256=hashes))
    for name in names:
        (run.sheets / f"{name}.yaml").write_text(name)
    evidence = read_evidence(run.path)
    assert doubts(run, run.manifest(), evidence) == ()
    (run.sheets / "profile.yaml").write_text("other")
    (run.sheets / "engine.yaml").unlink()
    assert doubts(run, run.manifest(), evidence) == (
        "sheets/profile.yaml: it is not the one that the run was started with",
        "sheets/engine.yaml: the sheet that the run was started with is gone",
    )
    assert read_evidence(run.path).invalid == evidence.invalid


def test_manifest_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    run = store(tmp_path)
    stored = json.loads(run.manifest_file.read_bytes())
    run.manifest_file.write_text(json.dumps({**stored, "format": 2, "runs": "renamed"}))
    with pytest.raises(FormatError, match="format: 2 is newer than this tailgate") as caught:
        read_evidence(run.path)
    assert str(run.manifest_file) in str(caught.value)
