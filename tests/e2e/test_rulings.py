"""Whole runs on the simulated engine, each to its exit code, with the files of a run left behind."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.e2e.sitting import PROFILE, Table, survivors

DERIVED = ("verdict.json", "measurements.json", "junit.xml", "summary.md", "report.html")


def test_a_kept_promise_passes_and_leaves_a_whole_run_directory(table: Table) -> None:
    ended = table.play()

    assert ended.code == 0, ended.said
    assert "PASS" in ended.out
    assert str(ended.run / "report.html") in ended.out
    assert ended.manifest["state"] == "sealed"
    assert ended.manifest["simulated"] is True
    assert ended.verdict["ruling"] == "PASS"
    assert ended.verdict["exit_code"] == 0
    assert ended.verdict["evidence"] == "point"
    assert ended.verdict["simulated"] is True
    for name in DERIVED:
        assert (ended.run / name).stat().st_size > 0, name
    assert "simulated" in (ended.run / "report.html").read_text()
    assert list((ended.run / "intervals").glob("*.hlog"))
    assert list((ended.run / "memory").glob("*.jsonl.gz"))
    assert (ended.run / "sheets" / "profile.yaml").read_text() == PROFILE
    assert survivors(ended.run) == []


def test_a_broken_promise_exits_99_and_says_which(table: Table) -> None:
    table.sheet("sla.yaml", "version: 1\nmust:\n  - throughput.requests >= 1000/s\n")

    ended = table.play()

    assert ended.code == 99, ended.said
    assert "throughput.requests >= 1000/s" in ended.out
    junit = ET.parse(ended.run / "junit.xml").getroot()
    assert junit.find(".//failure") is not None
    assert survivors(ended.run) == []


def test_a_broken_should_warns_unless_strict(table: Table) -> None:
    table.sheet(
        "sla.yaml",
        "version: 1\nmust:\n  - error_rate <= 1%\nshould:\n  - throughput.requests >= 1000/s\n",
    )

    ended = table.play()

    assert ended.code == 0, ended.said
    strict = table.command("check", str(ended.run), "--strict")
    assert strict.code == 99, strict.said


def test_check_rules_again_from_rows_and_from_histograms_alone(table: Table) -> None:
    table.sheet(
        "sla.yaml",
        "version: 1\nmust:\n  - ttft.p99{tenant=chat} <= 3s\n  - error_rate <= 1%\n"
        "  - e2e.p50{tenant=batch} <= 5s\n",
    )
    ended = table.play()
    assert ended.code == 0, ended.said
    from_rows = ended.verdict

    again = table.command("check", str(ended.run))
    assert again.code == 0, again.said
    for one, other in zip(ended.verdict["checks"], from_rows["checks"], strict=True):
        assert one["measured"] == other["measured"]
        assert one["ruling"] == other["ruling"]

    for file in (ended.run / "requests").glob("*"):
        file.unlink()
    alone = table.command("check", str(ended.run))

    assert alone.code == 0, alone.said
    from_histograms = ended.verdict
    assert [c["ruling"] for c in from_histograms["checks"]] == [
        c["ruling"] for c in from_rows["checks"]
    ]
    for ours, theirs in zip(from_histograms["checks"], from_rows["checks"], strict=True):
        a, b = ours["measured"]["value"], theirs["measured"]["value"]
        assert abs(a - b) <= 0.001 * max(abs(b), 1e-3), (ours, theirs)


def test_several_runs_share_one_engine_and_rule_with_confidence(table: Table) -> None:
    table.sheet(
        "sla.yaml",
        "version: 1\nruns: 3\nconfidence: 95%\nmust:\n  - ttft.p50{tenant=chat} <= 3s\n"
        "  - throughput.requests >= 1/s\n",
    )

    ended = table.play()

    assert ended.code == 0, ended.said
    assert ended.verdict["evidence"] == "3 runs, 95%"
    assert [span["run"] for span in ended.manifest["runs"]] == [1, 2, 3]
    measured = ended.verdict["checks"][0]["measured"]
    assert measured["runs"] == 3
    assert measured["high"] is not None
    starts = (ended.run / "engine" / "stdout.log").read_text().count("Starting")
    assert starts <= 1


def test_a_regression_against_a_stored_run_breaks_the_build(table: Table) -> None:
    first = table.play()
    assert first.code == 0, first.said
    kept = first.run.rename(table.folder / "before")
    pinned = table.command("baseline", "pin", str(kept), "--name", "main")
    assert pinned.code == 0, pinned.said
    assert list((table.folder / "baselines").iterdir())
    other = table.folder / "other"
    shutil.copytree(kept, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "run_id": "another"}))
    refused = table.command("baseline", "pin", str(other), "--name", "main")
    assert refused.code == 2
    assert "--replace" in refused.err
    table.sheet("sla.yaml", "version: 1\nmust:\n  - e2e.p50{tenant=chat} <= baseline + 900%\n")

    held = table.play("--baseline", "main")

    assert held.code == 0, held.said
    table.sheet("sla.yaml", "version: 1\nmust:\n  - throughput.requests >= baseline + 90%\n")
    broken = table.command(
        "check", str(held.run), "--sla", str(table.folder / "sla.yaml"), "--baseline", str(kept)
    )
    assert broken.code == 99, broken.said
    shown = table.command("baseline", "show", "main")
    assert shown.code == 0
    assert first.manifest_of(kept)["schedule_sha256"] in shown.out


def test_no_baseline_yet_is_skipped_loudly(table: Table) -> None:
    table.sheet(
        "sla.yaml",
        "version: 1\nmust:\n  - error_rate <= 1%\n  - ttft.p99{tenant=chat} <= baseline + 10%\n",
    )

    ended = table.play("--baseline", "main")

    assert ended.code == 0, ended.said
    assert "SKIPPED" in ended.out
    assert "main" in ended.said


def test_quick_is_one_run_of_point_evidence(table: Table) -> None:
    table.sheet(
        "sla.yaml",
        "version: 1\nruns: 5\nconfidence: 95%\nmust:\n  - error_rate <= 1%\n",
    )

    ended = table.play("--quick")

    assert ended.code == 0, ended.said
    assert ended.verdict["evidence"] == "point"
    assert len(ended.manifest["runs"]) == 1
    refused = table.command("baseline", "pin", str(ended.run), "--name", "main")
    assert refused.code == 2, refused.said


def test_two_generators_send_exactly_the_schedule(table: Table) -> None:
    ended = table.play("--generators", "2")

    assert ended.code == 0, ended.said
    files = sorted(path.name for path in (ended.run / "requests").iterdir())
    assert files == ["local-0.jsonl.gz", "local-1.jsonl.gz"]
    planned = table.command("schedule", str(table.folder / "profile.yaml"), "--rows", "planned")
    assert planned.code == 0
    rows = [json.loads(line) for line in (table.folder / "planned").read_text().splitlines()]
    chat = [row for row in rows if row["tenant"] == "chat"]
    played = [row for row in ended.rows() if row["tenant"] == "chat"]
    assert sorted(row["due_ns"] for row in played) == [row["due_ns"] for row in chat]


def test_a_memory_budget_names_the_gpu_the_second_and_the_burst(table: Table) -> None:
    table.sheet(
        "profile.yaml",
        PROFILE.replace("tenants:", "surges: [{at: 1s, for: 2s, factor: 6}]\ntenants:", 1),
    )
    table.sheet("sla.yaml", "version: 1\nmust:\n  - vram.peak{gpu=*} <= 1GiB\n")

    ended = table.play(engine="sim-dynamic")

    assert ended.code == 99, ended.said
    (check,) = ended.verdict["checks"]
    assert check["gpu"] == 0
    assert "GPU 0" in check["because"]
    assert " s" in check["because"]


def test_json_on_check_is_verdict_json(table: Table) -> None:
    ended = table.play()
    printed = table.command("check", str(ended.run), "--json")
    assert json.loads(printed.out) == ended.verdict


def test_the_run_directory_must_be_new(table: Table) -> None:
    (table.folder / "run").mkdir()
    Path(table.folder / "run" / "mine.txt").write_text("keep")

    ended = table.play()

    assert ended.code == 2
    assert "--out" in ended.said
    assert (table.folder / "run" / "mine.txt").read_text() == "keep"
