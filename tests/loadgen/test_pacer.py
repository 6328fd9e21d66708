from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns

import pytest

from loadgen.generator import clock, pacer
from loadgen.generator.clock import LoopTimer, TimerFd
from loadgen.generator.health import EVERY_NS, Host, Probe, between, look
from loadgen.generator.pacer import LEAD_NS, Pacer

MS = 1_000_000


class HandAlarm:
    """An alarm that the test rings."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.armed: list[int] = []

    def arm(self, at_ns: int) -> None:
        self.armed.append(at_ns)

    def close(self) -> None:
        self.armed.clear()


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> list[HandAlarm]:
    made: list[HandAlarm] = []

    def make(_: object, wake: Callable[[], None]) -> HandAlarm:
        made.append(HandAlarm(wake))
        return made[-1]

    monkeypatch.setattr(pacer, "alarm", make)
    monkeypatch.setattr("loadgen.generator.health.alarm", make)
    return made


def set_clock(monkeypatch: pytest.MonkeyPatch, *readings_ns: int) -> None:
    readings = iter(readings_ns)
    monkeypatch.setattr(pacer, "monotonic_ns", lambda: next(readings))


async def test_it_wakes_early_spins_and_fires_at_the_instant(
    hand: list[HandAlarm], monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[int] = []
    paced = Pacer(asyncio.get_running_loop(), fired.append)
    paced.arm(50 * MS)
    assert hand[0].armed == [50 * MS - LEAD_NS]
    set_clock(monkeypatch, 50 * MS - 70_000, 50 * MS - 1, 50 * MS + 5)
    hand[0].wake()
    assert fired == [50 * MS + 5]


async def test_a_timer_that_wakes_far_too_early_is_armed_again(
    hand: list[HandAlarm], monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[int] = []
    paced = Pacer(asyncio.get_running_loop(), fired.append)
    paced.arm(50 * MS)
    set_clock(monkeypatch, 48 * MS)
    hand[0].wake()
    assert fired == []
    assert hand[0].armed == [50 * MS - LEAD_NS] * 2


async def test_a_resting_pacer_does_not_fire(hand: list[HandAlarm]) -> None:
    fired: list[int] = []
    paced = Pacer(asyncio.get_running_loop(), fired.append)
    paced.arm(50 * MS)
    paced.rest()
    hand[0].wake()
    assert fired == []


@pytest.mark.parametrize("kind", [TimerFd, LoopTimer])
async def test_an_alarm_never_rings_early_and_can_be_moved(
    kind: type[TimerFd | LoopTimer],
) -> None:
    rung: asyncio.Queue[int] = asyncio.Queue()
    alarm = kind(asyncio.get_running_loop(), lambda: rung.put_nowait(monotonic_ns()))
    far_ns = monotonic_ns() + 60_000 * MS
    alarm.arm(far_ns)
    due_ns = monotonic_ns() + 20 * MS
    alarm.arm(due_ns)
    # event loops may round a timer down by the clock's resolution
    assert await rung.get() >= due_ns - MS
    alarm.arm(1)
    await rung.get()
    alarm.arm(monotonic_ns() + 5 * MS)
    alarm.close()
    await asyncio.sleep(0.02)
    assert rung.empty()


async def test_without_timerfd_the_loops_own_timer_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> TimerFd:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(clock, "TimerFd", none)
    alarm = clock.alarm(asyncio.get_running_loop(), lambda: None)
    assert isinstance(alarm, LoopTimer)


async def test_one_long_delay_is_owed_to_every_wake_up_it_covers(
    hand: list[HandAlarm], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe(asyncio.get_running_loop(), 1000 * MS)
    assert hand[0].armed == [1000 * MS]
    late_ns = 1000 * MS + 2 * EVERY_NS + 5
    monkeypatch.setattr("loadgen.generator.health.monotonic_ns", lambda: late_ns)
    hand[0].wake()
    assert probe.take() == (2 * EVERY_NS + 5, EVERY_NS + 5, 5)
    assert hand[0].armed[-1] == 1000 * MS + 3 * EVERY_NS
    assert probe.take() == ()


def test_the_host_is_told_between_two_looks() -> None:
    before = Host(run_queue_ns=100, stolen=5, ticks=1000)
    after = Host(run_queue_ns=350, stolen=15, ticks=1100)
    assert between(before, after) == (250, 0.1)
    nothing = Host(run_queue_ns=None, stolen=None, ticks=None)
    assert between(before, nothing) == (None, None)
    assert look().ticks is not None
