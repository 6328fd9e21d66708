from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from profiles.lengths import (
    MOST_TOKENS,
    Empirical,
    Fixed,
    Lengths,
    LengthsSheet,
    Lognormal,
    Quantiles,
    Uniform,
)


def draw(lengths: Lengths, n: int = 20_000) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return lengths.draw(np.random.default_rng(3), n)


def test_lognormal_has_the_median_and_p95_asked_for() -> None:
    drawn = draw(Lognormal(median=512, p95=2000, most=MOST_TOKENS))
    assert drawn.dtype == np.int64
    assert np.median(drawn) == pytest.approx(512, rel=0.03)
    assert np.percentile(drawn, 95) == pytest.approx(2000, rel=0.05)
    standard = (np.log(drawn) - np.log(512)) / (np.log(2000 / 512) / stats.norm.ppf(0.95))
    assert stats.kstest(standard, "norm").pvalue > 1e-3


def test_lognormal_is_held_between_one_and_the_most() -> None:
    drawn = draw(Lognormal(median=2, p95=4000, most=3000))
    assert (drawn.min(), drawn.max()) == (1, 3000)
    assert set(draw(Lognormal(median=7, p95=7, most=99))) == {7}


def test_the_other_ways_to_draw() -> None:
    assert set(draw(Fixed(tokens=9), 5)) == {9}
    drawn = draw(Uniform(least=3, most=6))
    assert stats.chisquare(np.bincount(drawn)[3:]).pvalue > 1e-3
    assert set(draw(Uniform(least=3, most=6))) == {3, 4, 5, 6}
    assert set(draw(Empirical(seen=(5, 5, 8)), 500)) == {5, 8}
    assert np.mean(draw(Empirical(seen=(5, 5, 8))) == 5) == pytest.approx(2 / 3, abs=0.02)


@given(
    lengths=st.sampled_from(
        [
            Fixed(tokens=3),
            Lognormal(median=100, p95=1e6, most=MOST_TOKENS),
            Uniform(least=1, most=10**6),
            Quantiles(shares=(0.0, 0.5, 1.0), tokens=(1, 40, 10**6)),
            Empirical(seen=tuple(range(1, 60))),
        ]
    ),
    parts=st.lists(st.integers(0, 300), max_size=6),
)
def test_drawing_in_parts_is_drawing_at_once(lengths: Lengths, parts: list[int]) -> None:
    # the schedule cuts its batches where seconds end, and the cuts must not show
    rng = np.random.default_rng(1)
    pieces = [piece for n in parts for piece in lengths.draw(rng, n).tolist()]
    assert pieces == lengths.draw(np.random.default_rng(1), sum(parts)).tolist()


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"fixed": 5}, Fixed(tokens=5)),
        ({"median": 5, "p95": 9}, Lognormal(median=5, p95=9, most=MOST_TOKENS)),
        ({"median": 5, "p95": 9, "max": 7}, Lognormal(median=5, p95=9, most=7)),
        ({"min": 5, "max": 9}, Uniform(least=5, most=9)),
        (
            {"max": 9, "min": 5, "p90": 8, "p25": 6},
            Quantiles(shares=(0.0, 0.25, 0.9, 1.0), tokens=(5, 6, 8, 9)),
        ),
        ({"min": 5, "p95": 5, "max": 9}, Quantiles(shares=(0.0, 0.95, 1.0), tokens=(5, 5, 9))),
    ],
)
def test_sheets_become_lengths(fields: dict[str, int], value: Lengths) -> None:
    assert LengthsSheet.model_validate(fields).value() == value


def test_quantiles_are_met_and_between_them_the_logarithm_is_uniform() -> None:
    shares, tokens = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0), (20, 207, 1020, 2735, 4142, 14050)
    drawn = draw(Quantiles(shares=shares, tokens=tokens), 100_000)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 20
    assert drawn.max() <= 14050
    for share, token in zip(shares[1:-1], tokens[1:-1], strict=True):
        assert np.mean(drawn <= token) == pytest.approx(share, abs=0.005)
    inner = drawn[(drawn > 1020) & (drawn < 2735)]
    position = np.log(inner / 1020) / np.log(2735 / 1020)
    assert stats.kstest(position[:5000], "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("fields", "fault", "mend"),
    [
        ({"min": 9, "max": 5}, "max 5 is below min 9", "write the larger number as max"),
        (
            {"min": 1, "p50": 30, "p90": 20, "max": 99},
            "p90 20 is below p50 30",
            "write the larger number as p90",
        ),
        ({"p50": 3, "p90": 5}, "p50, p90 does not describe lengths", "add max and min"),
        ({"min": 3, "p90": 5}, "min, p90 does not describe lengths", "add max"),
        ({"min": 1, "median": 3, "max": 5}, "max, median, min does not", "{median: 512"),
        ({"p99": 5}, "p99 does not describe lengths", "{median: 512"),
    ],
)
def test_what_does_not_describe_lengths(fields: dict[str, int], fault: str, mend: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)) as refused:
        LengthsSheet.model_validate(fields)
    assert mend in str(refused.value)
