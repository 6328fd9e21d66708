"""The engine on a clock and an alarm that the test holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from launchers.sim.engine import Engine
from launchers.sim.metrics import Metrics
from launchers.sim.preset import FAST
from launchers.sim.scheduler import Generation, Scheduler

from .models import MS

STEP_NS = FAST.timing.base_ns


class World:
    """A clock that stands still until told, and the one alarm in it."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS
        self.at_ns: int | None = None
        self._ring: Callable[[], None] | None = None
        self.scheduler = Scheduler(FAST)
        self.metrics = Metrics(self.scheduler, model="m")
        self.engine = Engine(
            self.scheduler, self.metrics, wake=self._wake, clock=lambda: self.now_ns
        )

    def _wake(self, ring: Callable[[], None]) -> World:
        self._ring = ring
        return self

    def set(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def close(self) -> None:
        self._ring = None

    @property
    def resting(self) -> bool:
        return self.at_ns is None

    @property
    def due_ns(self) -> int:
        assert self.at_ns is not None
        return self.at_ns

    def ring(self, late_ns: int = 0) -> None:
        """Let the time of the alarm come, or pass."""
        assert self.at_ns is not None
        assert self._ring is not None
        self.now_ns = max(self.now_ns, self.at_ns + late_ns)
        self.at_ns = None
        self._ring()

    def submit(self, tokens: int, owner: Owner | None = None) -> Generation:
        made = Generation(
            number=self.now_ns, arrived_ns=self.now_ns, prompt_tokens=1, output_tokens=tokens
        )
        made.owner = owner or Owner(self)
        self.engine.submit(made)
        return made


class Owner:
    def __init__(self, world: World) -> None:
        self.world = world
        self.tokens: list[tuple[int, bool]] = []

    def token(self, *, last: bool) -> None:
        self.tokens.append((self.world.now_ns, last))

    def ping(self) -> bool:
        return False


def test_an_idle_engine_starts_at_the_arrival_and_rests_when_done() -> None:
    world = World()
    owner = Owner(world)
    made = world.submit(2, owner)
    assert world.due_ns == made.arrived_ns + STEP_NS + FAST.timing.prefill_token_ns
    world.ring()
    world.ring()
    assert [last for _, last in owner.tokens] == [False, True]
    assert world.resting
    assert world.metrics.finished["length"] == 1


def test_a_late_wake_up_delays_its_own_tokens_and_no_other_step() -> None:
    world = World()
    made = world.submit(3)
    world.ring(late_ns=MS // 2)
    first_ns = made.last_token_ns
    due_ns = world.due_ns
    assert due_ns - first_ns < 1.1 * STEP_NS
    world.ring()
    assert made.last_token_ns == due_ns
    assert world.metrics.lag_worst_ns == MS // 2


def test_what_comes_after_a_step_should_have_begun_waits_for_the_next() -> None:
    world = World()
    first = world.submit(5)
    world.now_ns = world.due_ns + MS // 2  # the wake-up is late, and meanwhile:
    second = world.submit(1)
    assert world.engine.waiting == 1
    world.ring()
    scheduled_ns = [second.first_scheduled_ns]
    world.ring()
    scheduled_ns.append(second.first_scheduled_ns)
    assert scheduled_ns[0] is None
    assert scheduled_ns[1] is not None
    assert scheduled_ns[1] >= second.arrived_ns
    assert first.produced == 2


def test_a_simulation_that_falls_a_second_behind_gives_the_time_up() -> None:
    world = World()
    world.submit(5)
    world.ring(late_ns=1_500 * MS)
    assert world.metrics.resyncs == 1
    assert world.due_ns > world.now_ns
    world.ring()
    assert world.metrics.resyncs == 1


def test_an_early_ring_does_nothing() -> None:
    world = World()
    made = world.submit(2)
    due_ns = world.due_ns
    assert world._ring is not None
    world._ring()
    assert made.produced == 0
    assert world.due_ns == due_ns


@pytest.mark.parametrize("when", ["arrived", "running", "done"])
def test_an_abort_counts_once_and_the_rest_goes_on(when: str) -> None:
    world = World()
    owner = Owner(world)
    first = world.submit(4)
    world.now_ns += 1
    second = world.submit(4, owner)
    if when != "arrived":
        world.ring()
        world.ring()
    if when == "done":
        while not world.resting:
            world.ring()
    world.engine.abort(second)
    world.engine.abort(second)
    while not world.resting:
        world.ring()
    assert first.produced == 4
    assert len(owner.tokens) == {"arrived": 0, "running": 1, "done": 4}[when]
    assert world.metrics.finished["abort"] == (when != "done")
    assert world.scheduler.kv.used == 0
    assert world.engine.waiting == 0


def test_the_busy_share_looks_back_a_second() -> None:
    world = World()
    world.submit(500)
    while not world.resting:
        world.ring()
    assert 0.45 < world.engine.busy_share(world.now_ns) < 0.55
    assert world.engine.busy_share(world.now_ns + 2_000 * MS) == 0


def test_an_idle_engine_still_gives_memory_back() -> None:
    world = World()
    settled: list[int] = []
    world.scheduler.memory.settle = lambda now_ns, blocks: settled.append(now_ns)  # type: ignore[method-assign]
    world.engine.settle()
    assert settled == [world.now_ns]
    world.submit(1)
    world.engine.settle()
    assert settled == [world.now_ns]
