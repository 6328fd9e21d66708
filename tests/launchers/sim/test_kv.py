from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from launchers.sim.kv import Block, KvCache, chain
from launchers.sim.memory import memory_of

from .models import small


def cache(blocks: int) -> KvCache:
    return KvCache(memory_of(small(blocks), 1))


def take(kv: KvCache, count: int) -> list[Block]:
    taken = [kv.take() for _ in range(count)]
    assert None not in taken
    return [block for block in taken if block is not None]


def test_a_known_beginning_is_reused_and_counted_once() -> None:
    kv = cache(4)
    first = take(kv, 2)
    for block, known in zip(first, (11, 12), strict=True):
        kv.publish(block, known)
    again = kv.reuse((11, 12, 13))
    assert again == first
    assert kv.used == 2
    kv.give_back(reversed(first))
    assert kv.used == 2
    kv.give_back(reversed(again))
    assert (kv.used, kv.kept) == (0, 2)
    assert kv.usage_share == 0


def test_idle_blocks_are_evicted_oldest_first_and_the_tail_of_a_prefix_before_its_head() -> None:
    kv = cache(3)
    blocks = take(kv, 3)
    for block, known in zip(blocks, (1, 2, 3), strict=True):
        kv.publish(block, known)
    kv.give_back(reversed(blocks))
    take(kv, 1)
    assert len(kv.reuse((1, 2, 3))) == 2


def test_a_full_cache_gives_none() -> None:
    kv = cache(2)
    take(kv, 2)
    assert kv.take() is None


def test_a_twin_of_a_known_block_is_just_freed() -> None:
    kv = cache(2)
    one, two = take(kv, 2)
    kv.publish(one, 7)
    kv.publish(two, 7)
    kv.give_back([two])
    assert (kv.used, kv.kept) == (1, 0)
    assert kv.reuse((7,)) == [one]


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.integers(1, 5))
def test_chains_agree_exactly_as_far_as_the_texts_do(
    left: list[str], right: list[str], size: int
) -> None:
    alike = 0
    for one, two in zip(left, right, strict=False):
        if one != two:
            break
        alike += 1
    agree = [one == two for one, two in zip(chain(left, size), chain(right, size), strict=False)]
    shorter = min(len(left), len(right)) // size
    assert agree == [at < alike // size for at in range(shorter)]
