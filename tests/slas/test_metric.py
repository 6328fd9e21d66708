from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import profiles.shelf
from profiles.shelf import ShelfError
from slas.check import rule
from slas.columns import Bools, Columns
from slas.expression import parse
from slas.measurement import measure
from slas.metric import GROUP, METRICS, metrics
from slas.quantity import Bound, Ratio
from slas.ruling import Ruling
from tests.slas.runs import MS, evidence, rows, sla


def _long(columns: Columns, _: tuple[Bound, ...]) -> Bools:
    return columns.output_tokens > 4


LONG_ANSWERS = Ratio(name="long_answers", meaning="answers of more than 4 tokens", counted=_long)
MISNAMED = replace(LONG_ANSWERS, name="other")
NO_METRIC = np.pi


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    name, value = request.param
    point = EntryPoint(name=name, value=f"{__name__}:{value}", group=GROUP)
    monkeypatch.setattr(profiles.shelf, "entry_points", lambda group: [point] * (group == GROUP))
    metrics.cache_clear()
    yield
    metrics.cache_clear()


@pytest.mark.parametrize("installed", [("long_answers", "LONG_ANSWERS")], indirect=True)
@pytest.mark.usefixtures("installed")
def test_a_metric_from_outside_is_read_measured_and_ruled() -> None:
    run = evidence(rows([100 * MS] * 10))
    assert parse("long_answers <= 50%").metric is LONG_ANSWERS
    assert any(m.metric == "long_answers" and m.mean == 1.0 for m in measure(run))
    assert rule(sla("long_answers <= 50%"), run, None).ruling is Ruling.FAIL
    assert rule(sla("long_answers >= 100%"), run, None).ruling is Ruling.PASS


@pytest.mark.parametrize(
    "installed",
    [
        ("ttft", "LONG_ANSWERS"),
        ("long_answers", "MISNAMED"),
        ("long_answers", "NO_METRIC"),
        ("long_answers", "MISSING"),
    ],
    indirect=True,
)
@pytest.mark.usefixtures("installed")
def test_what_is_no_metric_or_takes_a_name_is_refused() -> None:
    with pytest.raises(ShelfError):
        metrics()


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_is_measured_or_needs_the_slas_bounds(name: str) -> None:
    measured = {m.metric for m in measure(evidence(rows([100 * MS])))}
    gauge_without_gpu = name.startswith("vram.")
    assert (name in measured) is not (name == "goodput" or gauge_without_gpu)
