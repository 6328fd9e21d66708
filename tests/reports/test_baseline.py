from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reports.baseline import find, of_run, pin, pins, read_pin
from reports.fault import FormatError, UsageError
from reports.intervals import write_intervals
from reports.report import Report
from reports.writer import write_all
from slas.histogram import Histogram
from slas.ruling import Ruling


@pytest.fixture
def run(report: Report) -> Path:
    write_intervals(report.run_dir, report.evidence)
    write_all(report)
    return report.run_dir.path


def test_pin_is_the_run(
    run: Path, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "baselines"
    path = pin(run, "main", folder)
    assert path == folder / "main.json"
    found, stored = find("main", folder), of_run(run)
    assert found is not None
    assert replace(found, name=stored.name) == stored
    assert found.measurements == report.measurements
    assert found.subject == report.evidence.subject
    assert found.runs == 2
    assert not found.quick
    assert found.whole
    assert found.simulated
    assert find(str(path)) == found
    assert find(str(run)) == stored


def test_histograms_of_the_window_come_back_and_no_others(
    run: Path, report: Report, tmp_path: Path
) -> None:
    found = read_pin(pin(run, "main", tmp_path)).baseline.histograms
    for key, histogram in report.histograms.items():
        if key[2] != "warmup" and histogram.total:
            assert found[key] == histogram
    assert {phase for _, _, phase, _ in found} == {"burst", "calm"}
    assert isinstance(next(iter(found.values())), Histogram)


def test_pin_says_what_was_tested_with_which_versions(run: Path, tmp_path: Path) -> None:
    pin(run, "v0.33-h100", tmp_path)
    (found,) = pins(tmp_path)
    assert found.name == "v0.33-h100"
    assert found.ruling == "FAIL"
    assert found.versions["engine"] == "0.1.0"
    assert found.versions["gpu driver"] == "sim"
    assert found.run_id == "2026-11-30T17-41-05Z-7f3a"


def test_pin_of_any_seed_is_read(run: Path, report: Report, tmp_path: Path) -> None:
    report.run_dir.write_manifest(replace(report.manifest, seed=10**30))
    assert read_pin(pin(run, "main", tmp_path)).seed == 10**30


def test_pin_is_made_for_diffs(run: Path, tmp_path: Path) -> None:
    path = pin(run, "main", tmp_path)
    assert path.stat().st_size < 400_000
    before = path.read_text().splitlines()
    assert len(before) > 100
    pin(run, "main", tmp_path)
    after = path.read_text().splitlines()
    assert [line for line in after if '"pinned"' not in line] == [
        line for line in before if '"pinned"' not in line
    ]


def test_pin_of_another_run_is_written_over_only_when_asked(
    run: Path, report: Report, tmp_path: Path
) -> None:
    path = pin(run, "main", tmp_path)
    report.run_dir.write_manifest(replace(report.manifest, run_id="2026-12-01T08-00-00Z-0001"))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"another run, 2026-11-30T17-41-05Z-7f3a[\s\S]*--replace"):
        pin(run, "main", tmp_path)
    assert path.read_bytes() == before
    assert read_pin(pin(run, "main", tmp_path, replace=True)).run_id == "2026-12-01T08-00-00Z-0001"


def test_file_that_is_no_pin_is_written_over_only_when_asked(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "main.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="not a pin"):
        pin(run, "main", tmp_path)
    assert read_pin(pin(run, "main", tmp_path, replace=True)).name == "main"


def test_name_that_nobody_pinned_is_no_baseline_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find("main", tmp_path) is None
    assert pins(tmp_path / "absent") == ()


@pytest.mark.parametrize("name", ["runs/2026-typo", "baselines/main.json"])
def test_path_where_nothing_is_is_a_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no such run directory or pin"):
        find(name, tmp_path)


@pytest.mark.parametrize("name", ["", "../main", "Main", "a b", ".hidden"])
def test_names_that_git_and_shells_dislike_are_refused(
    name: str, run: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no name for a pin"):
        pin(run, name, tmp_path / "baselines")
    assert not (tmp_path / "baselines").exists()


def test_quick_run_is_refused(run: Path, report: Report, tmp_path: Path) -> None:
    report.run_dir.write_manifest(replace(report.manifest, quick=True))
    for attempt in (lambda: pin(run, "main", tmp_path), lambda: of_run(run)):
        with pytest.raises(UsageError, match="--quick"):
            attempt()


@pytest.mark.parametrize("state", ["open", "cut"])
def test_run_that_is_not_whole_is_refused(
    state: str, run: Path, report: Report, tmp_path: Path
) -> None:
    report.run_dir.write_manifest(replace(report.manifest, state=state, cut="Ctrl-C"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not whole: Ctrl-C"):
        pin(run, "main", tmp_path)


def test_invalid_run_is_refused(run: Path, report: Report, tmp_path: Path) -> None:
    write_all(replace(report, verdict=replace(report.verdict, ruling=Ruling.INVALID)))
    with pytest.raises(UsageError, match="INVALID"):
        pin(run, "main", tmp_path)


def test_run_that_nobody_ruled_on_is_refused(run: Path, report: Report, tmp_path: Path) -> None:
    report.run_dir.verdict.unlink()
    with pytest.raises(UsageError, match="never ruled on"):
        pin(run, "main", tmp_path)


def test_damaged_and_newer_pins_are_refused_by_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = pin(run, "main", tmp_path)
    whole = path.read_text()
    path.write_text(whole[:1000])
    with pytest.raises(FormatError, match=r"main\.json: not a pin"):
        find("main", tmp_path)
    for text in ("[]", "{}", "[" * 100_000, '{"format": "1"}'):
        path.write_text(text)
        with pytest.raises(FormatError, match=r"main\.json: not a pin"):
            find("main", tmp_path)
    path.write_text(json.dumps({**json.loads(whole), "format": 2}))
    with pytest.raises(FormatError, match="format: 2 is newer"):
        find("main", tmp_path)
    path.write_text(json.dumps({**json.loads(whole), "histograms": {"ttft.chat.calm.r0": "x"}}))
    with pytest.raises(FormatError, match=r"main\.json: not a pin"):
        find("main", tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("runs", "2", "runs is '2', no integer"),
        ("seed", -1, "seed is -1, out of range"),
        ("runs", 10**30, "runs is .*, out of range"),
        ("simulated", "no", "simulated is 'no', neither true nor false"),
        ("ruling", None, "ruling is None, no text"),
        ("subject", [], r"subject is \[\], no object"),
        ("subject.model", 5, "model is 5, no text"),
        ("subject.gpu_models", [5], "gpu_models holds 5, no text"),
        ("versions", {"numpy": 2}, "versions.numpy is 2, no text"),
        ("histograms", {"ttft.chat.calm.r1": 5}, "histograms.ttft.chat.calm.r1 is 5, no text"),
        ("measurements", {}, "measurements is {}, no list"),
        ("measurements", [5], "measurement 0 is 5, no object"),
        ("measurements.0.p99", "fast", "measurement 0: p99 is 'fast', no number"),
        ("measurements.0.count", 10**30, "measurement 0: count is .*, out of range"),
    ],
)
def test_value_that_no_pin_may_hold_is_named(
    place: str, value: object, said: str, run: Path, tmp_path: Path
) -> None:
    path = pin(run, "main", tmp_path)
    stored = json.loads(path.read_text())
    *way, last = (int(part) if part.isdigit() else part for part in place.split("."))
    inner = stored
    for part in way:
        inner = inner[part]
    inner[last] = value
    path.write_text(json.dumps(stored))
    with pytest.raises(FormatError, match=f"not a pin: .*{said}"):
        read_pin(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "measurements are {}, no list"),
        ("[" * 100_000, "not a list of measurements"),
        ('[{"metric": "ttft"}]', "measurement 0: the key 'tenant' is missing"),
    ],
)
def test_measurements_that_are_none_are_named(text: str, said: str, run: Path) -> None:
    (run / "measurements.json").write_text(text)
    with pytest.raises(FormatError, match=said) as caught:
        of_run(run)
    assert "measurements.json" in str(caught.value)
