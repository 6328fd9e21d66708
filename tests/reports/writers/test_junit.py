from __future__ import annotations

from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest

from reports.report import Report
from reports.writers.junit import render
from slas.ruling import Ruling
from tests.reports.hostile import WORDS, with_words
from tests.reports.synthetic import interrupted


def cases(report: Report) -> dict[tuple[str, str], Element]:
    suites = fromstring(render(report))
    found = list(suites.iter("testcase"))
    by_name = {(case.attrib["classname"], case.attrib["name"]): case for case in found}
    assert len(by_name) == len(found), "of two equal names CI systems count only the first"
    return by_name


def outcome(case: Element) -> str:
    return next((child.tag for child in case if child.tag != "system-out"), "passed")


def test_every_ruling_has_its_outcome(report: Report) -> None:
    found = cases(report)
    assert {key: outcome(case) for key, case in found.items()} == {
        ("tailgate.interactive.run", "the instrument was fit to measure"): "passed",
        ("tailgate.interactive.run", "the engine stayed alive"): "passed",
        ("tailgate.interactive.run", "the run was not cut"): "passed",
        ("tailgate.interactive.chat", "ttft.p99{tenant=chat} <= 300ms"): "failure",
        ("tailgate.interactive.code", "ttft.p99{tenant=*} <= 400ms"): "passed",
        ("tailgate.interactive.chat", "itl.p99{tenant=chat} <= 60ms"): "passed",
        ("tailgate.interactive.code", "e2e.p95{tenant=code} <= 1.5s"): "error",
        ("tailgate.interactive.all", "error_rate <= 0.1%"): "failure",
        ("tailgate.interactive.all", "vram.peak{gpu=*} <= 85% [node=localhost, gpu=0]"): "passed",
        ("tailgate.interactive.all", "ttft.p99 <= baseline + 10%"): "skipped",
        ("tailgate.interactive.chat", "ttft.p99{tenant=chat, phase=burst} <= 200ms"): "passed",
    }
    failed = found["tailgate.interactive.chat", "ttft.p99{tenant=chat} <= 300ms"]
    assert failed.attrib["file"] == "slas/interactive.yaml"
    assert failed.attrib["line"] == "4"
    message = failed[0].attrib["message"]
    for part in ("471 ms", "300 ms", "157 %", "2,104 requests"):
        assert part in message
    should = found["tailgate.interactive.chat", "ttft.p99{tenant=chat, phase=burst} <= 200ms"]
    assert "warning: FAIL" in (should.findtext("system-out") or "")


def test_counts_are_those_of_the_cases(report: Report) -> None:
    suites = fromstring(render(report))
    for element in (suites, suites[0]):
        assert element.attrib["tests"] == "11"
        assert element.attrib["failures"] == "2"
        assert element.attrib["errors"] == "1"
        assert element.attrib["skipped"] == "1"


def test_names_stay_when_what_was_measured_changes(report: Report) -> None:
    other = tuple(
        replace(
            check,
            ruling=Ruling.PASS,
            because="something else",
            measured=None if check.measured is None else replace(check.measured, value=0.001),
        )
        for check in report.verdict.checks
    )
    after = replace(report, verdict=replace(report.verdict, checks=other, ruling=Ruling.PASS))
    assert cases(report).keys() == cases(after).keys()


def test_strict_makes_a_broken_should_a_failure(report: Report) -> None:
    strict = replace(report, verdict=replace(report.verdict, strict=True))
    key = ("tailgate.interactive.chat", "ttft.p99{tenant=chat, phase=burst} <= 200ms")
    assert outcome(cases(strict)[key]) == "failure"


def test_inconclusive_that_only_warns_is_no_error(report: Report) -> None:
    warned = replace(report, exit_code=0)
    key = ("tailgate.interactive.code", "e2e.p95{tenant=code} <= 1.5s")
    assert outcome(cases(warned)[key]) == "passed"


def test_invalid_run_is_never_green(report: Report) -> None:
    health = replace(report.verdict.health, fit=False, reasons=("lateness p99 is 41 ms",))
    invalid = replace(
        report,
        exit_code=4,
        verdict=replace(report.verdict, ruling=Ruling.INVALID, health=health),
    )
    found = cases(invalid)
    fit = found["tailgate.interactive.run", "the instrument was fit to measure"]
    assert outcome(fit) == "error"
    assert "lateness p99 is 41 ms" in fit[0].attrib["message"]
    passed = found["tailgate.interactive.chat", "itl.p99{tenant=chat} <= 60ms"]
    assert outcome(passed) == "skipped"


def test_interrupted_run_is_not_green_and_says_why_once(report: Report) -> None:
    found = cases(interrupted(report))
    fit = found["tailgate.interactive.run", "the instrument was fit to measure"]
    whole = found["tailgate.interactive.run", "the run was not cut"]
    assert (outcome(fit), outcome(whole)) == ("passed", "error")
    case = found["tailgate.interactive.chat", "itl.p99{tenant=chat} <= 60ms"]
    assert outcome(case) == "skipped"
    assert case[0].attrib["message"] == (
        "not ruled, the run was interrupted: measured 44.1 ms, limit 60.0 ms, 73.5 % of it,"
        " 2,104 requests in 2 runs"
    )


def test_dead_engine_and_cut_run_have_cases_of_their_own(report: Report) -> None:
    dead = replace(
        report.verdict, engine_fault="exited with status 139", cut="the engine died at 12 s"
    )
    found = cases(replace(report, verdict=dead))
    assert outcome(found["tailgate.interactive.run", "the engine stayed alive"]) == "failure"
    assert outcome(found["tailgate.interactive.run", "the run was not cut"]) == "error"


def test_equal_checks_are_told_apart(report: Report) -> None:
    twice = (report.verdict.checks[0], report.verdict.checks[0])
    assert len(cases(replace(report, verdict=replace(report.verdict, checks=twice)))) == 5


@pytest.mark.parametrize("words", WORDS)
def test_hostile_words_stay_words(words: str, report: Report) -> None:
    root = fromstring(render(with_words(report, words)))
    assert {element.tag for element in root.iter()} <= {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "error",
        "skipped",
        "system-out",
    }
