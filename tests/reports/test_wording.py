from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reports.report import Report
from reports.wording import (
    cause_label,
    counts,
    facts,
    fitness,
    headline,
    reasons,
    warnings,
    way_out,
    why,
    word,
)
from reports.writers import verdict_json
from slas.check import rule
from slas.ruling import CheckRuling, Ruling, Verdict
from slas.sla import read_sla
from tests.reports.synthetic import interrupted


def check_of(report: Report, **changes: object) -> CheckRuling:
    return replace(report.verdict.checks[0], **changes)  # type: ignore[arg-type]


def ruled(report: Report, ruling: Ruling, **changes: object) -> Report:
    verdict: Verdict = replace(report.verdict, ruling=ruling, **changes)  # type: ignore[arg-type]
    return replace(report, verdict=verdict)


def court(report: Report, tmp_path: Path, promise: str) -> Verdict:
    """Return what the court itself says of the synthetic run."""
    sheet = tmp_path / "sla.yaml"
    sheet.write_text(f"version: 1\nmust:\n  - {promise}\n")
    sla, _ = read_sla(sheet)
    return rule(sla, report.evidence, None)


def test_doubts_of_the_directory_are_said_once_in_every_report(report: Report) -> None:
    words = "ruled from histograms alone: the rows are gone"
    doubted = ruled(replace(report, doubts=(words,)), Ruling.PASS, warnings=(words,))
    assert warnings(doubted).count(words) == 1
    assert json.loads(verdict_json.render(doubted))["warnings"].count(words) == 1


@pytest.mark.parametrize(
    ("expr", "samples", "said"),
    [
        ("itl.p95 <= 60ms", 223, "223 requests"),
        ("error_rate <= 1%", 1, "1 request"),
        ("throughput.requests >= 1/s", 2104, "2,104 requests"),
        ("vram.peak{gpu=*} <= 85%", 33, "33 samples"),
        ("queue.peak <= 4", 1, "1 sample"),
        ("carbon.peak <= 4", 2, "2 samples"),
    ],
)
def test_what_a_ruling_rests_on_has_its_name(
    expr: str, samples: int, said: str, report: Report
) -> None:
    measured = report.verdict.checks[0].measured
    assert measured is not None
    check = check_of(report, expr=expr, measured=replace(measured, samples=samples, runs=1))
    assert counts(check) == said


def test_nothing_measured_is_not_dressed_up(report: Report) -> None:
    assert facts(check_of(report, measured=None, limit=None)) == "not measured"
    assert facts(check_of(report, measured=None)) == "not measured, limit 300 ms"


def test_headline_names_what_decided(report: Report) -> None:
    strict = ruled(report, Ruling.FAIL, strict=True)
    assert headline(strict).endswith("measured 471 ms, and 2 more (exit 99)")
    open_ones = ruled(report, Ruling.INCONCLUSIVE)
    assert headline(open_ones) == (
        "not enough evidence to rule on e2e.p95{tenant=code} <= 1.5s, measured 1.49 s (exit 99)"
    )
    every = check_of(report, expr="ttft.p99{tenant=*} <= 300ms", measured=None)
    one = ruled(report, Ruling.FAIL, checks=(every,))
    assert headline(one) == "a promise was broken: ttft.p99{tenant=*} <= 300ms for chat (exit 99)"


def test_headline_says_the_first_ground_and_the_rest_is_not_said_twice(report: Report) -> None:
    health = replace(
        report.verdict.health, fit=False, reasons=("rows were lost", "a clock stepped")
    )
    invalid = ruled(report, Ruling.INVALID, health=health)
    assert headline(invalid) == (
        "the measurement does not count, by our fault and not the engine's: rows were lost (exit 99)"
    )
    assert reasons(invalid) == ["the instrument was not fit: a clock stepped"]
    dead = ruled(report, Ruling.FAIL, engine_fault="exited with status 139", cut="the engine died")
    assert headline(dead) == "the engine failed: exited with status 139 (exit 99)"
    assert reasons(dead) == ["the run was cut: the engine died"]
    killed = ruled(report, Ruling.INVALID, cut="the run was never sealed")
    assert headline(killed) == (
        "the run was cut before anything was certain: the run was never sealed (exit 99)"
    )
    assert reasons(killed) == []


def test_pass_says_what_did_not_pass(report: Report) -> None:
    assert headline(ruled(report, Ruling.PASS)).startswith("no must is broken; 3 FAIL, 1 INCONCL")
    kept = tuple(replace(check, ruling=Ruling.PASS) for check in report.verdict.checks)
    assert headline(ruled(report, Ruling.PASS, checks=kept)) == "every promise held (exit 99)"


def test_interrupted_run_with_a_certain_break_is_a_fail(report: Report) -> None:
    assert word(interrupted(report)) == "INTERRUPTED"
    cut = interrupted(report)
    assert word(ruled(cut, Ruling.FAIL)) == "FAIL"
    assert word(replace(cut, exit_code=4)) == "INVALID"
    assert "before anything was certain: interrupted by SIGINT" in headline(
        replace(cut, exit_code=4)
    )


def test_court_of_a_cut_run_leaves_nothing_to_say_of_a_check(
    report: Report, tmp_path: Path
) -> None:
    cut = replace(report, evidence=replace(report.evidence, cut="interrupted by SIGINT"))
    verdict = court(cut, tmp_path, "ttft.p99 <= 10s")
    assert verdict.checks[0].ruling is Ruling.INCONCLUSIVE
    assert why(verdict.checks[0], verdict) is None
    assert way_out(verdict.checks[0], verdict) is None


def test_looser_limit_is_no_mend(report: Report, tmp_path: Path) -> None:
    verdict = court(report, tmp_path, "ttft.p50{tenant=chat} <= 1ms")
    label, words = way_out(verdict.checks[0], verdict) or ("", "")
    assert label == "would pass at"
    assert words.endswith("ms")
    other = check_of(report, mend="run with --runs 8")
    assert way_out(other, verdict) == ("mend:", "run with --runs 8")


def test_an_instrument_is_called_fit_only_if_it_was_not_slow(report: Report) -> None:
    health = report.verdict.health
    slow = replace(health, slow=("lateness p99 is 409 ms",))
    assert fitness(health) == "fit"
    assert fitness(slow) == "slow, which changes no ruling"
    assert fitness(replace(health, fit=False)) == "not fit"
    assert (cause_label(health), cause_label(slow)) == ("note", "cause")
