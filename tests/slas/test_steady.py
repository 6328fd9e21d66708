from dataclasses import replace

import numpy as np
import pytest

from slas.columns import columns_of
from slas.steady import truncation, unsettled_runs
from tests.slas.runs import MS, WINDOW, S, evidence, row


def test_a_flat_series_is_cut_nowhere() -> None:
    generator = np.random.default_rng(1)
    cut = truncation(np.exp(0.1 * generator.normal(size=200)))
    assert cut is not None
    assert cut <= 15


@pytest.mark.parametrize("step", [20, 50, 90])
def test_a_step_is_cut_where_it_ends(step: int) -> None:
    generator = np.random.default_rng(2)
    series = np.exp(0.05 * generator.normal(size=200)) * np.where(np.arange(200) < step, 4, 1)
    cut = truncation(series)
    assert cut is not None
    assert step <= cut <= step + 10


def test_a_drift_to_the_end_never_settles() -> None:
    assert truncation(np.linspace(1, 10, 200)) is None


@pytest.mark.parametrize(("slow_s", "unsettled"), [(0, False), (4, False), (20, True)])
def test_what_settles_within_the_warm_up_is_settled(slow_s: int, unsettled: bool) -> None:
    requests = [
        row(ordinal=s, due_ns=s * S, ttft_ns=(900 if s < slow_s else 100 + s % 3) * MS)
        for s in range(65)
    ]
    run = replace(evidence(requests), window=replace(WINDOW, duration_ns=60 * S))
    found = unsettled_runs(columns_of(run), WINDOW.warmup_ns)
    assert (list(found) == [1]) is unsettled


def test_too_short_a_run_says_nothing() -> None:
    requests = [row(ordinal=s, due_ns=s * S, ttft_ns=s * 100 * MS) for s in range(20)]
    assert unsettled_runs(columns_of(evidence(requests)), WINDOW.warmup_ns) == {}
