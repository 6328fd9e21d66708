from __future__ import annotations

import re
from dataclasses import replace

import pytest

from reports.report import Report, RuledBy
from reports.writers.markdown import LARGEST_BYTES, render
from slas.regression import Baseline
from tests.reports.hostile import WORDS, with_words
from tests.reports.synthetic import interrupted


def test_ruling_comes_first_and_checks_are_a_table(report: Report) -> None:
    lines = render(report).decode().splitlines()
    assert lines[0] == (
        "## ❌ FAIL: a promise was broken: ttft.p99{tenant=chat} &lt;= 300ms, measured 471 ms, and 1 more"
        " (exit 99)"
    )
    assert "simulated" in lines[2]
    table = [line for line in lines if line.startswith("|")]
    assert "471 ms" in table[2]
    assert "300 ms" in table[2]
    assert "157 %" in table[2]
    assert "2,104 requests in 2 runs" in table[2]
    assert any(line.startswith("- ❌ <code>ttft.p99{tenant=chat}") for line in lines)
    assert any("**Mend:** lower the burst factor" in line for line in lines)


def test_quick_run_and_another_sla_are_said_before_any_check(report: Report) -> None:
    text = render(
        replace(
            report,
            manifest=replace(report.manifest, quick=True),
            ruled_by=RuledBy(sla="slas/p95.yaml", sha256="ab" * 32, again="2026-12-01T08:00:00Z"),
        )
    ).decode()
    assert text.index("> **quick: one run") < text.index("| ruling |")
    assert f"> **ruled again on p95.yaml, sha256 {'ab' * 32}**" in text
    assert f"- SLA slas/p95.yaml, sha256 `{'ab' * 32}`" in text
    plain = render(report).decode()
    assert "quick" not in plain
    assert "ruled again" not in plain


def test_interruption_is_said_once(report: Report) -> None:
    text = render(interrupted(report)).decode()
    assert text.startswith("## ⛔ INTERRUPTED: by SIGINT")
    assert text.count("SIGINT") == 1
    assert "INVALID" not in text


def test_change_against_the_baseline_is_shown(report: Report) -> None:
    before = tuple(
        replace(found, p99=None if found.p99 is None else found.p99 / 2, p50=None)
        for found in report.measurements
    )
    baseline = Baseline(name="main", subject=report.evidence.subject, runs=1, measurements=before)
    text = render(replace(report, baseline=baseline)).decode()
    assert "### Against baseline main" in text
    assert re.search(r"\| <code>itl\.p99</code> \| batch \| .* \| \+100\.0% \|", text)


@pytest.mark.parametrize("words", WORDS)
def test_hostile_words_make_no_row_no_tag_and_no_link(words: str, report: Report) -> None:
    text = render(with_words(report, words)).decode()
    assert set(re.findall(r"<(/?[a-zA-Z!][a-z-]*)", text)) <= {
        "code", "/code", "sub", "/sub", "details", "/details", "summary", "/summary",
    }  # fmt: skip
    assert re.search(r"(?<!\\)\]\(", text) is None
    assert "://" not in text
    for line in text.splitlines():
        if line.startswith("| ") and "FAIL" in line:
            assert len(re.findall(r"(?<!\\)\|", line)) == 9
    assert "\x1b" not in text


def test_summary_fits_what_github_takes(report: Report) -> None:
    check = replace(report.verdict.checks[0], because="x" * 5000)
    big = replace(report, verdict=replace(report.verdict, checks=(check,) * 400))
    text = render(big)
    assert len(text) <= LARGEST_BYTES + 100
    assert b"more lines are in verdict.json" in text
