from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from profiles.arrivals.constant import Constant
from profiles.arrivals.gamma import Gamma
from profiles.arrivals.on_off import OnOff
from profiles.arrivals.poisson import Poisson
from profiles.lengths import Fixed, Lognormal
from profiles.process import Arrival
from profiles.profile import Profile, Timeouts
from profiles.schedule import (
    LevelError,
    PlannedRequest,
    burst_intervals,
    lane_of,
    loops,
    planned_counts,
    schedule_sha256,
    unroll,
)
from profiles.surge import Surge
from profiles.tenant import Tenant
from profiles.trace import TraceSheet, survey

S = 10**9
TIMEOUTS = Timeouts(connect_ns=S, first_token_ns=S, idle_ns=S, total_ns=S)
ON_OFF = OnOff.model_validate({"busy": "30%", "dwell": "2s"})


def open_loop(name: str, rate_hz: float, arrival: Arrival | None = None) -> Tenant:
    return Tenant(
        name=name,
        rate_hz=rate_hz,
        concurrency=None,
        arrival=arrival or Poisson(),
        trace=None,
        prompt_tokens=Lognormal(median=500, p95=2000, most=8000),
        output_tokens=Lognormal(median=100, p95=400, most=8000),
        api="chat",
    )


def closed_loop(name: str, concurrency: int) -> Tenant:
    return replace(open_loop(name, 1), rate_hz=None, arrival=None, concurrency=concurrency)


@pytest.fixture(scope="session")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Tenant:
    folder = tmp_path_factory.mktemp("trace")
    rng = np.random.default_rng(4)
    at_s = np.cumsum(rng.exponential(0.1, 4_000))
    rows = "".join(
        f"2023-11-16 {int(s // 3600):02}:{int(s // 60 % 60):02}:{s % 60:010.7f},{i % 900 + 1},{i % 50}\n"
        for i, s in enumerate(at_s.tolist())
    )
    (folder / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    sheet = TraceSheet.model_validate({"file": "t.csv", "format": "azure"})
    trace, _ = survey(sheet, folder, 60 * S)
    return replace(
        open_loop("replay", 1),
        rate_hz=None,
        arrival=None,
        trace=trace,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
    )


def profile(*tenants: Tenant, warmup_s: float = 10, duration_s: float = 60) -> Profile:
    return Profile(
        name="p",
        seed=7,
        warmup_ns=int(warmup_s * S),
        duration_ns=int(duration_s * S),
        drain_ns=S,
        timeouts=TIMEOUTS,
        max_in_flight=None,
        surges=(),
        tenants=tenants,
    )


FOUR = (
    open_loop("chat", 6, Gamma(cv=4)),
    open_loop("code", 3, ON_OFF),
    open_loop("even", 2, Constant()),
    closed_loop("batch", 3),
)
SURGE = Surge(at_ns=12 * S, for_ns=6 * S, factor=5, tenants=("chat", "code"))


def of(requests: list[PlannedRequest], tenant: str) -> list[PlannedRequest]:
    return [request for request in requests if request.tenant == tenant]


def measured(planned: Profile, seed: int = 7, level: int = 100) -> list[tuple[object, ...]]:
    """Return what makes a measured request, from the start of the window."""
    return [
        (
            request.tenant,
            request.due_ns - planned.warmup_ns,
            request.session,
            request.burst,
            request.prompt_tokens,
            request.output_tokens,
        )
        for request in unroll(planned, seed, level)
        if request.due_ns is not None and request.due_ns >= planned.warmup_ns
    ]


def test_requests_come_in_due_order_within_the_run_and_numbered(replayed: Tenant) -> None:
    planned = profile(*FOUR, replayed)
    requests = list(unroll(planned, 7))
    due_ns = [request.due_ns for request in requests]
    assert due_ns == sorted(due_ns, key=lambda due: due or 0)
    assert all(due is not None and 0 <= due < 70 * S for due in due_ns)
    for tenant in ("chat", "code", "even", "replay"):
        mine = of(requests, tenant)
        assert [request.ordinal for request in mine] == list(range(len(mine)))
        assert len({request.session for request in mine}) == len(mine)
        assert min(r.prompt_tokens for r in mine) >= 1 <= min(r.output_tokens for r in mine)
    assert of(requests, "batch") == []
    assert planned_counts(planned, 7) == dict(Counter(request.tenant for request in requests))


def test_a_schedule_is_pure_in_profile_seed_and_level() -> None:
    planned = replace(profile(*FOUR), surges=(SURGE,))
    assert list(unroll(planned, 7)) == list(unroll(planned, 7))
    hashes = {
        schedule_sha256(planned, 7),
        schedule_sha256(planned, 8),
        schedule_sha256(planned, 7, 50),
        schedule_sha256(replace(planned, surges=()), 7),
        schedule_sha256(replace(planned, warmup_ns=9 * S), 7),
        schedule_sha256(replace(planned, duration_ns=59 * S), 7),
        schedule_sha256(replace(planned, tenants=planned.tenants[:3]), 7),
        schedule_sha256(profile(*FOUR[:3], closed_loop("batch", 4)), 7),
        schedule_sha256(profile(replace(FOUR[0], api="completions"), *FOUR[1:]), 7),
    }
    assert len(hashes) == 9
    assert schedule_sha256(planned, 7) == schedule_sha256(
        replace(planned, name="other", timeouts=replace(TIMEOUTS, idle_ns=9), drain_ns=9), 7
    )


@settings(max_examples=25, deadline=None)
@given(
    keep=st.sets(st.integers(0, 3), min_size=1),
    seed=st.integers(0, 2**31),
    extra=st.floats(0.1, 50),
)
def test_other_tenants_move_no_request(keep: set[int], seed: int, extra: float) -> None:
    whole = list(unroll(profile(*FOUR, open_loop("more", extra), duration_s=10), seed))
    part = list(unroll(profile(*(FOUR[i] for i in sorted(keep)), duration_s=10), seed))
    for name in (FOUR[i].name for i in keep):
        assert of(part, name) == of(whole, name)


def test_streams_are_independent_of_one_another() -> None:
    # equal tenants must not send together, nor long prompts bring long replies, nor the window repeat the warm-up
    twins = profile(open_loop("a", 50), open_loop("b", 50), warmup_s=100, duration_s=100)
    requests = list(unroll(twins, 7))
    counts = {
        name: np.bincount(
            [(r.due_ns or 0) // S for r in of(requests, name)], minlength=200
        ).tolist()
        for name in ("a", "b")
    }
    prompts = {name: [r.prompt_tokens for r in of(requests, name)][:9_000] for name in ("a", "b")}
    replies = [r.output_tokens for r in of(requests, "a")][:9_000]
    pairs: list[tuple[list[int], list[int]]] = [
        (counts["a"], counts["b"]),
        (counts["a"][:100], counts["a"][100:]),
        (prompts["a"], replies),
        (prompts["a"], prompts["b"]),
        (prompts["a"][:4_000], prompts["a"][5_000:]),
    ]
    for one, two in pairs:
        assert abs(stats.spearmanr(one, two).statistic) < 4 / math.sqrt(len(one))


def test_other_lengths_move_no_arrival_and_another_warmup_no_measured_request() -> None:
    base = profile(*FOUR)
    longer = profile(*(replace(one, prompt_tokens=Fixed(tokens=3)) for one in FOUR))
    assert [(r.due_ns, r.output_tokens) for r in unroll(base, 7)] == [
        (r.due_ns, r.output_tokens) for r in unroll(longer, 7)
    ]
    for warmup_s in (0, 3.3, 25):
        assert measured(profile(*FOUR, warmup_s=warmup_s)) == measured(base)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    at_s=st.floats(0, 55),
    for_s=st.floats(0.001, 5),
    factor=st.floats(0.01, 20),
    rate_hz=st.floats(0.05, 60),
    level=st.integers(1, 300),
    duration_s=st.floats(20, 60),
)
def test_quick_is_a_prefix_of_the_schedule(
    seed: int,
    at_s: float,
    for_s: float,
    factor: float,
    rate_hz: float,
    level: int,
    duration_s: float,
) -> None:
    surge = Surge(
        at_ns=int(at_s * S), for_ns=int(for_s * S), factor=factor, tenants=("chat", "code", "even")
    )
    tenants = [replace(one, rate_hz=rate_hz) for one in FOUR[:3]]
    planned = replace(profile(*tenants, duration_s=duration_s), surges=(surge,))
    quick = planned.quick()
    assert (quick.warmup_ns, quick.duration_ns) == (5 * S, 20 * S)
    first = [row for row in measured(planned, seed, level) if int(str(row[1])) < 20 * S]
    assert measured(quick, seed, level) == first


def test_quick_of_a_trace_is_a_prefix(replayed: Tenant) -> None:
    planned = replace(
        profile(replayed),
        surges=(Surge(at_ns=3 * S, for_ns=2 * S, factor=4, tenants=("replay",)),),
    )
    for level in (100, 40):
        first = [row for row in measured(planned, 7, level) if int(str(row[1])) < 20 * S]
        assert measured(planned.quick(), 7, level) == first
        assert first


@settings(max_examples=25, deadline=None)
@given(lanes=st.integers(1, 9), seed=st.integers(0, 99))
def test_lanes_share_the_schedule_without_loss_or_overlap(lanes: int, seed: int) -> None:
    requests = list(unroll(profile(*FOUR, duration_s=10), seed))
    dealt = [[r for r in requests if lane_of(r.session, lanes) == lane] for lane in range(lanes)]
    assert sum(map(len, dealt)) == len(requests)
    assert sorted((r.tenant, r.ordinal) for lane in dealt for r in lane) == sorted(
        (r.tenant, r.ordinal) for r in requests
    )


def test_lanes_are_about_equally_full() -> None:
    counts = Counter(lane_of(f"chat.{index}", 4) for index in range(8_000))
    assert all(abs(count - 2_000) < 4 * math.sqrt(1_500) for count in counts.values())


def window_counts(planned: Profile, seeds: range, start_s: float, end_s: float) -> list[int]:
    low, high = int(start_s * S), int(end_s * S)
    return [
        sum(low <= int(str(row[1])) < high for row in measured(planned, seed)) for seed in seeds
    ]


@pytest.mark.parametrize("arrival", [Poisson(), Gamma(cv=2), ON_OFF, Constant()])
def test_a_surge_multiplies_the_rate_while_it_lasts_and_not_after(arrival: Arrival) -> None:
    calm = profile(open_loop("chat", 20, arrival), warmup_s=0, duration_s=30)
    surge = Surge(at_ns=10 * S, for_ns=5 * S, factor=6, tenants=("chat",))
    stormy = replace(calm, surges=(surge,))
    seeds = range(80)
    for start_s, end_s, factor in ((0, 10, 1), (10, 15, 6), (15, 30, 1)):
        counts = window_counts(stormy, seeds, start_s, end_s)
        expected = 20 * (end_s - start_s) * factor
        error = np.std(counts, ddof=1) / math.sqrt(len(counts))
        assert abs(np.mean(counts) - expected) <= 4 * error + 1e-9, (start_s, end_s)
    # before the surge nothing changes at all
    before = [row for row in measured(stormy) if int(str(row[1])) < 10 * S]
    same = [row for row in measured(calm) if int(str(row[1])) < 10 * S]
    assert [row[1] for row in before] == [row[1] for row in same]


def test_a_surge_is_the_same_arrivals_on_a_faster_clock() -> None:
    calm = profile(open_loop("chat", 20), warmup_s=0, duration_s=60)
    surge = Surge(at_ns=10 * S, for_ns=5 * S, factor=4, tenants=("chat",))
    stormy = replace(calm, duration_ns=45 * S, surges=(surge,))
    plain = np.array([int(str(row[1])) for row in measured(calm)])
    moved = np.where(
        plain < 10 * S,
        plain,
        np.where(plain < 30 * S, 10 * S + (plain - 10 * S) // 4, plain - 15 * S),
    )
    found = np.array([int(str(row[1])) for row in measured(stormy)])
    assert len(found) == len(moved)
    assert abs(found - moved).max() <= 1


def test_surges_on_each_other_multiply_and_hit_the_named_alone() -> None:
    tenants = (open_loop("a", 50, Constant()), open_loop("b", 50, Constant()))
    surges = (
        Surge(at_ns=2 * S, for_ns=4 * S, factor=2, tenants=("a",)),
        Surge(at_ns=4 * S, for_ns=4 * S, factor=3, tenants=("a",)),
    )
    planned = replace(profile(*tenants, warmup_s=0, duration_s=10), surges=surges)
    rows = measured(planned)
    seconds = Counter((row[0], int(str(row[1])) // (2 * S)) for row in rows)
    assert [seconds["a", k] for k in range(5)] == [100, 200, 600, 300, 100]
    assert [seconds["b", k] for k in range(5)] == [100] * 5
    assert burst_intervals(planned, 7) == {"a": ((2 * S, 8 * S),), "b": ()}


def test_warmup_is_poisson_at_the_mean_rate_without_surges(replayed: Tenant) -> None:
    surge = Surge(at_ns=0, for_ns=S, factor=50, tenants=("chat", "code", "even", "replay"))
    planned = replace(profile(*FOUR[:3], replayed, warmup_s=2_000, duration_s=1), surges=(surge,))
    warm = [r for r in unroll(planned, 7) if r.due_ns is not None and r.due_ns < 2_000 * S]
    assert not any(request.burst for request in warm)
    for tenant in planned.tenants:
        due_ns = np.array([request.due_ns for request in of(warm, tenant.name)])
        expected = tenant.mean_rate_hz * 2_000
        assert abs(len(due_ns) - expected) < 4 * math.sqrt(expected)
        gaps = np.diff(due_ns)
        assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.1)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    factor=st.floats(0.1, 10),
    rate_hz=st.floats(0.1, 100),
    duration_s=st.floats(19, 31),
)
def test_a_request_bursts_exactly_inside_the_intervals(
    seed: int, factor: float, rate_hz: float, duration_s: float
) -> None:
    surge = replace(SURGE, factor=factor)
    tenants = [replace(one, rate_hz=rate_hz) for one in FOUR[:3]]
    planned = replace(profile(*tenants, FOUR[3], duration_s=duration_s), surges=(surge,))
    bursts = burst_intervals(planned, seed)
    assert list(bursts) == ["chat", "code", "even", "batch"]
    assert bursts["batch"] == ()
    end_ns = planned.warmup_ns + planned.duration_ns
    for spans in bursts.values():
        assert all(planned.warmup_ns <= start < end <= end_ns for start, end in spans)
        assert all(one[1] < two[0] for one, two in pairwise(spans))
    for request in unroll(planned, seed):
        due_ns = request.due_ns
        assert due_ns is not None
        inside = any(start <= due_ns < end for start, end in bursts[request.tenant])
        assert request.burst == inside


def test_crowded_seconds_are_bursts_of_models_without_states() -> None:
    planned = profile(open_loop("chat", 3, Gamma(cv=3)))
    requests = list(unroll(planned, 7))
    seconds = Counter(
        request.due_ns // S
        for request in requests
        if request.due_ns is not None and request.due_ns >= 10 * S
    )
    for request in requests:
        assert request.due_ns is not None
        assert request.burst == (seconds[request.due_ns // S] >= 6)
    assert 0 < sum(request.burst for request in requests) < len(requests)
    # a single request is no burst of a slow tenant, and an even one has none at all
    assert burst_intervals(profile(open_loop("slow", 0.3, Constant())), 7) == {"slow": ()}
    assert burst_intervals(profile(open_loop("even", 7.3, Constant())), 7) == {"even": ()}


def test_every_arrival_of_on_off_is_in_its_high_state() -> None:
    planned = profile(open_loop("code", 5, ON_OFF), duration_s=300)
    spans = burst_intervals(planned, 7)["code"]
    assert all(r.burst for r in unroll(planned, 7) if (r.due_ns or 0) >= 10 * S)
    assert sum(end - start for start, end in spans) / (300 * S) == pytest.approx(0.3, abs=0.12)


@pytest.mark.parametrize("level", [30, 100, 250])
def test_the_level_scales_the_rate_and_the_concurrency(level: int) -> None:
    planned = profile(open_loop("chat", 40), closed_loop("batch", 3), duration_s=100)
    expected = 40 * 110 * level / 100
    assert abs(planned_counts(planned, 7, level)["chat"] - expected) < 4 * math.sqrt(expected)
    assert len(loops(planned, 7, level)) == math.ceil(3 * level / 100)


def test_a_trace_is_replayed_as_it_is_thinned_below_and_refused_above(replayed: Tenant) -> None:
    planned = profile(replayed, warmup_s=1)
    assert replayed.trace is not None
    rows = [row for row in replayed.trace.rows() if row.at_ns < 60 * S]
    assert [(row[1], row[4], row[5]) for row in measured(planned)] == [
        (row.at_ns, row.prompt_tokens, row.output_tokens) for row in rows
    ]
    thin = [(row[1], row[4], row[5]) for row in measured(planned, 7, 30)]
    assert set(thin) <= {(row.at_ns, row.prompt_tokens, row.output_tokens) for row in rows}
    assert abs(len(thin) - 0.3 * len(rows)) < 4 * math.sqrt(0.21 * len(rows))
    with pytest.raises(LevelError, match="no more than 100 %"):
        unroll(planned, 7, 101)


def test_a_level_of_nothing_is_refused() -> None:
    for refused in (unroll, loops, planned_counts, burst_intervals, schedule_sha256):
        with pytest.raises(LevelError, match="1 % or more"):
            refused(profile(*FOUR), 7, 0)


def test_closed_loops_have_a_slot_each_with_its_own_lengths_and_ordinals() -> None:
    slots = loops(profile(*FOUR), 7)
    assert [slot.session for slot in slots] == ["batch.slot0", "batch.slot1", "batch.slot2"]
    drawn = [list(islice(slot.requests(), 200)) for slot in slots]
    for requests in drawn:
        assert [request.due_ns for request in requests[:3]] == [0, None, None]
        assert {request.think_ns for request in requests} == {0}
        assert len({request.session for request in requests}) == 1
    assert sorted(r.ordinal for requests in drawn for r in requests) == list(range(600))
    assert drawn[0] == list(islice(slots[0].requests(), 200))
    assert [r.prompt_tokens for r in drawn[0]] != [r.prompt_tokens for r in drawn[1]]
    # more slots leave those that were there as they are, but for their ordinals
    more = list(islice(loops(profile(*FOUR), 7, 200)[0].requests(), 200))
    assert [r.prompt_tokens for r in more] == [r.prompt_tokens for r in drawn[0]]


def test_unrolling_is_lazy() -> None:
    months = profile(open_loop("chat", 0.1), open_loop("code", 0.1, ON_OFF), duration_s=2e7)
    assert len(list(islice(unroll(months, 7), 40_000))) == 40_000


def test_a_level_that_plans_more_than_can_be_unrolled_is_refused() -> None:
    busy = profile(open_loop("chat", 1_000), duration_s=1_000)
    next(unroll(busy, 7, 900))
    with pytest.raises(
        LevelError, match=r"load level 1100 %: about 11,\d{3},\d{3} requests in all"
    ):
        unroll(busy, 7, 1100)


def test_the_schedule_needs_no_network_loop_or_process() -> None:
    code = (
        "import sys, profiles.schedule, profiles.prompt, profiles.summary\n"
        "print(*({'asyncio', 'gevent', 'locust', 'aiohttp', 'uvloop'} & set(sys.modules)))"
    )
    house = Path(__file__).parents[2]
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=house,
        env={"PYTHONPATH": str(house)},
    )
    assert said.stdout.strip() == ""


def test_a_row_behind_the_window_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"2023-11-16 18:15:{second},1,2\n" for second in (10, 11, 12, 40))
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}not a row\n")
    sheet = TraceSheet.model_validate({"file": "t.csv", "format": "azure"})
    trace, _ = survey(sheet, tmp_path, 20 * S)
    tenant = replace(open_loop("chat", 1), rate_hz=None, arrival=None, trace=trace)
    played = list(unroll(profile(tenant, duration_s=20, warmup_s=0), 7))
    assert [one.due_ns for one in played] == [0, S, 2 * S]
