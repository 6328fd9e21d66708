"""Small engines and a driver that steps them on a clock of its own."""

from __future__ import annotations

from dataclasses import replace

from launchers.sim.preset import FAST, STATIC, Growing, Preset
from launchers.sim.scheduler import Generation, Scheduler

KIB = 1024
MS = 1_000_000


def small(blocks: int, *, context_tokens: int | None = None, **limits: int) -> Preset:
    """A preset whose preallocated KV cache holds ``blocks`` blocks of 16 tokens, with no jitter."""
    share = FAST.memory
    assert not isinstance(share, Growing)
    used = int(FAST.card.total_bytes * share.share) - FAST.card.reserved_bytes
    kept = used - FAST.weights_bytes - blocks * 16 * FAST.kv_token_bytes
    context = blocks * 16 if context_tokens is None else context_tokens
    return replace(
        FAST,
        overhead_bytes=kept,
        limits=replace(FAST.limits, context_tokens=context, **limits),
    )


STEADY = replace(STATIC, timing=replace(STATIC.timing, jitter_share=0.0))


def generation(number: int, prompt: int, output: int, **options: object) -> Generation:
    return Generation(
        number=number,
        arrived_ns=0,
        prompt_tokens=prompt,
        output_tokens=output,
        **options,  # type: ignore[arg-type]
    )


def drive(scheduler: Scheduler, start_ns: int = 0) -> list[tuple[int, list[int]]]:
    """Step until nothing is left: (end, numbers that got a token) of every step."""
    steps: list[tuple[int, list[int]]] = []
    now_ns = start_ns
    while (step := scheduler.begin(now_ns)) is not None:
        got = scheduler.finish(step)
        now_ns = step.end_ns
        steps.append((now_ns, [one.number for one in got]))
        assert len(steps) < 100_000, "the batch makes no progress"
    return steps
