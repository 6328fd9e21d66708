from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.sim.fault import NONE, Faults, hit


@given(st.integers(0, 1000), st.integers(1, 2000))
def test_a_share_is_kept_exactly_and_spread_evenly(thousandths: int, requests: int) -> None:
    share = thousandths / 1000
    hits = [hit(share, number) for number in range(requests)]
    assert sum(hits) == requests * thousandths // 1000
    assert all(hits) or share < 1
    assert not any(hits) or share > 0


def test_a_plain_stream_is_bent_by_nothing() -> None:
    assert not NONE.bends(0)
    assert not Faults(refuse=1.0, ping_every_ns=5).bends(0)


@pytest.mark.parametrize(
    "change",
    [
        {"error": 1.0},
        {"cut": 1.0},
        {"stall": 1.0},
        {"empty": 1.0},
        {"coalesce": 2},
        {"split": True},
        {"crlf": True},
        {"no_space": True},
        {"no_usage": True},
        {"no_done": True},
        {"no_finish": True},
        {"tokens_per_chunk": 2},
        {"reasoning": 1},
    ],
)
def test_every_fault_of_a_stream_bends_it(change: dict[str, object]) -> None:
    assert NONE.changed(change).bends(0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"refuse": 1.5}, "a share of the requests"),
        ({"coalesce": 0}, "1 or more"),
        ({"cut_after": -1}, "cannot be negative"),
        ({"refuse_status": 418}, "429, 500 or 503"),
        ({"explode": 1}, "unknown fault 'explode'; known are coalesce"),
        ({"split": 1}, "split must be of type bool"),
        ({"cut": True}, "cut must be of type float"),
        ({"cut_after": 1.5}, "cut_after must be of type int"),
    ],
)
def test_nonsense_is_refused_by_name(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        NONE.changed(change)


def test_the_first_requests_can_be_spared() -> None:
    faults = Faults(spare=2, cut=1.0, split=True)
    assert [faults.bends(number) for number in range(4)] == [False, False, True, True]
    assert [Faults(spare=3).hit(0.5, number) for number in range(8)] == [False] * 4 + [
        True,
        False,
        True,
        False,
    ]
