from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slas.columns import columns_of
from slas.pause import longest, pause_text, pauses_of, reach_ns
from tests.slas.runs import MS, WARMUP_NS, S, evidence, healthy, row

SECONDS = st.integers(0, 40)


@given(
    st.lists(st.tuples(SECONDS, st.integers(1, 2_000)), min_size=1, max_size=8),
    st.lists(st.tuples(SECONDS, st.integers(0, 30)), min_size=1, max_size=8),
)
def test_a_request_is_reached_by_the_longest_pause_that_it_may_have_met(
    stands: list[tuple[int, int]], requests: list[tuple[int, int]]
) -> None:
    samples = [replace(healthy()[0], at_ns=at * S, loop_lag_ns=(ms * MS, 1)) for at, ms in stands]
    rows = [
        replace(row(ordinal=i, due_ns=due * S), done_ns=(due + length) * S)
        for i, (due, length) in enumerate(requests)
    ]
    run = replace(evidence(rows), health=tuple(samples))
    pauses = pauses_of(run, WARMUP_NS)
    found = reach_ns(columns_of(run), pauses)
    for one, reach in zip(rows, found, strict=True):
        met = [p.lag_ns for p in pauses if p.first_ns <= one.done_ns and one.due_ns <= p.last_ns]
        # whole seconds: never less than what it met, nor more than what came within a second of it
        near = [
            p.lag_ns for p in pauses if p.first_ns - S < one.done_ns and one.due_ns < p.last_ns + S
        ]
        assert max(met, default=0) <= reach <= max(near, default=0)


def test_what_a_loop_takes_in_passing_is_no_pause() -> None:
    run = replace(evidence([row()]), health=tuple(healthy(lag_ns=MS - 1)))
    assert pauses_of(run, WARMUP_NS) == ()
    assert longest(()) is None
    assert not np.any(reach_ns(columns_of(run), ()))


def test_pauses_of_the_warm_up_count_as_far_as_they_reach_the_window() -> None:
    def at(second: int) -> int:
        sample = replace(healthy()[0], at_ns=second * S, loop_lag_ns=(300 * MS,))
        return len(pauses_of(replace(evidence([row()]), health=(sample,)), WARMUP_NS))

    assert (at(1), at(2), at(3), at(30)) == (0, 0, 1, 1)


def test_a_pause_says_lane_and_second() -> None:
    early, late = (
        replace(healthy()[0], at_ns=WARMUP_NS + second * S, loop_lag_ns=(lag * MS,))
        for second, lag in ((-1, 800), (7, 600))
    )
    run = replace(evidence([row()]), health=(late, early))
    found = longest(pauses_of(run, WARMUP_NS))
    assert found is not None
    assert pause_text(found, run) == (
        "a pause of 800 ms of generator local-0 1 s before the measured window"
    )
    two = replace(run, health=(replace(late, run=2),), runs=evidence([], runs=2).runs)
    found = longest(pauses_of(two, WARMUP_NS))
    assert found is not None
    assert pause_text(found, two) == (
        "a pause of 600 ms of generator local-0 at second 7 of the measured window of run 2"
    )
