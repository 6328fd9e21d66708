"""What happens to the words when nobody can take them."""

from __future__ import annotations

import subprocess
import sys

import pytest

TAILGATE = [sys.executable, "-P", "-m", "tailgate"]


def code(redirection: str, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *TAILGATE, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "2>&-", "2> /dev/full"])
def test_streams_that_are_closed_or_full_cost_only_the_words(redirection: str) -> None:
    assert code(redirection, "schedule", "smoke") == (0, "")


def test_a_full_disk_behind_a_table_costs_only_the_words() -> None:
    assert code("> /dev/full", "schedule", "smoke") == (0, "")


def test_data_that_could_not_be_written_is_a_failure() -> None:
    status, said = code("> /dev/full", "schema", "profile")
    assert status == 4
    assert "No space left" in said


def test_a_word_that_is_no_utf8_is_refused() -> None:
    status, said = code("", "schedule", "x\udcff")
    assert status == 2
    assert "UTF-8" in said


def test_an_empty_out_is_refused() -> None:
    status, said = code(
        "", "run", "--engine", "sim-static", "--profile", "smoke", "--sla", "smoke", "--out", ""
    )
    assert status == 2
    assert "--out" in said


def test_a_name_that_no_file_system_takes_is_refused() -> None:
    words = ("run", "--engine", "sim-static", "--profile", "smoke", "--sla", "smoke")
    status, said = code("", *words, "--out", "x" * 300)
    assert status == 2
    assert "Traceback" not in said
