import math

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from slas.histogram import (
    BUCKETS,
    HIGHEST_US,
    Histogram,
    HistogramError,
    bucket_of_us,
    lower_us,
    rank_of,
    upper_us,
)

within = st.integers(min_value=0, max_value=HIGHEST_US)
anything = st.one_of(within, st.integers(-(10**6), -1), st.integers(HIGHEST_US + 1, 10**13))
fast = settings(max_examples=60, deadline=None)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.record_many_us(np.array(values, dtype=np.int64))
    return histogram


@fast
@given(within)
def test_a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value: int) -> None:
    index = int(bucket_of_us([value])[0])
    assert lower_us(index) <= value <= upper_us(index)
    assert upper_us(index) - lower_us(index) <= max(0, lower_us(index) // 1000)


@pytest.mark.parametrize(
    "value", [0, 1, 2047, 2048, 2049, 4095, 4096, 299_776, 300_031, HIGHEST_US]
)
def test_buckets_are_those_of_hdrhistogram(value: int) -> None:
    theirs = HdrHistogram(1, HIGHEST_US, 3)
    theirs.record_value(value)
    assert theirs.counts[int(bucket_of_us([value])[0])] == 1


def test_buckets_follow_one_another_without_a_hole() -> None:
    for index in (0, 1, 2046, 2047, 2048, 3071, 3072, 9999, BUCKETS - 2):
        assert lower_us(index + 1) == upper_us(index) + 1


@fast
@given(st.lists(anything, max_size=60))
def test_nothing_is_dropped_and_one_by_one_equals_all_at_once(values: list[int]) -> None:
    singly = Histogram()
    for value in values:
        singly.record_us(value)
    together = filled(values)
    assert singly == together
    assert together.total == len(values)
    assert together.over == sum(value > HIGHEST_US for value in values)
    assert together.under == sum(value < 0 for value in values)


@fast
@given(st.lists(within, min_size=1, max_size=60), st.floats(0.001, 1.0))
def test_percentile_is_the_upper_edge_at_rank_ceil_pn(values: list[int], share: float) -> None:
    exact = sorted(values)[rank_of(share, len(values)) - 1]
    assert filled(values).percentile_us(share) == upper_us(int(bucket_of_us([exact])[0]))


@pytest.mark.parametrize(("n", "rank"), [(60, 60), (100, 99), (101, 100), (199, 198), (200, 198)])
def test_rank_is_not_one_too_low_as_in_the_python_package(n: int, rank: int) -> None:
    histogram = filled(list(range(1, n + 1)))
    assert histogram.percentile_us(0.99) == rank


def test_rank_is_unharmed_by_binary_fractions() -> None:
    assert rank_of(0.07, 100) == 7
    assert rank_of(0.999, 1000) == 999
    assert rank_of(1e-12, 5) == 1


def test_failures_stand_above_every_value() -> None:
    histogram = filled([1, 2, 3])
    assert histogram.percentile_us(0.5, above=3) == 3
    assert histogram.percentile_us(0.51, above=3) is None
    assert Histogram().percentile_us(0.5) is None
    assert Histogram().percentile_us(0.5, above=2) is None


def test_a_value_over_the_range_has_no_percentile() -> None:
    histogram = filled([1, HIGHEST_US + 1])
    assert histogram.percentile_us(0.5) == 1
    assert histogram.percentile_us(1.0) is None


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan])
def test_shares_outside_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        filled([1]).percentile_us(share)


@fast
@given(st.lists(anything, max_size=60))
def test_encode_and_decode_keep_every_count(values: list[int]) -> None:
    before = filled(values)
    after = Histogram.decode(before.encode())
    assert after.over == before.over
    assert after.total == before.total
    assert after.encode() == before.encode()


@fast
@given(st.lists(within, max_size=60))
def test_their_texts_are_ours_and_ours_theirs(values: list[int]) -> None:
    theirs = HdrHistogram(1, HIGHEST_US, 3)
    for value in values:
        theirs.record_value(value)
    ours = filled(values)
    assert theirs.encode().decode() == ours.encode()
    back = HdrHistogram.decode(ours.encode().encode())
    assert back.get_total_count() == len(values)
    assert Histogram.decode(theirs.encode().decode()) == ours


@fast
@given(st.lists(anything, max_size=40), st.lists(anything, max_size=40))
def test_sum_is_as_if_recorded_together(left: list[int], right: list[int]) -> None:
    merged = filled(left)
    merged.add(filled(right))
    assert merged == filled(left + right)
    sparse = filled(left)
    sparse.add_sparse(filled(right).sparse())
    assert (sparse.total, sparse.over) == (merged.total, merged.over)


def test_other_settings_are_refused() -> None:
    theirs = HdrHistogram(1, 1000, 2)
    theirs.record_value(5)
    with pytest.raises(HistogramError, match="2 digits"):
        Histogram.decode(theirs.encode().decode())


@pytest.mark.parametrize("text", ["", "nonsense", "HISTFAAAA", "é", "AAAAAAAAAAAAAAAA"])
def test_damaged_texts_are_refused(text: str) -> None:
    with pytest.raises(HistogramError):
        Histogram.decode(text)


def test_a_torn_text_is_refused() -> None:
    text = filled(list(range(1000))).encode()
    with pytest.raises(HistogramError):
        Histogram.decode(text[:-9])


@pytest.mark.parametrize("pairs", [[(-1, 1)], [(BUCKETS, 1)], [(0, -1)]])
def test_impossible_pairs_are_refused(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="bucket count"):
        Histogram().add_sparse(pairs)


def test_floats_are_refused() -> None:
    with pytest.raises(ValueError, match="integer"):
        Histogram().record_many_us([1.5])
    with pytest.raises(ValueError, match="record"):
        Histogram().record_us(1.5)  # type: ignore[arg-type]
