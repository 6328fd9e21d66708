from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from reports.report import Report, RuledBy
from reports.writers.console import plain, render
from tests.reports.hostile import WORDS, with_words
from tests.reports.synthetic import interrupted


def printed(report: Report, *, terminal: bool, width: int = 100, colour: bool = True) -> str:
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=width,
        no_color=not colour,
        color_system="truecolor" if colour and terminal else None,
    )
    render(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_log_gets_plain_lines_one_a_check(report: Report) -> None:
    text = printed(report, terminal=False)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0] == (
        "FAIL: a promise was broken: ttft.p99{tenant=chat} <= 300ms, measured 471 ms, and 1 more (exit 99)"
    )
    (line,) = [line for line in lines[1:] if "ttft.p99{tenant=chat} <= 300ms" in line]
    assert line.startswith("FAIL         must   ")
    assert "measured 471 ms, limit 300 ms, 157 % of it, 2,104 requests in 2 runs" in line
    assert "             mend: run with --runs 8" in lines


@pytest.mark.parametrize("width", [80, 100, 140])
def test_terminal_table_fits_and_says_why(report: Report, width: int) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed(report, terminal=True, width=width))
    assert max(len(line) for line in text.splitlines()) <= width
    for words in ("471 ms", "300 ms", "157 %", "above every limit", "mend: run with --runs 8"):
        assert words in text
    assert "there is no baseline main yet" in text


def test_no_colour_where_none_is_wanted(report: Report) -> None:
    assert "\x1b[1;31m" in printed(report, terminal=True)
    assert "\x1b[1;31m" not in printed(report, terminal=True, colour=False)


def test_narrow_terminal_gets_lines(report: Report) -> None:
    assert printed(report, terminal=True, width=60).startswith("FAIL: a promise was broken")


@pytest.mark.parametrize("words", WORDS)
def test_hostile_words_steer_no_terminal_and_break_no_line(words: str, report: Report) -> None:
    hostile = with_words(report, words)
    assert all(line.isprintable() for line in plain(hostile))
    text = printed(hostile, terminal=True, colour=False)
    assert "\x1b[31m" not in text
    assert "\x07" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_interruption_is_said_once_and_a_check_takes_a_line(terminal: bool, report: Report) -> None:
    text = printed(interrupted(report), terminal=terminal, width=160, colour=False)
    assert "INTERRUPTED" in text
    assert text.count("SIGINT") == 1
    for words in (
        "INVALID",
        "our side",
        "our fault",
        "run it to its end",
        "not broken for certain",
    ):
        assert words not in text
    (line,) = [line for line in text.splitlines() if "itl.p99{tenant=chat}" in line]
    assert line.startswith("INCONCLUSIVE")
    assert "44.1 ms" in line


def test_quick_run_and_another_sla_are_said_before_any_check(report: Report) -> None:
    quick = replace(
        report,
        manifest=replace(report.manifest, quick=True),
        ruled_by=RuledBy(sla="slas/p95.yaml", sha256="ab" * 32, again="2026-12-01T08:00:00Z"),
    )
    for terminal in (True, False):
        text = printed(quick, terminal=terminal, width=160, colour=False)
        assert text.index("run without --quick") < text.index("ttft.p99{tenant=*}")
        assert f"ruled again on p95.yaml, sha256 {'ab' * 32}" in text
    for words in ("--quick", "ruled again"):
        assert words not in printed(report, terminal=False)


def test_fit_instrument_has_notes_and_a_sick_one_causes(report: Report) -> None:
    assert "note: no run-queue wait to speak of" in plain(report)
    health = replace(report.verdict.health, fit=False)
    sick = replace(report, verdict=replace(report.verdict, health=health))
    assert "cause: no run-queue wait to speak of" in plain(sick)
