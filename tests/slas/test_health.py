from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from slas.check import rule
from slas.evidence import Evidence, HealthSample, Outcome, RequestRow
from slas.measurement import Summaries, histograms, measure
from slas.regression import Baseline
from slas.ruling import Health, Ruling, Verdict
from tests.slas.runs import (
    MS,
    WARMUP_NS,
    S,
    check,
    evidence,
    healthy,
    row,
    rows,
    sla,
)


def sitting(run: Evidence, *promises: str) -> Verdict:
    return rule(sla(*(promises or ("ttft.p99 <= 300ms",))), run, None)


def health(run: Evidence, *promises: str) -> Health:
    return sitting(run, *promises).health


def late(requests: Iterable[RequestRow], by_ns: int) -> list[RequestRow]:
    """The same requests sent later; their first token comes when it came before."""
    return [replace(one, sent_ns=one.due_ns + by_ns) for one in requests]


def test_a_calm_instrument_is_fit() -> None:
    found = health(evidence(late(rows([100 * MS] * 400), 2 * MS)))
    assert found.fit
    assert (found.reasons, found.causes, found.mend) == ((), (), None)
    assert found.lateness_p99_s == pytest.approx(0.002)
    assert found.lateness_max_s == pytest.approx(0.002)
    assert found.loop_lag_p99_s == pytest.approx(50e-6)
    assert found.unsent == 0


@pytest.mark.parametrize(
    ("late_ns", "promises", "fit"),
    [
        (30 * MS, ("ttft.p99 <= 300ms",), True),
        (31 * MS, ("ttft.p99 <= 300ms",), False),
        (31 * MS, ("ttft.p99 <= 310ms",), True),
        (31 * MS, ("e2e.mean <= 300ms",), False),
        (31 * MS, ("ttfo.max <= 300ms",), False),
        # the tightest counts, whichever comes first
        (31 * MS, ("ttft.p99 <= 2s", "e2e.p50 <= 300ms"), False),
        (31 * MS, ("goodput(ttft <= 300ms) >= 1%",), False),
        # none of these counts from due
        (31 * MS, ("itl.p99 <= 25ms", "tpot.mean <= 25ms", "error_rate <= 1%"), True),
        (31 * MS, ("service.ttft.p99 <= 100ms",), True),
    ],
)
def test_lateness_may_be_a_tenth_of_the_tightest_limit(
    late_ns: int, promises: tuple[str, ...], fit: bool
) -> None:
    verdict = sitting(evidence(late(rows([100 * MS] * 400), late_ns)), *promises)
    assert verdict.health.fit is fit
    assert (verdict.ruling is Ruling.INVALID) is not fit
    if not fit:
        assert "lateness p99 is 31.0 ms" in verdict.health.reasons[0]
        assert "300 ms" in verdict.health.reasons[0]
        assert verdict.health.mend is not None


def test_lateness_of_one_in_a_hundred_is_not_its_p99() -> None:
    requests = [*late(rows([100 * MS] * 99), 0), *late(rows([100 * MS], first_ordinal=99), 90 * MS)]
    assert health(evidence(requests)).fit
    twice = [
        *late(rows([100 * MS] * 98), 0),
        *late(rows([100 * MS] * 2, first_ordinal=98), 90 * MS),
    ]
    assert not health(evidence(twice)).fit


def test_lateness_in_the_warm_up_does_not_count() -> None:
    early = [
        row(ordinal=400 + i, due_ns=i * MS, late_ns=200 * MS, ttft_ns=300 * MS) for i in range(100)
    ]
    assert health(evidence([*rows([100 * MS] * 400), *early])).fit


def test_a_wait_of_seconds_for_a_core_is_said_in_seconds() -> None:
    samples = healthy()
    samples[16] = replace(samples[16], run_queue_ns=2_430 * MS)
    (cause,) = health(replace(evidence(rows([100 * MS] * 400)), health=tuple(samples))).causes
    assert "waited 2.43 s for a core" in cause
    assert "second 12 of the measured window" in cause


def test_the_wait_for_a_connection_is_the_engines() -> None:
    slow = [replace(one, connect_ns=200 * MS) for one in late(rows([400 * MS] * 400), 200 * MS)]
    verdict = sitting(evidence(slow))
    assert verdict.health.fit
    assert verdict.ruling is Ruling.FAIL


def test_rulings_that_differ_from_due_and_from_sent_are_ours() -> None:
    # 2 % of the requests are sent 250 ms late: p99 breaks from due, and holds from sent
    requests = rows([100 * MS] * 980)
    slow = [
        row(
            ordinal=980 + i,
            due_ns=WARMUP_NS + i * MS,
            late_ns=20 * MS,
            ttft_ns=310 * MS,
        )
        for i in range(20)
    ]
    verdict = sitting(evidence([*requests, *slow]))
    assert verdict.checks[0].ruling is Ruling.FAIL
    assert verdict.ruling is Ruling.INVALID
    assert (
        "FAIL from when requests were due and PASS from when they were sent"
        in (verdict.health.reasons[0])
    )


def test_goodput_is_ruled_from_sent_too() -> None:
    requests = rows([100 * MS] * 98)
    slow = [
        row(ordinal=98 + i, due_ns=WARMUP_NS + i, late_ns=20 * MS, ttft_ns=310 * MS)
        for i in range(2)
    ]
    verdict = sitting(evidence([*requests, *slow]), "goodput(ttft <= 300ms) >= 99%")
    assert verdict.ruling is Ruling.INVALID
    assert any("when they were sent" in reason for reason in verdict.health.reasons)


@pytest.mark.parametrize(
    ("promise", "ruling"),
    [
        # 100 ms less 31 ms of lateness and 1 ms of lag are still above 67 ms, and not above 69 ms
        ("ttft.p99 <= 67ms", Ruling.FAIL),
        ("ttft.p99 <= 69ms", Ruling.INVALID),
        ("ttft.p50 <= 1us", Ruling.FAIL),
        ("ttft.mean <= 1us", Ruling.FAIL),
        ("goodput(ttft <= 67ms) >= 99%", Ruling.FAIL),
        ("goodput(ttft <= 69ms) >= 99%", Ruling.INVALID),
        # what it passes, it passes on an instrument that may not say so
        ("ttft.p99 <= 150ms", Ruling.INVALID),
    ],
)
def test_slowness_does_not_matter_to_what_is_broken_by_more(promise: str, ruling: Ruling) -> None:
    run = replace(evidence(late(rows([100 * MS] * 400), 31 * MS)), health=tuple(healthy(lag_ns=MS)))
    verdict = sitting(run, promise)
    assert verdict.ruling is ruling, verdict.health.reasons
    unknown = replace(run, health=())
    assert sitting(unknown, promise).ruling is Ruling.INVALID


@pytest.mark.parametrize(
    ("promise", "ruling"),
    [("itl.p99 <= 12ms", Ruling.FAIL), ("itl.p99 <= 14ms", Ruling.INVALID)],
)
def test_lag_does_not_matter_to_gaps_that_are_longer_by_more(promise: str, ruling: Ruling) -> None:
    run = replace(evidence(rows([100 * MS] * 400)), health=tuple(healthy(lag_ns=7 * MS)))
    assert sitting(run, promise).ruling is ruling


def test_one_promise_broken_by_more_does_not_excuse_the_others() -> None:
    run = evidence(late(rows([100 * MS] * 400), 31 * MS))
    verdict = sitting(run, "ttft.p50 <= 1us", "ttft.p99 <= 150ms")
    assert verdict.checks[0].ruling is Ruling.FAIL
    assert verdict.ruling is Ruling.INVALID


def test_an_engine_that_is_slow_from_sent_as_well_is_a_fail() -> None:
    verdict = sitting(evidence(late(rows([900 * MS] * 400), 10 * MS)))
    assert verdict.ruling is Ruling.FAIL


@pytest.mark.parametrize(
    ("lag_ns", "promises", "fit"),
    [
        (6 * MS, ("itl.p99 <= 60ms",), True),
        (7 * MS, ("itl.p99 <= 60ms",), False),
        (7 * MS, ("tpot.mean <= 60ms",), False),
        (7 * MS, ("stall.p99 <= 60ms",), False),
        (7 * MS, ("goodput(itl <= 60ms) >= 1%",), False),
        (7 * MS, ("ttft.p99 <= 300ms",), True),
        (7 * MS, ("itl.p99 <= 1s", "itl.p50 <= 60ms"), False),
    ],
)
def test_loop_lag_may_be_a_tenth_of_the_tightest_gap(
    lag_ns: int, promises: tuple[str, ...], fit: bool
) -> None:
    run = replace(evidence(rows([100 * MS] * 400)), health=tuple(healthy(lag_ns=lag_ns)))
    verdict = sitting(run, *promises)
    assert verdict.health.fit is fit
    assert (verdict.ruling is Ruling.INVALID) is not fit


def test_loop_lag_outside_the_window_does_not_count() -> None:
    samples = [
        replace(sample, loop_lag_ns=(500 * MS,) * 10) if sample.at_ns <= WARMUP_NS else sample
        for sample in healthy()
    ]
    run = replace(evidence(rows([100 * MS] * 400)), health=tuple(samples))
    assert health(run, "itl.p99 <= 60ms").fit


def test_gaps_cannot_be_ruled_by_generators_that_do_not_report() -> None:
    run = replace(evidence(rows([100 * MS] * 400)), health=())
    assert not health(run, "itl.p99 <= 60ms").fit
    assert health(run, "ttft.p99 <= 300ms").fit


@pytest.mark.parametrize("promise", ["itl.p90 <= 1s", "tpot.p90 <= 1s", "goodput(itl <= 1s) >= 9%"])
def test_an_engine_that_dies_early_in_the_warm_up_leaves_no_lag_to_report(promise: str) -> None:
    run = evidence([row(ordinal=i, due_ns=i * MS) for i in range(10)])
    died = replace(
        run,
        runs=(replace(run.runs[0], finished=False),),
        health=tuple(healthy()[:1]),
        engine_fault="engine was killed by signal 9 (SIGKILL)",
    )
    verdict = sitting(died, promise)
    assert verdict.health.reasons == ()
    assert verdict.ruling is Ruling.FAIL


def test_causes_are_reported_and_do_not_decide() -> None:
    busy = healthy(steal_share=0.12, run_queue_ns=300 * MS)
    found = health(replace(evidence(rows([100 * MS] * 400)), health=tuple(busy)))
    assert found.fit
    assert len(found.causes) == 2
    assert "12.0 %" in found.causes[0]
    assert "local-0 waited 300 ms for a core" in found.causes[1]
    assert "at second 1 of the measured window" in found.causes[1]
    assert (found.steal_share_max, found.run_queue_share_max) == (0.12, 0.3)


@pytest.mark.parametrize("limit", ["itl.p99 <= 60ms", "ttft.p99 <= 300ms"])
def test_a_should_does_not_make_a_run_invalid(limit: str) -> None:
    run = replace(
        evidence(late(rows([100 * MS] * 400), 90 * MS)), health=tuple(healthy(lag_ns=50 * MS))
    )
    promises = sla("error_rate <= 1%", check(limit, level="should"))
    assert rule(promises, run, None).ruling is Ruling.PASS
    assert rule(promises, run, None, strict=True).ruling is Ruling.INVALID


def test_our_own_faults_are_reasons() -> None:
    run = replace(evidence(rows([100 * MS] * 400)), invalid=("the clock stepped by 3 s",))
    verdict = sitting(run)
    assert verdict.ruling is Ruling.INVALID
    assert verdict.health.reasons == ("the clock stepped by 3 s",)
    assert verdict.health.mend == "run again"


@pytest.mark.parametrize("planned", [399, 401])
def test_every_planned_request_has_one_row(planned: int) -> None:
    run = evidence(rows([100 * MS] * 400))
    span = replace(run.runs[0], planned={"chat": planned})
    found = health(replace(run, runs=(span,)))
    assert not found.fit
    assert f"{planned} requests of chat were planned, and 400 are accounted for" in found.reasons[0]


def test_a_tenant_whose_lane_was_lost_whole_is_missed() -> None:
    run = evidence(rows([100 * MS] * 400))
    span = replace(run.runs[0], planned={"chat": 400, "code": 50})
    assert not health(replace(run, runs=(span,), tenants=("chat", "code"))).fit


def test_a_closed_loop_has_no_plan_to_miss() -> None:
    run = evidence(rows([100 * MS] * 400), closed_loop=frozenset({"chat"}))
    assert health(run).fit


def test_a_request_that_is_recorded_twice_is_noticed() -> None:
    requests = rows([100 * MS] * 400)
    requests[1] = replace(requests[0])
    found = health(evidence(requests))
    assert not found.fit
    assert "recorded twice" in found.reasons[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"sent_ns": WARMUP_NS - 1},
        {"first_ns": WARMUP_NS - 1},
        {"last_ns": WARMUP_NS + 1},
        {"done_ns": WARMUP_NS + 1},
        {"gaps_ns": (-1, 1, 1, 1)},
        # answered, and never sent
        {"sent_ns": None},
        {"sent_ns": None, "outcome": Outcome.BROKEN},
        # it waited longer for its connection than it took to be sent
        {"connect_ns": 1},
        {"connect_ns": 10**15},
        {"connect_ns": -1},
        {"due_ns": -1},
    ],
)
def test_stamps_out_of_order_are_ours(fields: dict[str, Any]) -> None:
    requests = rows([100 * MS] * 400)
    requests[0] = replace(requests[0], **fields)
    verdict = sitting(evidence(requests))
    assert verdict.ruling is Ruling.INVALID
    assert "1 requests have stamps out of order" in verdict.health.reasons[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"output_tokens": -5},
        {"output_tokens": 10**9 + 1},
        {"prompt_tokens": -1},
        {"gap_tokens": (1, -1, 1, 1)},
    ],
)
def test_numbers_of_tokens_that_no_reply_can_have_are_ours(fields: dict[str, Any]) -> None:
    requests = rows([100 * MS] * 400)
    requests[7] = replace(requests[7], **fields)
    verdict = sitting(evidence(requests))
    assert verdict.ruling is Ruling.INVALID
    assert "1 requests have fewer than 0 or more than 1,000,000,000" in verdict.health.reasons[0]


def test_an_open_loop_whose_rows_are_not_numbered_through_lacks_some() -> None:
    requests = rows([100 * MS] * 400)
    requests[7] = replace(requests[7], ordinal=400)
    found = health(evidence(requests))
    assert found.reasons == (
        "run 1: the requests of chat are not numbered through, so that some rows are gone",
    )


@pytest.mark.parametrize(
    ("gone", "fit"),
    [
        (lambda row: False, True),
        # a slot ends when the window does, each after as many as it had time for
        (lambda row: row.ordinal >= 39, True),
        (lambda row: row.ordinal == 17, False),
        (lambda row: row.ordinal % 2, False),
        (lambda row: row.session == "batch.slot1", False),
        (lambda row: row.ordinal < 3, False),
    ],
)
def test_a_closed_loop_whose_slots_are_not_numbered_through_lacks_rows(
    gone: Callable[[RequestRow], bool], fit: bool
) -> None:
    played = [
        replace(one, session=f"batch.slot{one.ordinal % 3}")
        for one in rows([100 * MS] * 40, tenant="batch")
    ]
    verdict = sitting(looping(*(one for one in played if not gone(one))))
    assert verdict.health.fit is fit
    assert (verdict.ruling is Ruling.PASS) is fit
    if not fit:
        assert "of batch are not numbered through" in verdict.health.reasons[0]


def test_unsent_requests_are_ours() -> None:
    requests = [
        *rows([100 * MS] * 400),
        row(ordinal=400, outcome=Outcome.UNSENT, why="no file descriptor was left"),
    ]
    found = health(evidence(requests))
    assert not found.fit
    assert "1 requests that were due were not sent: no file descriptor was left" in found.reasons[0]
    assert found.unsent == 1


def test_later_turns_of_a_session_that_the_engine_broke_are_not_ours() -> None:
    broken = row(ordinal=0, outcome=Outcome.BROKEN, session="s", turn=1)
    later = row(ordinal=1, outcome=Outcome.UNSENT, session="s", turn=2, due_ns=7 * S)
    fine = rows([100 * MS] * 400, first_ordinal=2)
    verdict = sitting(evidence([broken, later, *fine]), "error_rate <= 1%")
    assert verdict.health.fit
    assert verdict.ruling is Ruling.PASS
    earlier = replace(later, turn=0)
    assert not health(evidence([broken, earlier, *fine]), "error_rate <= 1%").fit


def test_a_run_that_did_not_finish_for_no_known_reason_is_ours() -> None:
    run = evidence(rows([100 * MS] * 400))
    found = health(replace(run, runs=(replace(run.runs[0], finished=False),)))
    assert not found.fit
    assert "did not finish" in found.reasons[0]


def test_nothing_due_in_the_window_is_ours() -> None:
    early = [row(ordinal=i, due_ns=i * MS) for i in range(10)]
    for requests in ([], early):
        verdict = sitting(evidence(requests))
        assert verdict.ruling is Ruling.INVALID
        assert "nothing was due in the measured window" in verdict.health.reasons


def test_a_closed_loop_that_the_engine_held_through_the_warm_up_is_a_fail() -> None:
    held = [
        replace(row(ordinal=i, due_ns=0, outcome=Outcome.TIMED_OUT), done_ns=60 * S)
        for i in range(8)
    ]
    verdict = sitting(evidence(held, closed_loop=frozenset({"chat"})))
    assert verdict.health.fit
    assert verdict.ruling is Ruling.FAIL
    assert verdict.engine_fault is not None
    assert "none of the 8 requests" in verdict.engine_fault
    assert verdict.checks[0].ruling is Ruling.INCONCLUSIVE


def test_a_closed_loop_that_went_quiet_by_itself_is_ours() -> None:
    done = [row(ordinal=i, due_ns=0) for i in range(8)]
    verdict = sitting(evidence(done, closed_loop=frozenset({"chat"})))
    assert verdict.ruling is Ruling.INVALID


def batch(slots: int, **fields: Any) -> list[RequestRow]:
    """The first requests of a closed loop's slots, held by the engine beyond the end of the window."""
    return [
        replace(
            row(tenant="batch", ordinal=i, due_ns=0, outcome=Outcome.TIMED_OUT),
            session=f"batch.slot{i}",
            done_ns=29 * S,
            **fields,
        )
        for i in range(slots)
    ]


def looping(*requests: RequestRow, **fields: Any) -> Evidence:
    return evidence(
        [*rows([100 * MS] * 400), *requests],
        tenants=("chat", "batch"),
        closed_loop=frozenset({"batch"}),
        **fields,
    )


def test_a_closed_loop_that_is_held_beside_a_tenant_that_is_not_is_a_fail() -> None:
    verdict = sitting(looping(*batch(8)), "ttft.p99 <= 300ms", "error_rate <= 1%")
    assert [one.ruling for one in verdict.checks] == [Ruling.PASS, Ruling.PASS]
    assert verdict.health.fit
    assert verdict.ruling is Ruling.FAIL
    assert verdict.engine_fault is not None
    assert "none of the 8 requests of batch" in verdict.engine_fault
    # answered, but only once the window was over
    slow = batch(8, outcome=Outcome.COMPLETED, first_ns=27 * S, last_ns=29 * S, output_tokens=1)
    assert sitting(looping(*slow)).ruling is Ruling.FAIL


def test_a_closed_loop_that_is_held_in_one_run_of_several_is_a_fail() -> None:
    requests = [*rows([100 * MS] * 400), *rows([100 * MS] * 400, run=2)]
    fine = rows([100 * MS] * 20, tenant="batch", session="batch.slot0")
    held = [replace(one, run=2) for one in batch(8)]
    run = evidence([*requests, *fine, *held], runs=2, closed_loop=frozenset({"batch"}))
    verdict = sitting(run)
    assert verdict.ruling is Ruling.FAIL
    assert verdict.engine_fault is not None
    assert "8 requests of batch in run 2" in verdict.engine_fault


def test_slots_that_the_engine_never_answers_are_a_fail_beyond_a_tenth() -> None:
    def slots(held: int, **fields: Any) -> Evidence:
        busy = [
            replace(
                one,
                session=f"batch.slot{held + index % 9}",
                ordinal=held + index % 9 + index // 9 * (held + 9),
            )
            for index, one in enumerate(rows([100 * MS] * 90, tenant="batch"))
        ]
        return looping(*batch(held, **fields), *busy)

    verdict = sitting(slots(2))
    assert verdict.ruling is Ruling.FAIL
    assert verdict.engine_fault is not None
    assert "2 of 11 slots of batch waited" in verdict.engine_fault
    tolerated = sitting(slots(1))
    assert tolerated.ruling is Ruling.PASS
    assert any("1 of 10 slots of batch waited" in warning for warning in tolerated.warnings)
    # a long answer that streams is no silence
    assert sitting(slots(2, first_ns=S)).ruling is Ruling.PASS
    # nor does a run that was stopped say anything of it
    assert sitting(replace(slots(2), cut="interrupted")).engine_fault is None


def test_an_open_loop_with_nothing_planned_in_the_window_is_nobodys_fault() -> None:
    early = [replace(one, tenant="code") for one in batch(2)]
    run = evidence([*rows([100 * MS] * 400), *early])
    assert sitting(run).ruling is Ruling.PASS


@pytest.mark.parametrize("answered", [0, 3])
def test_a_closed_loop_that_goes_quiet_beside_others_is_ours(answered: int) -> None:
    done = [
        replace(one, outcome=Outcome.COMPLETED, first_ns=S, last_ns=S, done_ns=S, output_tokens=1)
        for one in batch(answered)
    ]
    verdict = sitting(looping(*done))
    assert verdict.ruling is Ruling.INVALID
    assert "no request of batch was due" in verdict.health.reasons[0]
    bare = looping(*done)
    kept = Summaries(histograms=histograms(bare), measurements=measure(bare))
    alone = rule(sla("ttft.p99 <= 300ms"), replace(bare, rows=()), None, summaries=kept)
    assert alone.ruling is Ruling.INVALID


def test_a_closed_loop_of_which_only_some_slots_were_held_went_quiet_by_itself() -> None:
    done = replace(
        batch(1)[0],
        session="batch.slot2",
        ordinal=2,
        outcome=Outcome.COMPLETED,
        first_ns=S,
        last_ns=S,
        done_ns=S,
        output_tokens=1,
    )
    verdict = sitting(looping(*batch(2), done))
    assert verdict.ruling is Ruling.INVALID
    assert "1 of 3 slots of batch" in verdict.health.reasons[0]


def test_a_closed_loops_lateness_counts_from_the_previous_completion() -> None:
    # due is when the one before was done: what the engine took is in no lateness
    requests = []
    due = WARMUP_NS
    for ordinal in range(20):
        one = row(ordinal=ordinal, due_ns=due, late_ns=MS, ttft_ns=900 * MS)
        requests.append(one)
        due = one.done_ns
    found = health(evidence(requests, closed_loop=frozenset({"chat"})), "ttft.p99 <= 2s")
    assert found.fit
    assert found.lateness_max_s == pytest.approx(0.001)


def test_lateness_survives_the_rows() -> None:
    run = evidence(late(rows([100 * MS] * 400), 31 * MS))
    kept = Summaries(histograms=histograms(run), measurements=measure(run))
    verdict = rule(sla("ttft.p99 <= 300ms"), replace(run, rows=()), None, summaries=kept)
    assert verdict.ruling is Ruling.INVALID
    assert verdict.health.lateness_p99_s == pytest.approx(0.031)
    fit = rule(sla("ttft.p99 <= 310ms"), replace(run, rows=()), None, summaries=kept)
    assert fit.ruling is Ruling.PASS


# ---------------------------------------------------------------------------------------------------------
# pauses of the generators


def paused(
    requests: Iterable[RequestRow],
    at_s: int,
    lag_ns: int = 340 * MS,
    *,
    lanes: int = 1,
    runs: int = 1,
) -> Evidence:
    """A run in which the first lane stood still once, in the second that ends ``at_s`` after the window began."""
    wakes = tuple(range(lag_ns, 0, -20 * MS))
    samples = [
        replace(sample, lane=f"local-{lane}", loop_lag_ns=(*wakes, *sample.loop_lag_ns * 10))
        if lane == 0 and sample.at_ns == WARMUP_NS + at_s * S and sample.run == runs
        else replace(sample, lane=f"local-{lane}", loop_lag_ns=sample.loop_lag_ns * 10)
        for lane in range(lanes)
        for sample in (*healthy(range(1, runs + 1)), *drained(range(1, runs + 1)))
    ]
    return replace(evidence(requests, runs=runs), health=tuple(samples))


def drained(runs: Iterable[int]) -> list[HealthSample]:
    last = healthy()[-1]
    return [
        replace(last, run=run, at_ns=last.at_ns + second * S)
        for run in runs
        for second in (1, 2, 3)
    ]


def struck(share: int, at_s: int = 10, **fields: Any) -> list[RequestRow]:
    """400 requests of which those due within a second of a pause, ``share`` of 400, are as ``fields`` say."""
    fine = rows([100 * MS] * (400 - share))
    hit = [
        row(ordinal=400 - share + i, due_ns=WARMUP_NS + at_s * S - i * MS - 500 * MS, **fields)
        for i in range(share)
    ]
    return [*fine, *hit]


STALLED: dict[str, Any] = {"gaps_ns": (20 * MS, 350 * MS, 20 * MS, 20 * MS)}


@pytest.mark.parametrize(
    ("promise", "fields"),
    [
        ("stall.p99 <= 300ms", STALLED),
        ("itl.p99.9 <= 300ms", STALLED),
        ("itl.max < 350ms", STALLED),
        ("goodput(itl <= 300ms) >= 99%", STALLED),
        ("tpot.p99 <= 90ms", STALLED),
        ("e2e.p99 <= 300ms", STALLED),
        ("ttft.p99 <= 300ms", {"ttft_ns": 390 * MS}),
        ("ttfo.max <= 300ms", {"ttft_ns": 390 * MS}),
        ("service.ttft.p99 <= 300ms", {"ttft_ns": 390 * MS}),
        ("goodput(ttft <= 300ms) >= 99%", {"ttft_ns": 390 * MS}),
        # sent late and read late, by the same pause: neither alone would have broken it
        ("ttft.p99 <= 100ms", {"ttft_ns": 700 * MS, "late_ns": 320 * MS}),
    ],
)
def test_a_fail_that_one_pause_of_ours_can_have_made_is_no_fail(
    promise: str, fields: dict[str, Any]
) -> None:
    verdict = sitting(paused(struck(20, **fields), 10), promise)
    assert verdict.checks[0].ruling is Ruling.FAIL
    assert verdict.ruling is Ruling.INVALID
    said = [reason for reason in verdict.health.reasons if "a pause of" in reason]
    assert said, verdict.health.reasons
    assert (
        "a pause of 340 ms of generator local-0 at second 10 of the measured window alone"
    ) in said[0]
    assert "it is PASS" in said[0]
    assert verdict.health.mend is not None
    assert "cores" in verdict.health.mend
    # the same from a loop that never stood still is the engine's
    assert sitting(evidence(struck(20, **fields)), promise).checks[0].ruling is Ruling.FAIL
    if "late_ns" not in fields:
        assert sitting(evidence(struck(20, **fields)), promise).ruling is Ruling.FAIL


@pytest.mark.parametrize(
    ("promise", "fields"),
    [
        # longer than the pause can have made it
        ("stall.p99 <= 9ms", STALLED),
        ("ttft.p99 <= 300ms", {"ttft_ns": 641 * MS}),
        ("goodput(ttft <= 300ms) >= 99%", {"ttft_ns": 641 * MS}),
        # spread over the tokens of a request a pause is little
        ("tpot.p99 <= 15ms", STALLED),
        # no pause has a part in these
        ("error_rate <= 1%", {"outcome": Outcome.TIMED_OUT}),
        ("throughput.requests >= 1000/s", STALLED),
        ("goodput(ttft <= 300ms) <= 1%", STALLED),
        ("ttft.p99 <= 300ms", {"outcome": Outcome.REFUSED}),
    ],
)
def test_a_pause_does_not_excuse_what_it_cannot_have_made(
    promise: str, fields: dict[str, Any]
) -> None:
    verdict = sitting(paused(struck(20, **fields), 10), promise)
    assert verdict.health.fit, verdict.health.reasons
    assert verdict.ruling is Ruling.FAIL


def test_a_pause_does_not_excuse_requests_that_it_never_touched() -> None:
    # 340 ms are worked off after 3.4 s
    def at(second: int) -> Ruling:
        return sitting(paused(struck(20, 10, **STALLED), second), "stall.p99 <= 300ms").ruling

    assert [at(second) for second in (4, 5, 10, 11, 14)] == [
        Ruling.FAIL,
        Ruling.FAIL,
        Ruling.INVALID,
        Ruling.INVALID,
        Ruling.FAIL,
    ]
    assert at(7) is Ruling.INVALID


def test_a_pause_of_another_run_excuses_nothing() -> None:
    requests = [*struck(20, **STALLED), *rows([100 * MS] * 400, run=2)]
    assert sitting(paused(requests, 10, runs=2), "stall.p98 <= 300ms").ruling is Ruling.FAIL
    second = [*rows([100 * MS] * 400), *struck(20, run=2, **STALLED)]
    second[400:] = [replace(one, run=2) for one in second[400:]]
    verdict = sitting(paused(second, 10, runs=2), "stall.p98 <= 300ms")
    assert verdict.ruling is Ruling.INVALID
    assert any("of the measured window of run 2" in reason for reason in verdict.health.reasons)


def test_a_pause_never_doubts_a_pass() -> None:
    verdict = sitting(paused(struck(20, **STALLED), 10), "stall.p99 <= 360ms", "ttft.p99 <= 300ms")
    assert verdict.ruling is Ruling.PASS


def test_a_pause_on_one_lane_of_four_is_found_and_named() -> None:
    run = paused(struck(20, **STALLED), 10, lanes=4)
    verdict = sitting(run, "stall.p99 <= 300ms")
    assert verdict.ruling is Ruling.INVALID
    assert any("generator local-0" in reason for reason in verdict.health.reasons)


def test_a_pause_in_the_drain_is_in_the_gaps_of_the_window() -> None:
    # due in the last second of the window; the pause is over 2 s after it
    hit = [
        row(ordinal=400 + i, due_ns=WARMUP_NS + 19 * S + i * MS, gaps_ns=(1_800 * MS, 20 * MS))
        for i in range(20)
    ]
    run = paused([*rows([100 * MS] * 400), *hit], 22, 1_700 * MS)
    for promise in ("stall.p99 <= 300ms", "itl.p99 <= 300ms", "e2e.p99 <= 1s"):
        verdict = sitting(run, promise)
        assert verdict.ruling is Ruling.INVALID, promise
        assert any("a pause of 1.70 s" in reason for reason in verdict.health.reasons)
    assert verdict.health.loop_lag_max_s == pytest.approx(1.7)


def test_a_pause_does_not_touch_many_requests_only_because_it_is_long() -> None:
    # an engine that is slow to everybody is not excused by one pause
    verdict = sitting(paused(rows([400 * MS] * 400), 10), "ttft.p99 <= 300ms", "ttft.mean <= 250ms")
    assert verdict.ruling is Ruling.FAIL


def test_pauses_are_allowed_for_with_confidence_and_in_runs_that_were_cut_too() -> None:
    requests = [replace(one, run=run) for run in (1, 2, 3) for one in struck(20, **STALLED)]
    three = paused(requests, 10, runs=3)
    samples = [replace(one, run=run) for one in three.health if one.run == 3 for run in (1, 2, 3)]
    promise = sla("stall.p99 <= 300ms", runs=3, confidence=0.95)
    assert rule(promise, replace(three, health=tuple(samples)), None).ruling is Ruling.INVALID
    assert rule(promise, evidence(requests, runs=3), None).ruling is Ruling.FAIL
    cut = replace(paused(struck(20, **STALLED), 10), cut="interrupted")
    assert sitting(cut, "stall.p99 <= 300ms").ruling is Ruling.INVALID
    assert (
        sitting(replace(cut, health=tuple(healthy())), "stall.p99 <= 300ms").ruling is Ruling.FAIL
    )


def test_a_pause_counts_without_rows_too() -> None:
    run = paused(struck(20, ttft_ns=390 * MS), 10)
    kept = Summaries(histograms=histograms(run), measurements=measure(run))
    bare = replace(run, rows=())
    assert rule(sla("ttft.p99 <= 300ms"), bare, None, summaries=kept).ruling is Ruling.INVALID
    assert rule(sla("ttft.p99 <= 49ms"), bare, None, summaries=kept).ruling is Ruling.FAIL


def test_lag_that_nobody_reported_cannot_be_told_from_a_slow_engine() -> None:
    run = replace(evidence(struck(20, ttft_ns=390 * MS)), health=())
    assert sitting(run, "ttft.p99 <= 300ms").ruling is Ruling.INVALID
    assert sitting(run, "ttft.p99 <= 400ms").ruling is Ruling.PASS
    assert sitting(run, "error_rate <= 1%", "throughput.requests >= 1000/s").ruling is Ruling.FAIL


@pytest.mark.parametrize("sick", ["lane", "run"])
def test_the_worst_lane_of_the_worst_run_decides(sick: str) -> None:
    # 3 % of one lane's wake-ups in one run are late: of all together less than 1 %
    samples = [
        replace(
            sample,
            lane=f"local-{lane}",
            loop_lag_ns=(
                (7 * MS, *sample.loop_lag_ns * 3)
                if (lane == 2 if sick == "lane" else sample.run == 2)
                else sample.loop_lag_ns * 3
            ),
        )
        for lane in range(4)
        for sample in healthy((1, 2, 3, 4) if sick == "run" else (1,))
    ]
    runs = 4 if sick == "run" else 1
    requests = [one for run in range(1, runs + 1) for one in rows([100 * MS] * 400, run=run)]
    run = replace(evidence(requests, runs=runs), health=tuple(samples))
    verdict = sitting(run, "itl.p99 <= 60ms")
    assert verdict.ruling is Ruling.INVALID
    assert verdict.health.loop_lag_p99_s == pytest.approx(0.007)
    if sick == "lane":
        assert "event-loop lag p99 of local-2 is 7.00 ms" in verdict.health.reasons[0]


def test_an_idle_drain_does_not_water_down_the_windows_lag() -> None:
    last = healthy()[-1]
    window = [replace(one, loop_lag_ns=(7 * MS, *one.loop_lag_ns * 5)) for one in healthy()]
    drain = [replace(last, at_ns=last.at_ns + second * S) for second in range(1, 500)]
    run = replace(evidence(rows([100 * MS] * 400)), health=(*window, *drain))
    assert sitting(run, "itl.p99 <= 60ms").ruling is Ruling.INVALID


def bare(run: Evidence, *promises: str) -> Verdict:
    """The verdict on what is left of a run once its rows are gone."""
    kept = Summaries(histograms=histograms(run), measurements=measure(run))
    return rule(sla(*promises), replace(run, rows=()), None, summaries=kept)


@pytest.mark.parametrize(
    ("late_ns", "connect_ns", "slow", "ruling"),
    [
        # 5 sent late among 1,000 and 8 slow by themselves: only together are they more than 10
        (400 * MS, None, 8, Ruling.INVALID),
        # those 5 are the engine's, which kept their connections waiting
        (400 * MS, 400 * MS, 8, Ruling.FAIL),
        (0, None, 8, Ruling.FAIL),
        (400 * MS, None, 11, Ruling.FAIL),
        (400 * MS, None, 3, Ruling.PASS),
    ],
)
@pytest.mark.parametrize("promise", ["ttft.p99 <= 500ms", "ttfo.p99 <= 500ms", "e2e.p99 <= 580ms"])
def test_rulings_from_due_and_from_sent_differ_without_rows_too(
    promise: str, late_ns: int, connect_ns: int | None, slow: int, ruling: Ruling
) -> None:
    requests = rows([600 * MS] * slow + [100 * MS] * (995 - slow))
    late_ones = [
        row(
            ordinal=995 + i,
            due_ns=WARMUP_NS + i,
            late_ns=late_ns,
            connect_ns=connect_ns,
            ttft_ns=600 * MS,
        )
        for i in range(5)
    ]
    run = evidence([*requests, *late_ones])
    assert sitting(run, promise).ruling is ruling
    assert bare(run, promise).ruling is ruling
    # the generators' own words may be gone with the rows
    assert bare(replace(run, health=()), promise).ruling is ruling


def test_service_times_that_were_never_kept_say_nothing() -> None:
    run = evidence(rows([600 * MS] * 400))
    kept = Summaries(
        histograms=histograms(run),
        measurements=tuple(m for m in measure(run) if not m.metric.startswith("service.")),
    )
    promise = sla("ttft.p99 <= 500ms")
    assert rule(promise, replace(run, rows=()), None, summaries=kept).ruling is Ruling.FAIL


def test_what_was_not_sent_is_missed_without_rows_too() -> None:
    run = evidence([*rows([100 * MS] * 400), row(ordinal=400, outcome=Outcome.UNSENT)])
    kept = Summaries(histograms=histograms(run), measurements=measure(run))
    verdict = rule(sla("ttft.p95 <= 300ms"), replace(run, rows=()), None, summaries=kept)
    assert verdict.ruling is Ruling.INVALID
    assert "1 requests that were due were not sent" in verdict.health.reasons[0]


def test_a_limit_set_by_a_baseline_is_a_limit_too() -> None:
    past = evidence(rows([100 * MS] * 400))
    baseline = Baseline(
        name="main",
        subject=past.subject,
        runs=1,
        measurements=measure(past),
        histograms=histograms(past),
    )
    run = evidence(late(rows([100 * MS] * 400), 12 * MS))
    verdict = rule(sla("ttft.p99 <= baseline + 10%"), run, baseline)
    assert verdict.ruling is Ruling.INVALID
    assert "lateness" in verdict.health.reasons[0]


# ---------------------------------------------------------------------------------------------------------
# generators that do not keep up


def outrun(
    requests: Iterable[RequestRow], lag_ns: int = 600 * MS, *, late_ns: int = 0, **fields: Any
) -> Evidence:
    """A run whose generators were late, or whose loops lagged, all the time."""
    sent = [
        one if one.sent_ns is None else replace(one, sent_ns=one.due_ns + late_ns)
        for one in requests
    ]
    return replace(evidence(sent, **fields), health=tuple(healthy(lag_ns=lag_ns)))


def timed_out(share: int, after_ns: int = 2 * S, **fields: Any) -> list[RequestRow]:
    """400 requests of which ``share`` were given up on."""
    lost = [
        row(
            ordinal=400 - share + i,
            due_ns=WARMUP_NS + i * MS,
            ttft_ns=after_ns,
            **{"outcome": Outcome.TIMED_OUT, **fields},
        )
        for i in range(share)
    ]
    return [*rows([300 * MS] * (400 - share)), *lost]


CONNECTING: dict[str, Any] = {
    "outcome": Outcome.REFUSED,
    "stage": "connect",
    "sent_ns": None,
    "why": "no connection within 2 s",
}


@pytest.mark.parametrize(
    "promise",
    [
        "error_rate <= 1%",
        "ttft.p99 <= 2s",
        "e2e.max <= 2s",
        "itl.p99 <= 1s",
        "goodput(ttft <= 2s) >= 99%",
        "throughput.requests >= 19.9/s",
        "throughput.output_tokens >= 99/s",
        "throughput.total_tokens >= 2099/s",
    ],
)
@pytest.mark.parametrize("fields", [{}, CONNECTING])
def test_timeouts_of_generators_that_do_not_keep_up_are_no_fail(
    promise: str, fields: dict[str, Any]
) -> None:
    lost = timed_out(96, **fields)
    verdict = sitting(outrun(lost), promise)
    assert verdict.checks[0].ruling is Ruling.FAIL
    assert verdict.ruling is Ruling.INVALID
    assert "event-loop lag p99 of local-0 is 600 ms" in verdict.health.reasons[0]
    assert "it is PASS once that is allowed for" in verdict.health.reasons[0]
    # the same of one that does is the engine's
    assert sitting(evidence(lost), promise).ruling is Ruling.FAIL
    assert sitting(outrun(lost, 100 * MS), "error_rate <= 1%").ruling is Ruling.FAIL


def test_late_sending_is_no_keeping_up_either() -> None:
    verdict = sitting(outrun(timed_out(96, S), 1, late_ns=101 * MS), "error_rate <= 1%")
    assert verdict.ruling is Ruling.INVALID
    assert "lateness p99 is 101 ms" in verdict.health.reasons[0]
    assert sitting(outrun(timed_out(96, S), 1, late_ns=99 * MS), "error_rate <= 1%").health.fit


@pytest.mark.parametrize(
    ("promise", "lost"),
    [
        # longer than ten times all of the slowness
        ("error_rate <= 1%", timed_out(96, 6_001 * MS)),
        ("ttft.p99 <= 2s", timed_out(96, 6_001 * MS)),
        ("throughput.requests >= 19.9/s", timed_out(96, 6_001 * MS)),
        # an answer, and no limit of ours
        ("error_rate <= 1%", timed_out(96, outcome=Outcome.BROKEN)),
        ("error_rate <= 1%", timed_out(96, outcome=Outcome.REFUSED, status=503)),
        ("rejections <= 1%", timed_out(96, outcome=Outcome.REFUSED, status=503)),
        ("error_rate <= 1%", timed_out(96, **{**CONNECTING, "why": "ECONNREFUSED"})),
        ("throughput.requests >= 19.9/s", timed_out(96, outcome=Outcome.BROKEN)),
        # more than was ever due
        ("throughput.requests >= 20.1/s", timed_out(96)),
        # slowness makes these better
        ("throughput.requests <= 1/s", timed_out(96)),
        ("goodput(ttft <= 2s) <= 1%", timed_out(96)),
    ],
)
def test_what_stands_with_all_of_our_slowness_stands(promise: str, lost: list[RequestRow]) -> None:
    verdict = sitting(outrun(lost), promise)
    assert verdict.ruling is Ruling.FAIL, verdict.health.reasons
    assert verdict.health.fit
    assert len(verdict.health.slow) == 1
    assert "above 100 ms no generator keeps up" in verdict.health.slow[0]
    assert any("slow, which changes no ruling" in warning for warning in verdict.warnings)


def test_answers_that_came_after_the_window_are_too_few_for_no_engine() -> None:
    # half of them are read when the window is over
    requests = rows([100 * MS] * 200 + [21 * S] * 200)
    assert sitting(outrun(requests), "throughput.requests >= 19/s").ruling is Ruling.INVALID
    assert sitting(evidence(requests), "throughput.requests >= 19/s").ruling is Ruling.FAIL
    assert sitting(outrun(requests), "throughput.requests >= 5/s").ruling is Ruling.PASS


def test_what_a_closed_loop_would_have_sent_nobody_knows() -> None:
    loop = outrun(rows([100 * MS] * 400), closed_loop=frozenset({"chat"}))
    verdict = sitting(loop, "throughput.requests >= 40/s")
    assert verdict.ruling is Ruling.INVALID
    assert "it is INCONCLUSIVE once" in verdict.health.reasons[0]


def test_what_stood_once_rows_told_of_timeouts_is_open_without_them() -> None:
    assert bare(outrun(timed_out(96)), "error_rate <= 1%").ruling is Ruling.INVALID
    assert bare(evidence(timed_out(96)), "error_rate <= 1%").ruling is Ruling.FAIL


def test_slowness_that_decides_nothing_is_told() -> None:
    run = outrun(rows([900 * MS] * 400, gaps_ns=(200 * MS, 200 * MS)), 7 * MS, late_ns=31 * MS)
    verdict = sitting(run, "ttft.p99 <= 300ms", "itl.p99 <= 50ms")
    assert verdict.ruling is Ruling.FAIL
    assert verdict.health.fit
    lateness, lag = verdict.health.slow
    assert "lateness p99 is 31.0 ms, more than a tenth" in lateness
    assert "event-loop lag p99 of local-0 is 7.00 ms, more than a tenth" in lag
    passed = sitting(outrun(rows([100 * MS] * 400)), "error_rate <= 1%")
    assert passed.ruling is Ruling.PASS
    assert passed.health.slow
    # an instrument that is not fit says so, and why, and no more
    assert not sitting(run, "ttft.p99 <= 890ms").health.slow
    assert not sitting(evidence(rows([100 * MS] * 400))).health.slow


def test_an_abort_on_timeouts_of_ours_is_no_fail() -> None:
    promise = check("error_rate <= 20%", abort_after_ns=5 * S)
    lost = [one for one in timed_out(300, 500 * MS) if one.outcome is Outcome.TIMED_OUT]
    run = outrun([*rows([300 * MS] * 100, spacing_ns=MS), *lost])
    run = replace(run, aborted=promise.name, runs=(replace(run.runs[0], finished=False),))
    assert rule(sla(promise), run, None).ruling is Ruling.INVALID
    fit = replace(run, health=tuple(healthy()))
    assert rule(sla(promise), fit, None).ruling is Ruling.FAIL
