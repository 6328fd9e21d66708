"""The statistics of traffic-and-statistics B3, on fixed seeds: rate, law of gaps, order, dispersion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy import stats

from profiles.arrival import ARRIVALS
from profiles.arrivals.constant import Constant
from profiles.arrivals.gamma import Gamma
from profiles.arrivals.on_off import OnOff
from profiles.arrivals.poisson import Poisson
from profiles.process import Arrival, Seconds
from profiles.summary import dispersion

ON_OFF = OnOff.model_validate({"busy": "30%", "dwell": "2s"})
MODELS: dict[str, Arrival] = {
    "constant": Constant(),
    "poisson": Poisson(),
    "gamma": Gamma(cv=4),
    "gamma_smooth": Gamma(cv=0.5),
    "on_off": ON_OFF,
}
RATE_HZ = 10.0


def times(model: Arrival, rate_hz: float, until_s: float, seed: int = 11) -> Seconds:
    rng = np.random.default_rng(seed)
    stretches = model.stretches(rng, rate_hz, until_s)
    joined = np.concatenate([np.empty(0), *(stretch.times_s for stretch in stretches)])
    return joined[joined < until_s]


def test_every_model_is_tested_here() -> None:
    assert {model.model for model in MODELS.values()} == set(ARRIVALS)


def on_off_figures(
    rate_hz: float, busy: float, on_s: float
) -> tuple[float, Callable[[float], float]]:
    """Return CV and index of dispersion by bin of an interrupted Poisson process, by formula."""
    on_rate, r1, r2 = rate_hz / busy, 1 / on_s, 1 / (on_s * (1 - busy) / busy)
    s = r1 + r2
    excess = 2 * on_rate * r1 / s**2
    return math.sqrt(1 + excess), lambda b: 1 + excess * (1 - (1 - math.exp(-s * b)) / (s * b))


@pytest.mark.parametrize(
    ("name", "limit_of_dispersion"),
    [
        ("constant", 0.0),
        ("poisson", 1.0),
        ("gamma", 16.0),
        ("gamma_smooth", 0.25),
        ("on_off", on_off_figures(RATE_HZ, 0.3, 2)[1](1e9)),
    ],
)
@pytest.mark.parametrize("rate_hz", [RATE_HZ, 250.0])
def test_the_mean_rate_is_the_rate_asked_for(
    name: str, limit_of_dispersion: float, rate_hz: float
) -> None:
    if name == "on_off":
        limit_of_dispersion = on_off_figures(rate_hz, 0.3, 2)[1](1e9)
    until_s = 20_000 * RATE_HZ / rate_hz
    count = len(times(MODELS[name], rate_hz, until_s))
    expected = rate_hz * until_s
    assert abs(count / expected - 1) <= 4 * math.sqrt(limit_of_dispersion / expected) + 1 / expected


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_window_from_the_very_start_is_not_fuller_than_others(name: str) -> None:
    # an ordinary renewal start would put (CV^2 - 1) / 2 = 7.5 too many of gamma's requests into it
    counts = [len(times(MODELS[name], RATE_HZ, 5, seed)) for seed in range(1500)]
    spread = np.std(counts, ddof=1) / math.sqrt(len(counts))
    assert abs(np.mean(counts) - 50) <= 4 * spread + 1e-9


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("poisson", stats.expon(scale=1 / RATE_HZ)),
        ("gamma", stats.gamma(1 / 16, scale=16 / RATE_HZ)),
        ("gamma_smooth", stats.gamma(4, scale=1 / (4 * RATE_HZ))),
    ],
)
def test_gaps_follow_their_law_and_do_not_depend_on_the_one_before(name: str, law: Any) -> None:
    gaps_s = np.diff(times(MODELS[name], RATE_HZ, 1_300))[:10_000]
    assert len(gaps_s) == 10_000
    # an instant a thousand seconds in is known to 1e-13 s, and a seventh of gamma's gaps are shorter than that
    least_s = 1e-6
    long_s, below = gaps_s[gaps_s > least_s], law.cdf(least_s)
    assert stats.binomtest(len(long_s), len(gaps_s), 1 - below).pvalue > 1e-3
    assert stats.kstest(long_s, lambda gap_s: (law.cdf(gap_s) - below) / (1 - below)).pvalue > 1e-3
    for lag in range(1, 6):
        assert abs(np.corrcoef(gaps_s[:-lag], gaps_s[lag:])[0, 1]) < 4 / math.sqrt(len(gaps_s))


def test_constant_gaps_are_equal_and_their_phase_is_not_zero() -> None:
    drawn = times(Constant(), RATE_HZ, 1_000)
    assert np.allclose(np.diff(drawn), 0.1)
    phases = [times(Constant(), RATE_HZ, 1, seed)[0] for seed in range(500)]
    assert stats.kstest(phases, stats.uniform(0, 0.1).cdf).pvalue > 1e-3


def test_poisson_arrivals_of_a_window_are_uniform_in_it() -> None:
    assert stats.kstest(times(Poisson(), RATE_HZ, 1_000) / 1_000, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "cv"),
    [
        ("poisson", 1.0),
        ("gamma", 4.0),
        ("gamma_smooth", 0.5),
        ("on_off", on_off_figures(RATE_HZ, 0.3, 2)[0]),
    ],
)
def test_the_coefficient_of_variation_of_many_gaps(name: str, cv: float) -> None:
    gaps_s = np.diff(times(MODELS[name], RATE_HZ, 25_000))
    assert len(gaps_s) > 200_000
    assert gaps_s.std(ddof=1) / gaps_s.mean() == pytest.approx(cv, rel=0.05)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("poisson", lambda b: 1.0),
        ("gamma", {1: 13.0, 10: 15.3, 60: 15.4}.__getitem__),
        ("on_off", on_off_figures(RATE_HZ, 0.3, 2)[1]),
    ],
)
@pytest.mark.parametrize("bin_s", [1, 10, 60])
def test_the_index_of_dispersion_at_three_scales(
    name: str, expected: Callable[[int], float], bin_s: int
) -> None:
    # CV alone does not tell on-off from gamma, nor a schedule that was rescaled to its count
    bins = 2_500
    due_ns: NDArray[np.int64] = np.floor(times(MODELS[name], RATE_HZ, bins * bin_s) * 1e9).astype(
        np.int64
    )
    found = dispersion(due_ns, bins * bin_s * 10**9, bin_s * 10**9)
    assert found == pytest.approx(expected(bin_s), rel=0.15)


def test_on_off_spells_and_silences_are_exponential_and_busy_as_asked() -> None:
    rng = np.random.default_rng(5)
    spells = [s for stretch in ON_OFF.stretches(rng, RATE_HZ, 60_000) for s in stretch.bursts_s]
    starts_s, ends_s = np.array(spells).T
    assert (starts_s[1:] >= ends_s[:-1]).all()
    # the first and the last are cut by the window's edges
    assert stats.kstest((ends_s - starts_s)[1:-1], stats.expon(scale=2).cdf).pvalue > 1e-3
    silent_s = (starts_s[1:] - ends_s[:-1])[1:]
    assert stats.kstest(silent_s, stats.expon(scale=2 * 0.7 / 0.3).cdf).pvalue > 1e-3
    assert (ends_s - starts_s).sum() / ends_s[-1] == pytest.approx(0.3, rel=0.05)
    started_on = [
        next(iter(ON_OFF.stretches(np.random.default_rng(seed), RATE_HZ, 10))).bursts_s[0][0] == 0
        for seed in range(2_000)
    ]
    assert np.mean(started_on) == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 2_000))


def test_on_off_arrivals_are_poisson_within_spells_and_never_outside() -> None:
    # time rescaling: along the true rate path the gaps are exponential with mean 1
    rng = np.random.default_rng(5)
    stretches = list(ON_OFF.stretches(rng, RATE_HZ, 2_000))
    spells = np.array([spell for stretch in stretches for spell in stretch.bursts_s])
    drawn = np.concatenate([stretch.times_s for stretch in stretches])
    at = np.searchsorted(spells[:, 0], drawn, side="right") - 1
    assert (at >= 0).all()
    assert (drawn < spells[at, 1] + 1e-9).all()
    busy_before_s = np.concatenate(([0.0], np.cumsum(spells[:, 1] - spells[:, 0])))
    own = (busy_before_s[at] + drawn - spells[at, 0]) * RATE_HZ / 0.3
    assert stats.kstest(np.diff(own)[:10_000], "expon").pvalue > 1e-3


def test_another_rate_leaves_the_spells_where_they_are() -> None:
    def first_spell(rate_hz: float) -> tuple[float, float]:
        return next(iter(ON_OFF.stretches(np.random.default_rng(9), rate_hz, 10))).bursts_s[0]

    assert first_spell(2) == first_spell(200)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)),
    rate_hz=st.floats(0.01, 2_000),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_a_shorter_time_gives_a_prefix_in_ascending_order(
    name: str, rate_hz: float, share: float, seed: int
) -> None:
    whole = times(MODELS[name], rate_hz, 20, seed)
    part = times(MODELS[name], rate_hz, 20 * share, seed)
    assert (np.diff(whole) >= 0).all()
    assert np.array_equal(whole[whole < 20 * share], part)


@pytest.mark.parametrize(
    ("model", "fields"),
    [(Gamma, {"cv": 0}), (Gamma, {"cv": 21}), (OnOff, {"busy": "100%", "dwell": "1s"})],
)
def test_what_is_no_process_is_refused(model: type[Arrival], fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(fields)
