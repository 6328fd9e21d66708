from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from launchers.sim.memory import GrowingMemory, memory_of
from launchers.sim.preset import DYNAMIC, GIB, PRESETS, STATIC, Growing

S = 1_000_000_000


def test_preallocated_memory_is_flat_and_at_its_share() -> None:
    memory = memory_of(STATIC, 1)
    used = memory.used_bytes
    assert used + STATIC.card.reserved_bytes == int(0.80 * 24 * GIB)
    assert not memory.grow()
    memory.settle(100 * S, 0)
    assert memory.used_bytes == used
    assert memory.capacity_blocks == memory.ceiling_blocks


def test_growing_memory_rises_by_segments_to_its_share() -> None:
    memory = memory_of(DYNAMIC, 1)
    policy = DYNAMIC.memory
    assert isinstance(policy, Growing)
    seen = [memory.used_bytes]
    while memory.grow():
        seen.append(memory.used_bytes)
    assert len(seen) > 10
    assert {after - before for before, after in pairwise(seen)} == {policy.segment_bytes}
    most = int(policy.share * DYNAMIC.card.total_bytes)
    assert most - policy.segment_bytes < seen[-1] + DYNAMIC.card.reserved_bytes <= most
    assert memory.capacity_blocks == memory.ceiling_blocks


def test_a_segment_goes_back_only_after_it_lay_idle_long_enough() -> None:
    preset = replace(DYNAMIC, memory=replace(_growing(), release_after_ns=10 * S))
    memory = memory_of(preset, 1)
    first = memory.capacity_blocks
    memory.grow()
    grown = memory.used_bytes
    memory.settle(5 * S, first + 1)  # still needs the segment
    memory.settle(14 * S, first)
    assert memory.used_bytes == grown
    memory.settle(15 * S, first)
    assert memory.used_bytes < grown
    assert memory.capacity_blocks == first


def test_without_a_release_time_memory_is_a_ratchet() -> None:
    memory = memory_of(replace(DYNAMIC, memory=replace(_growing(), release_after_ns=None)), 1)
    memory.grow()
    used = memory.used_bytes
    memory.settle(10**6 * S, 0)
    assert memory.used_bytes == used


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_more_gpus_hold_more_and_a_preset_holds_its_longest_context(preset: object) -> None:
    assert preset in PRESETS.values()
    one, two = memory_of(preset, 1), memory_of(preset, 2)  # type: ignore[arg-type]
    assert two.ceiling_blocks > 2 * one.ceiling_blocks


def test_a_cache_too_small_for_one_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="one sequence of 1000000 tokens needs 62500"):
        memory_of(replace(STATIC, limits=replace(STATIC.limits, context_tokens=1_000_000)), 1)


def _growing() -> Growing:
    assert isinstance(DYNAMIC.memory, Growing)
    assert isinstance(memory_of(DYNAMIC, 1), GrowingMemory)
    return DYNAMIC.memory
