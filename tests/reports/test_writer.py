from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from profiles import shelf
from profiles.shelf import ShelfError
from reports.report import Report, Writer
from reports.rundir import read_summaries
from reports.writer import WRITERS, all_writers, write_all

NUMBERS_ONLY = {"measurements"}
"""Writers whose format has no room for a word about the run."""


@pytest.fixture(autouse=True)
def _forget_plug_ins() -> Any:
    all_writers.cache_clear()
    yield
    all_writers.cache_clear()


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_is_a_pure_function_of_the_report(name: str, report: Report) -> None:
    found = WRITERS[name]
    assert found.render(report) == found.render(report)
    assert "/" not in found.file


@pytest.mark.parametrize("name", sorted(WRITERS.keys() - NUMBERS_ONLY))
def test_every_file_of_a_simulated_run_says_so(name: str, report: Report) -> None:
    assert b"simulated" in WRITERS[name].render(report)


def test_every_file_of_a_run_is_written(report: Report) -> None:
    paths = write_all(report)
    assert {path.name for path in paths} == {writer.file for writer in WRITERS.values()}
    assert all(path.stat().st_size for path in paths)
    assert paths[-1].name == "verdict.json"
    assert read_summaries(report.run_dir.path).measurements == report.measurements


class Loaded:
    """Stands where a plug-in's module would be."""

    good = Writer(file="carbon.json", render=lambda report: b"{}")
    taken = Writer(file="junit.xml", render=lambda report: b"")
    other = 7


def offer(monkeypatch: pytest.MonkeyPatch, name: str, attribute: str) -> None:
    point = EntryPoint(name=name, value=f"{__name__}:Loaded.{attribute}", group="tailgate.writers")
    monkeypatch.setattr(shelf, "entry_points", lambda group: [point])


def test_outsiders_bring_writers(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "carbon", "good")
    assert (report.run_dir.path / "carbon.json") in write_all(report)


@pytest.mark.parametrize(
    ("name", "attribute", "said"),
    [
        ("html", "good", "taken twice"),
        ("carbon", "taken", "both write junit.xml"),
        ("carbon", "other", "is no Writer"),
    ],
)
def test_outsiders_take_no_name_and_no_file(
    name: str, attribute: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, name, attribute)
    with pytest.raises(ShelfError, match=said):
        all_writers()


def test_report_is_a_value(report: Report) -> None:
    assert replace(report, exit_code=0).exit_code == 0
