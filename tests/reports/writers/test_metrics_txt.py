from __future__ import annotations

import re

import pytest

from reports.report import Report
from reports.writers.metrics_txt import render
from tests.reports.hostile import WORDS, with_words

SAMPLE = re.compile(r'([a-z_0-9]+)\{([a-z]+="(?:[^"\\\n]|\\.)*",?)*\} (-?[0-9.e+-]+)')


def test_text_is_openmetrics(report: Report) -> None:
    lines = render(report).decode().splitlines()
    assert lines[-1] == "# EOF"
    families: list[str] = []
    for line in lines[:-1]:
        if line.startswith("# TYPE"):
            families.append(line.split()[2])
        elif line.startswith("# UNIT"):
            assert line.split()[2].endswith(line.split()[3])
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == families[-1], "samples stand below their family"
    assert len(families) == len(set(families))


def test_values_are_short_and_marked_simulated(report: Report) -> None:
    (line,) = [
        line
        for line in render(report).decode().splitlines()
        if line.startswith('tailgate_itl_seconds{tenant="batch"') and '"p99"' in line
    ]
    assert 'simulated="true"' in line
    assert len(line.split()[-1]) <= 9


@pytest.mark.parametrize("words", WORDS)
def test_hostile_words_stay_in_their_label(words: str, report: Report) -> None:
    for line in render(with_words(report, words)).decode().splitlines():
        assert line.startswith("#") or SAMPLE.fullmatch(line)
