"""The presets under the catalogue's bursts: what a first run without a GPU is meant to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from launchers.sim.preset import DYNAMIC, GIB, PRESETS, STATIC, Preset
from launchers.sim.scheduler import Scheduler
from profiles.profile import read_profile
from profiles.schedule import unroll

from .models import MS, generation

PROFILE = Path(__file__).parents[3] / "profiles" / "catalogue" / "bursty-multitenant.yaml"


@dataclass(frozen=True, slots=True)
class Seen:
    ttft_p99_ns: int
    used_first_bytes: int
    used_peak_bytes: int
    kv_peak_share: float
    waiting_peak: int


def replay(preset: Preset) -> Seen:
    """The open-loop tenants of the catalogue's bursty profile, --quick, on a clock of its own."""
    profile = read_profile(PROFILE)[0].quick()
    scheduler = Scheduler(preset)
    planned = list(unroll(profile, profile.seed))
    requests = [
        generation(number, one.prompt_tokens, one.output_tokens)
        for number, one in enumerate(planned)
    ]
    for one, request in zip(planned, requests, strict=True):
        assert one.due_ns is not None
        request.arrived_ns = one.due_ns + preset.timing.intake_ns
    memory = scheduler.memory
    now_ns = sent = waiting = 0
    first = peak = memory.used_bytes
    kv = 0.0
    while sent < len(requests) or scheduler.running or scheduler.waiting:
        if not scheduler.running and not scheduler.waiting:
            now_ns = max(now_ns, requests[sent].arrived_ns)
        while sent < len(requests) and requests[sent].arrived_ns <= now_ns:
            scheduler.add(requests[sent])
            sent += 1
        step = scheduler.begin(now_ns)
        assert step is not None
        kv = max(kv, scheduler.kv.usage_share)
        peak = max(peak, memory.used_bytes)
        waiting = max(waiting, len(scheduler.waiting))
        scheduler.finish(step)
        now_ns = step.end_ns
    waits = []
    for request in requests:
        assert request.first_token_ns is not None
        if request.arrived_ns >= profile.warmup_ns:
            waits.append(request.first_token_ns - request.arrived_ns + preset.timing.intake_ns)
    return Seen(sorted(waits)[len(waits) * 99 // 100], first, peak, kv, waiting)


def test_static_rides_out_the_bursts_in_flat_memory() -> None:
    seen = replay(STATIC)
    assert seen.ttft_p99_ns < 500 * MS
    assert seen.used_first_bytes == seen.used_peak_bytes
    assert seen.kv_peak_share > 0.6
    assert seen.waiting_peak > 5


def test_dynamic_grows_by_half_in_the_bursts() -> None:
    seen = replay(DYNAMIC)
    reserved = DYNAMIC.card.reserved_bytes
    assert 11 * GIB < seen.used_first_bytes + reserved < 13 * GIB
    assert 20 * GIB < seen.used_peak_bytes + reserved < 24 * GIB


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_preset_says_that_its_card_is_simulated(preset: Preset) -> None:
    assert preset.card.name.startswith("simulated ")
