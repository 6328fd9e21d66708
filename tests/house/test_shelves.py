"""One contract for everything that is chosen by name, so that a new entry is tested by existing."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchers.engine import ENGINES, engines
from launchers.place import PLACES, places
from loadgen.dialect import DIALECTS
from profiles.arrival import ARRIVALS, arrivals
from profiles.process import Arrival, Stretch
from profiles.shelf import ShelfError, shelve
from profiles.trace import TRACES, traces
from reports.writer import WRITERS, all_writers
from slas.metric import METRICS, metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A dict of ours, the function that adds what other packages bring, and the code of such a package."""

    name: str
    ours: Mapping[str, Any]
    everything: Callable[[], Mapping[str, Any]]
    folder: str
    outsider: str


SHELVES = (
    Shelf(
        name="arrivals",
        ours=ARRIVALS,
        everything=arrivals,
        folder="profiles.arrivals",
        outsider="from profiles.arrivals.poisson import Poisson\nclass Entry(Poisson): ...\n",
    ),
    Shelf(
        name="traces",
        ours=TRACES,
        everything=traces,
        folder="profiles.traces",
        outsider="def Entry(path): yield from ()\n",
    ),
    Shelf(
        name="metrics",
        ours=METRICS,
        everything=metrics,
        folder="slas.metrics",
        outsider="from dataclasses import replace\nfrom slas.metrics.latency import TTFT\n"
        "Entry = replace(TTFT, name='planted')\n",
    ),
    Shelf(
        name="writers",
        ours=WRITERS,
        everything=all_writers,
        folder="reports.writers",
        outsider="from reports.report import Writer\n"
        "Entry = Writer(file='planted.txt', render=lambda report: b'')\n",
    ),
    Shelf(
        name="engines",
        ours=ENGINES,
        everything=engines,
        folder="launchers.engines",
        outsider="from launchers.engines.vllm import Vllm\nclass Entry(Vllm): ...\n",
    ),
    Shelf(
        name="places",
        ours=PLACES,
        everything=places,
        folder="launchers.places",
        outsider="from launchers.places.local import Local\nclass Entry(Local): ...\n",
    ),
    Shelf(
        name="dialects",
        ours=DIALECTS,
        everything=lambda: shelve(DIALECTS, "tailgate.dialects"),
        folder="loadgen.dialects",
        outsider="from loadgen.dialects.chat import Chat\nEntry = Chat()\n",
    ),
)
by_name = pytest.mark.parametrize("shelf", SHELVES, ids=lambda shelf: shelf.name)
ENTRIES = [
    pytest.param(shelf, name, entry, id=f"{shelf.name}-{name}")
    for shelf in SHELVES
    for name, entry in shelf.ours.items()
]


def fresh(shelf: Shelf) -> Mapping[str, Any]:
    """Return everything on a shelf as a new process would find it."""
    getattr(shelf.everything, "cache_clear", lambda: None)()
    return shelf.everything()


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, line: str, code: str
) -> None:
    """Put a distribution with one module and one entry point on the path."""
    (folder / "planted_package.py").write_text(code)
    about = folder / "planted-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[tailgate.{group}]\n{line}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "planted_package", raising=False)


@pytest.mark.parametrize(("shelf", "name", "entry"), ENTRIES)
def test_an_entry_has_a_plain_name_and_says_what_it_is(shelf: Shelf, name: str, entry: Any) -> None:
    dots = r"(\.[a-z0-9_-]+)*" if shelf.name == "metrics" else ""
    assert re.fullmatch(rf"[a-z0-9_-]+{dots}", name)
    said = getattr(entry, "meaning", None) or inspect.getdoc(getattr(entry, "render", entry))
    assert said, f"{name} says nothing about itself"
    assert said[0].isupper() or shelf.name == "metrics"


@pytest.mark.parametrize(("shelf", "name", "entry"), ENTRIES)
def test_an_entry_lives_in_a_file_of_its_shelf(shelf: Shelf, name: str, entry: Any) -> None:
    functions = (
        getattr(entry, field, None) for field in ("render", "samples", "counted", "amounts", "read")
    )
    code = next(
        (f for f in functions if f is not None and shelf.name in {"writers", "metrics"}), entry
    )
    code = getattr(code, "func", code)  # a function with some of its arguments given
    module = getattr(code, "__module__", None) or type(code).__module__
    assert module.startswith(f"{shelf.folder}."), f"{name} is written in {module}"


@by_name
def test_what_another_package_brings_is_found(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, shelf.name, "planted = planted_package:Entry", shelf.outsider)
    found = fresh(shelf)
    monkeypatch.undo()
    assert set(found) == {*shelf.ours, "planted"}
    assert set(fresh(shelf)) == set(shelf.ours)


@by_name
@pytest.mark.parametrize("fault", ["a name that is taken", "a module that is not there"])
def test_a_broken_installation_is_refused(
    shelf: Shelf, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = next(iter(shelf.ours))
    line = (
        f"{taken} = planted_package:Entry"
        if fault == "a name that is taken"
        else "planted = planted_package:Nothing"
    )
    install(tmp_path, monkeypatch, shelf.name, line, shelf.outsider)
    with pytest.raises(ShelfError, match="planted_package"):
        fresh(shelf)
    monkeypatch.undo()
    fresh(shelf)


# --- each kind's own contract ----------------------------------------------------------------------------------


def sample(model: type[Arrival]) -> Arrival:
    """Return a model with its required fields set from what their schema offers."""
    schema = model.model_json_schema()
    fields: dict[str, Any] = {}
    for name in schema.get("required", ()):
        field = schema["properties"][name]
        if "examples" in field:
            fields[name] = field["examples"][0]
        elif field.get("type") in {"number", "integer"}:
            fields[name] = min(max(2, field.get("minimum", 2)), field.get("maximum", 2))
        else:
            raise AssertionError(f"{model.__name__}.{name} gives no example in its schema")
    return model.model_validate(fields)


def times(stretches: list[Stretch], until_s: float) -> list[float]:
    return [t for stretch in stretches for t in stretch.times_s.tolist() if t < until_s]


@pytest.mark.parametrize("name", ARRIVALS)
def test_an_arrival_model_is_stationary_ordered_and_a_prefix_of_itself(name: str) -> None:
    model = sample(ARRIVALS[name])
    assert model.model == name
    rate_hz, long_s, short_s = 5.0, 4_000.0, 300.0

    long = times(list(model.stretches(np.random.default_rng(1), rate_hz, long_s)), long_s)
    short = times(list(model.stretches(np.random.default_rng(1), rate_hz, short_s)), short_s)

    assert long == sorted(long)
    assert long[0] >= 0
    assert short == [t for t in long if t < short_s]
    assert len(long) == pytest.approx(rate_hz * long_s, rel=0.35)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_bears_its_own_name(name: str) -> None:
    assert METRICS[name].name == name


def test_no_two_reports_write_one_file() -> None:
    files = [writer.file for writer in WRITERS.values()]
    assert len(set(files)) == len(files)
    assert all(re.fullmatch(r"[a-z0-9_.-]+", file) for file in files)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_asks_for_a_stream_of_exactly_so_many_tokens(name: str) -> None:
    dialect = DIALECTS[name]
    body = json.loads(dialect.body(model="m", prompt="some words", output_tokens=7))
    assert body["stream"] is True
    assert 7 in body.values()
    assert dialect.path.startswith("/")


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"<html>"])
def test_a_dialect_refuses_what_is_not_its_own(name: str, data: bytes) -> None:
    dialect = DIALECTS[name]
    with pytest.raises(ValueError):
        dialect.read(data)
    with pytest.raises(ValueError):
        dialect.read_whole(data)
    assert isinstance(dialect.refusal(data), str)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_declares_what_the_launcher_asks_of_it(name: str) -> None:
    engine = ENGINES[name]
    assert isinstance(engine.keys, frozenset)
    assert all(isinstance(flag, bool) for flag in (engine.started, engine.simulated, engine.health))
