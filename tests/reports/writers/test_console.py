from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from reports.report import Report
from reports.writers.console import plain, render
from tests.reports.hostile import WORDS, with_words


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
    assert lines[0] == "FAIL: a promise was broken (exit 99)"
    (line,) = [line for line in lines if "ttft.p99{tenant=chat} <= 300ms" in line]
    assert line.startswith("FAIL         must   ")
    assert "measured 471 ms, limit 300 ms, 157 % of it, 2,104 samples" in line
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
