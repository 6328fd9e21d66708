from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchers.sim.kv import chain
from launchers.sim.preset import DYNAMIC, STATIC
from launchers.sim.scheduler import Generation, Policy, Scheduler

from .models import MS, STEADY, drive, generation, small


def decode_ns(batch: int) -> int:
    """The length of one step in which ``batch`` sequences decode."""
    scheduler = Scheduler(STEADY)
    for number in range(batch):
        scheduler.add(generation(number, 16, 50))
    ends = [end for end, got in drive(scheduler) if len(got) == batch]
    return ends[5] - ends[4]


def test_a_bigger_batch_slows_every_step_but_less_than_it_adds() -> None:
    one, ten, hundred = decode_ns(1), decode_ns(10), decode_ns(100)
    assert one < ten < hundred
    assert hundred < 10 * one


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_step_costs_what_its_formula_says(gpus: int) -> None:
    scheduler = Scheduler(STEADY, gpus=gpus)
    timing = STEADY.timing
    scheduler.add(generation(0, 3000, 3))
    scheduler.add(generation(1, 500, 3))
    lengths = []
    now_ns = 0
    while (step := scheduler.begin(now_ns)) is not None:
        scheduler.finish(step)
        lengths.append(step.end_ns - now_ns)
        now_ns = step.end_ns
    prefill = timing.base_ns + 3500 * timing.prefill_token_ns
    decode = [
        timing.base_ns + 2 * timing.sequence_ns + context * timing.context_token_ns
        for context in (3500, 3502)
    ]
    sync = timing.sync_ns * (gpus - 1)
    assert lengths == [round(work / gpus + sync) for work in (prefill, *decode)]


def test_light_load_is_plausible_for_a_small_model() -> None:
    scheduler = Scheduler(STEADY)
    scheduler.add(generation(0, 500, 20))
    ends = [end for end, got in drive(scheduler) if got]
    assert 40 * MS - STEADY.timing.intake_ns <= ends[0] <= 80 * MS - STEADY.timing.intake_ns
    assert 10 * MS <= ends[1] - ends[0] <= 15 * MS


def test_prompts_are_cut_to_the_step_and_share_it_with_decoding() -> None:
    scheduler = Scheduler(small(256, batched_tokens=100))
    scheduler.add(generation(0, 10, 50))
    first = scheduler.begin(0)
    assert first is not None
    scheduler.finish(first)
    scheduler.add(generation(1, 250, 1))
    pieces: list[int] = []
    for _ in range(3):
        step = scheduler.begin(0)
        assert step is not None
        assert [one.number for one in step.decoding] == [0]
        pieces += [tokens for _, tokens in step.prefilling]
        scheduler.finish(step)
    assert pieces == [99, 99, 52]


def test_no_more_sequences_run_than_allowed() -> None:
    scheduler = Scheduler(small(64, sequences=2))
    for number in range(5):
        scheduler.add(generation(number, 16, 3))
    assert scheduler.begin(0) is not None
    assert (len(scheduler.running), len(scheduler.waiting)) == (2, 3)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_full_cache_preempts_and_everyone_still_gets_all_tokens(policy: Policy) -> None:
    scheduler = Scheduler(small(8), policy=policy)
    generations = [generation(number, 30, 40) for number in range(4)]
    for one in generations:
        scheduler.add(one)
    steps = drive(scheduler)
    assert scheduler.counts.preemptions > 0
    assert sum(one.preemptions for one in generations) == scheduler.counts.preemptions
    for one in generations:
        assert sum(got.count(one.number) for _, got in steps) == 40
    assert scheduler.kv.used == 0


def test_the_victim_is_the_last_of_the_running() -> None:
    scheduler = Scheduler(small(6), policy="fcfs")
    first, last = generation(0, 30, 40), generation(1, 30, 40)
    scheduler.add(first)
    scheduler.add(last)
    drive(scheduler)
    assert first.preemptions == 0
    assert last.preemptions > 0


def test_a_shared_beginning_is_computed_once() -> None:
    words = [f"w{at}" for at in range(3300)]

    def first_token_ns(second: list[str]) -> int:
        scheduler = Scheduler(STEADY)
        scheduler.add(generation(0, 3300, 1, hashes=chain(words, 16)))
        (end, _), *_ = drive(scheduler)
        other = generation(1, len(second), 1, hashes=chain(second, 16))
        scheduler.add(other)
        drive(scheduler, end)
        assert other.first_token_ns is not None
        return other.first_token_ns - end

    cold = first_token_ns([f"v{at}" for at in range(3300)])
    warm = first_token_ns([*words[:3200], *(f"v{at}" for at in range(100))])
    assert warm < cold / 2


def test_a_prompt_known_in_full_still_computes_its_last_token() -> None:
    words = ["w"] * 32
    scheduler = Scheduler(STEADY)
    for number in range(2):
        scheduler.add(generation(number, 32, 1, hashes=chain(words, 16)))
        drive(scheduler)
    assert scheduler.counts.prefix_hits == 16
    assert scheduler.counts.prefix_queries == 64


def test_lower_priority_numbers_go_first_and_lose_their_blocks_last() -> None:
    scheduler = Scheduler(small(6, sequences=1))
    for number, priority in enumerate((5, 0, -1, 5)):
        scheduler.add(generation(number, 16, 2, priority=priority))
    finished = [got[0] for _, got in drive(scheduler)]
    assert finished[::2] == [2, 1, 0, 3]

    scheduler = Scheduler(small(6))
    poor, rich = generation(0, 30, 40, priority=9), generation(1, 30, 40, priority=0)
    scheduler.add(poor)
    scheduler.add(rich)
    drive(scheduler)
    assert poor.preemptions > 0
    assert rich.preemptions == 0


def test_a_victim_gets_no_token_in_the_step_that_preempts_it() -> None:
    scheduler = Scheduler(small(4))
    poor, rich = generation(0, 20, 30, priority=9), generation(1, 30, 20, priority=0)
    scheduler.add(poor)
    first = scheduler.begin(0)
    assert first is not None
    scheduler.finish(first)
    scheduler.add(rich)  # now the poor one comes before it in the batch
    now_ns = first.end_ns
    while not scheduler.counts.preemptions:
        before = poor.produced
        step = scheduler.begin(now_ns)
        assert step is not None
        got = scheduler.finish(step)
        now_ns = step.end_ns
    assert got == [rich]
    assert poor.produced == before
    drive(scheduler, now_ns)
    assert (poor.produced, rich.produced) == (30, 20)


def test_fcfs_does_not_look_at_priorities() -> None:
    scheduler = Scheduler(small(6, sequences=1), policy="fcfs")
    for number, priority in enumerate((5, 0)):
        scheduler.add(generation(number, 16, 1, priority=priority))
    assert [got for _, got in drive(scheduler)] == [[0], [1]]


def test_the_same_seed_gives_the_same_times_and_another_does_not() -> None:
    def ends(seed: int) -> list[tuple[int, list[int]]]:
        scheduler = Scheduler(STATIC, seed=seed)
        for number in range(5):
            scheduler.add(generation(number, 100 * number + 1, 30))
        return drive(scheduler)

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)


def test_more_gpus_are_faster() -> None:
    def last_ns(gpus: int) -> int:
        scheduler = Scheduler(STEADY, gpus=gpus)
        scheduler.add(generation(0, 500, 20))
        return drive(scheduler)[-1][0]

    assert last_ns(4) < last_ns(2) < last_ns(1)


def test_a_burst_raises_memory_on_demand_and_not_when_preallocated() -> None:
    used: dict[str, tuple[int, int]] = {}
    for preset in (STATIC, DYNAMIC):
        scheduler = Scheduler(preset)
        before = scheduler.memory.used_bytes
        for number in range(60):
            scheduler.add(generation(number, 1200, 400))
        peak = before
        while (step := scheduler.begin(0)) is not None:
            scheduler.finish(step)
            peak = max(peak, scheduler.memory.used_bytes)
        used[preset.name] = (before, peak)
    assert used["static"][0] == used["static"][1]
    assert used["dynamic"][1] > 1.3 * used["dynamic"][0]


@pytest.mark.parametrize("when", ["waiting", "running", "in a step"])
def test_an_aborted_request_leaves_nothing_behind(when: str) -> None:
    scheduler = Scheduler(small(16, sequences=1))
    first, second = generation(0, 40, 10), generation(1, 40, 10)
    scheduler.add(first)
    scheduler.add(second)
    step = scheduler.begin(0)
    assert step is not None
    if when == "waiting":
        scheduler.abort(second)
    elif when == "in a step":
        scheduler.abort(first)
    got = scheduler.finish(step)
    if when == "running":
        scheduler.abort(first)
    scheduler.abort(first if when != "waiting" else second)  # once more does no harm
    assert (first in got) == (when != "in a step")
    drive(scheduler, step.end_ns)
    assert second.produced == (0 if when == "waiting" else 10)
    assert scheduler.kv.used == 0


@st.composite
def loads(draw: st.DrawFn) -> list[Generation]:
    words = [f"w{at}" for at in range(200)]
    made = []
    for number in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, 150))
        made.append(
            generation(
                number,
                prompt,
                draw(st.integers(1, 60)),
                priority=draw(st.integers(-1, 1)),
                hashes=chain(words[:prompt], 16) if draw(st.booleans()) else (),
            )
        )
    return made


@settings(max_examples=60, deadline=None)
@given(loads(), st.integers(14, 40), st.integers(1, 64), st.sampled_from(["fcfs", "priority"]))
def test_whatever_comes_every_token_comes_out_once_and_the_books_balance(
    generations: list[Generation], blocks: int, budget: int, policy: Policy
) -> None:
    scheduler = Scheduler(small(blocks, batched_tokens=budget), policy=policy)
    for one in generations:
        scheduler.add(one)
    produced = dict.fromkeys(range(len(generations)), 0)
    while scheduler.waiting or scheduler.running:
        waiting, preemptions = len(scheduler.waiting), scheduler.counts.preemptions
        step = scheduler.begin(0)
        assert step is not None
        preempted = scheduler.counts.preemptions - preemptions
        # nobody is let in by a step that had to throw somebody out
        assert not preempted or len(scheduler.waiting) == waiting + preempted
        batch = [*step.decoding, *(one for one, _ in step.prefilling)]
        assert len(set(batch)) == len(batch)
        assert set(batch) <= set(scheduler.running)
        assert step.prompt_tokens + len(step.decoding) <= budget
        assert step.prompt_tokens == sum(tokens for _, tokens in step.prefilling)
        assert step.end_ns > step.start_ns
        kv = scheduler.kv
        assert kv.used + kv.kept <= scheduler.memory.capacity_blocks <= blocks
        for one in scheduler.finish(step):
            produced[one.number] += 1
        for one in scheduler.running:
            assert one.computed + one.room <= len(one.blocks) * 16
    assert list(produced.values()) == [one.output_tokens for one in generations]
    assert all(one.gone for one in generations)
    assert scheduler.kv.used == 0
    assert scheduler.waiting == scheduler.running == []


def test_gaps_between_tokens_are_told_apart() -> None:
    scheduler = Scheduler(replace(STEADY, limits=replace(STEADY.limits, batched_tokens=64)))
    scheduler.add(generation(0, 10, 3))
    scheduler.add(generation(1, 10, 3))
    regular = odd = 0
    now_ns = 0
    while (step := scheduler.begin(now_ns)) is not None:
        scheduler.finish(step)
        regular += step.regular_gaps
        odd += len(step.odd_gaps_ns)
        now_ns = step.end_ns + 5  # an idle instant makes every gap longer than its step
    assert (regular, odd) == (0, 4)
