import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from slas.columns import UNBOUNDED
from slas.confidence import (
    fewest_requests,
    mean_interval,
    more_requests,
    percentile_interval,
    share_interval,
)


def recommended(k: NDArray[np.int64], n: int, alpha: float) -> tuple[float, float]:
    """The design's formula written out with scipy's distributions: an independent check."""
    runs = len(k)
    total, hits = runs * n, k.sum()
    phat = max(hits, 1) / total
    deff = max(1.0, (k / n).var(ddof=1) / (phat * (1 - phat) / n))
    adj = (stats.norm.ppf(1 - alpha) / stats.t.ppf(1 - alpha, runs - 1)) ** 2 if deff > 1 else 1
    ne, ke = total / deff * adj, hits / deff * adj
    high = stats.beta.ppf(1 - alpha, ke + 1, ne - ke)
    low = stats.beta.ppf(alpha, ke, ne - ke + 1) if ke > 0 else 0.0
    return float(low), float(high)


@pytest.mark.parametrize(
    "hits", [[0, 0, 0], [1, 0, 2], [10, 10, 10], [0, 0, 40, 0, 0], [3, 5, 2, 8, 4], [500, 499, 498]]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_bounds_are_the_designs_formula(hits: list[int], confidence: float) -> None:
    found = share_interval(hits, [1000] * len(hits), confidence)
    low, high = recommended(np.array(hits), 1000, 1 - confidence)
    assert found.low == pytest.approx(low, abs=1e-12)
    assert found.high == pytest.approx(high, abs=1e-12)


def test_equal_runs_are_the_plain_binomial() -> None:
    found = share_interval([4, 4, 4], [500, 500, 500], 0.95)
    exact = stats.binomtest(12, 1500, alternative="two-sided").proportion_ci(0.90, method="exact")
    assert found.low == pytest.approx(exact.low)
    assert found.high == pytest.approx(exact.high)
    assert found.effective == 1500


def test_runs_that_differ_widen_the_bounds() -> None:
    same = share_interval([4, 4, 4], [500] * 3, 0.95)
    apart = share_interval([0, 0, 12], [500] * 3, 0.95)
    assert apart.high > same.high
    assert apart.low < same.low
    assert apart.effective < same.effective / 3


@pytest.mark.parametrize("hits", [[100, 100, 100], [0, 0, 0]])
def test_all_or_none_is_no_division_by_zero(hits: list[int]) -> None:
    found = share_interval(hits, [100] * 3, 0.95)
    assert 0 <= found.low <= found.high <= 1


def test_runs_without_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="sample"):
        share_interval([0, 0], [10, 0], 0.95)
    with pytest.raises(ValueError, match="sample"):
        share_interval([], [], 0.95)


@pytest.mark.parametrize(
    ("share", "confidence", "fewest"),
    [
        (0.5, 0.95, 5),
        (0.9, 0.95, 29),
        (0.95, 0.95, 59),
        (0.99, 0.95, 299),
        (0.995, 0.95, 598),
        (0.999, 0.95, 2995),
        (0.99, 0.99, 459),
        (0.999, 0.99, 4603),
    ],
)
def test_fewest_requests_is_the_known_table(share: float, confidence: float, fewest: int) -> None:
    assert fewest_requests(share, confidence) == fewest
    runs = 3 if fewest % 3 == 0 else 1
    enough = share_interval([0] * runs, [fewest // runs] * runs, confidence)
    short = share_interval([0], [fewest - 1], confidence)
    assert enough.high <= 1 - share + 1e-12
    assert short.high > 1 - share


def test_mean_bounds_are_students() -> None:
    values = [10.0, 12.0, 11.0, 9.0]
    found = mean_interval(values, 0.95)
    reach = stats.t.ppf(0.95, 3) * np.std(values, ddof=1) / 2
    assert found.low == pytest.approx(10.5 - reach)
    assert found.high == pytest.approx(10.5 + reach)
    flat = mean_interval([5.0, 5.0, 5.0], 0.95)
    assert (flat.low, flat.high) == (5.0, 5.0)
    with pytest.raises(ValueError, match="two runs"):
        mean_interval([1.0], 0.95)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(200, 3000), st.sampled_from([0.9, 0.99]))
def test_more_requests_is_where_it_settles(hits: int, size: int, share: float) -> None:
    found = share_interval([hits], [size], 0.95)
    more = more_requests(hits, size, found.effective, 1 - share, 0.95)
    if more is None:
        return

    def settled(n: int) -> bool:
        scaled = hits * n / size
        low = stats.beta.ppf(0.05, scaled, n - scaled + 1) if scaled else 0.0
        return bool(low > 1 - share or stats.beta.ppf(0.95, scaled + 1, n - scaled) <= 1 - share)

    assert settled(size + more)
    assert more == 0 or not settled(size + more - 1)


def test_percentile_bounds_agree_with_the_ruling() -> None:
    generator = np.random.default_rng(3)
    runs = [np.sort(generator.lognormal(18, 0.4, 800).astype(np.int64)) for _ in range(5)]
    low, high = percentile_interval(runs, [800] * 5, 0.99, 0.95, unbounded=UNBOUNDED)
    assert low is not None
    assert high is not None

    def interval(limit: int) -> tuple[float, float]:
        found = share_interval([int((r > limit).sum()) for r in runs], [800] * 5, 0.95)
        return found.low, found.high

    assert interval(high)[1] <= 0.01 < interval(high - 1)[1]
    assert interval(low)[0] <= 0.01 < interval(low - 1)[0]


def test_percentile_bounds_are_open_where_failures_are_too_many() -> None:
    runs = [np.array([100] * 95 + [UNBOUNDED] * 5, dtype=np.int64)] * 3
    low, high = percentile_interval(runs, [100] * 3, 0.99, 0.95, unbounded=UNBOUNDED)
    assert (low, high) == (None, None)


def queue_ns(arrivals: NDArray[np.float64], service: NDArray[np.float64]) -> NDArray[np.float64]:
    """Waits in a first-come queue of eight servers: a stand-in for an engine, whose requests share luck."""
    free = [0.0] * 8
    waits = np.empty(len(arrivals))
    for index, (at, busy) in enumerate(zip(arrivals, service, strict=True)):
        ready = heapq.heappop(free)
        start = max(at, ready)
        waits[index] = start - at
        heapq.heappush(free, start + busy)
    return waits


@pytest.mark.parametrize(("rho", "cv", "noise"), [(0.5, 1.0, 0.03), (0.7, 2.0, 0.03)])
def test_a_system_at_its_limit_rarely_passes(rho: float, cv: float, noise: float) -> None:
    """The acceptance figure: at the limit exactly, at most 12 in 100 verdicts are a false PASS.

    Averaged over workloads, as measured before the design: .05 and .10. A plain binomial passes .17 and .34.
    """
    generator = np.random.default_rng(21)
    n, passes, naive, failures, trials = 1000, 0, 0, 0, 0
    for _ in range(6):
        shape = 1 / cv**2
        arrivals = np.cumsum(generator.gamma(shape, 1 / (shape * rho * 8), n))
        service = generator.lognormal(-0.35, math.sqrt(math.log(2)), n)
        runs = []
        for _ in range(60):
            pace = math.exp(generator.normal(0, noise))
            jitter = generator.lognormal(0, 0.1, n)
            runs.append(
                queue_ns(arrivals, service * jitter * pace)
                + 0.1 * pace * (1 + 0.3 * generator.random(n))
            )
        latencies = np.array(runs)
        limit = np.quantile(latencies, 0.99)
        beyond = (latencies > limit).sum(axis=1)
        for _ in range(200):
            hits = generator.choice(beyond, 5).tolist()
            found = share_interval(hits, [n] * 5, 0.95)
            plain = float(stats.beta.ppf(0.95, sum(hits) + 1, 5 * n - sum(hits)))
            trials += 1
            passes += found.high <= 0.01
            failures += found.low > 0.01
            naive += plain <= 0.01
    assert passes / trials <= 0.12
    assert failures / trials <= 0.06
    # the simulation can tell: without clustering the same evidence passes far more often
    assert naive / trials > 1.5 * passes / trials
