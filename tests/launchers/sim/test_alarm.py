from __future__ import annotations

import asyncio
import time

from launchers.sim.alarm import Alarm

MS = 1_000_000


async def test_it_rings_once_never_early_and_at_the_last_instant_set() -> None:
    rang: list[int] = []
    alarm = Alarm(asyncio.get_running_loop(), lambda: rang.append(time.monotonic_ns()))
    at_ns = time.monotonic_ns() + 60 * MS
    alarm.set(at_ns - 50 * MS)
    alarm.set(at_ns)
    await asyncio.sleep(0.15)
    assert len(rang) == 1
    assert rang[0] >= at_ns
    alarm.close()


async def test_a_past_instant_rings_at_once() -> None:
    rang = asyncio.Event()
    alarm = Alarm(asyncio.get_running_loop(), rang.set)
    for past_ns in (time.monotonic_ns() - MS, 0):
        rang.clear()
        alarm.set(past_ns)
        await asyncio.wait_for(rang.wait(), 5)
    alarm.close()


async def test_a_closed_alarm_is_silent() -> None:
    rang: list[None] = []
    alarm = Alarm(asyncio.get_running_loop(), lambda: rang.append(None))
    alarm.set(time.monotonic_ns() + 20 * MS)
    alarm.close()
    await asyncio.sleep(0.05)
    assert rang == []
