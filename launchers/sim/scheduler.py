"""Continuous batching: which sequences compute how many tokens in the next step, and how long it takes.

The rules are those of vLLM's V1 scheduler. A step has a budget of tokens; running sequences come first (one
token each when decoding, a piece of the prompt when not), then waiting ones are let in. When the KV cache is
full the last of the running, or the one of lowest priority, loses its blocks and later computes them again.
Nothing here reads a clock: times come in as integer ns, and a step says when it ends.
"""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from launchers.sim.kv import Block, KvCache
from launchers.sim.memory import memory_of
from launchers.sim.preset import Preset

Policy = Literal["fcfs", "priority"]


class Generation:
    """One request inside the engine; lower ``priority`` goes first, equals by ``number``.

    ``arrived_ns`` is when the scheduler can see it, which is after the front end's work on it.
    ``output_tokens`` is how many it will produce. ``pending`` tokens are known but not yet in the KV cache:
    1 while decoding. ``finish`` is why it will end; ``owner`` is whoever waits for the tokens, and means nothing
    here.
    """

    __slots__ = (
        "arrived_ns",
        "blocks",
        "cached",
        "computed",
        "finish",
        "first_scheduled_ns",
        "first_token_ns",
        "gone",
        "hashes",
        "last_token_ns",
        "number",
        "output_tokens",
        "owner",
        "pending",
        "preemptions",
        "priority",
        "produced",
        "prompt_tokens",
        "room",
    )

    def __init__(
        self,
        *,
        number: int,
        arrived_ns: int,
        prompt_tokens: int,
        output_tokens: int,
        hashes: tuple[int, ...] = (),
        priority: int = 0,
        finish: str = "length",
        owner: object = None,
    ) -> None:
        self.number = number
        self.arrived_ns = arrived_ns
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.hashes = hashes
        self.priority = priority
        self.finish = finish
        self.owner = owner
        self.pending = prompt_tokens
        self.computed = 0
        self.produced = 0
        self.cached = 0
        self.room = 0
        self.blocks: list[Block] = []
        self.preemptions = 0
        self.gone = False
        self.first_scheduled_ns: int | None = None
        self.first_token_ns: int | None = None
        self.last_token_ns = 0


@dataclass(slots=True, kw_only=True)
class Step:
    """One pass over the batch: ``decoding`` sequences add a token each, ``prefilling`` the stated number.

    ``finish`` fills in the gaps in ns since each decoding sequence's last token: as long as this step for
    ``regular_gaps`` of them, otherwise as listed.
    """

    start_ns: int
    end_ns: int
    decoding: list[Generation]
    prefilling: list[tuple[Generation, int]]
    prompt_tokens: int
    regular_gaps: int = 0
    odd_gaps_ns: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Counts:
    """What the scheduler did since the start."""

    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    steps: int = 0
    busy_ns: int = 0


class Scheduler:
    """The engine without its clock: ``add``, then ``begin`` and ``finish`` steps in turn."""

    def __init__(
        self, preset: Preset, *, gpus: int = 1, seed: int = 0, policy: Policy = "priority"
    ) -> None:
        self.preset = preset
        self.memory = memory_of(preset, gpus)
        self.kv = KvCache(self.memory)
        self.waiting: list[Generation] = []
        self.running: list[Generation] = []
        self.counts = Counts()
        self._gpus = gpus
        self._policy = policy
        self._jitter = random.Random(seed)  # noqa: S311 -- a simulation, not a secret
        self._context_tokens = 0  # in the KV cache of the running sequences

    def add(self, generation: Generation) -> None:
        """Put a new or a preempted sequence into the queue, at its place."""
        insort(self.waiting, generation, key=self._rank)

    def abort(self, generation: Generation) -> None:
        """Forget a sequence that nobody waits for any more; harmless when it is already gone."""
        if generation.gone:
            return
        generation.gone = True
        if generation in self.waiting:
            self.waiting.remove(generation)
        else:
            self.running.remove(generation)
            self._release(generation)

    def begin(self, start_ns: int) -> Step | None:
        """Choose the work of the step that starts at ``start_ns``; None when there is none."""
        limits = self.preset.limits
        step = Step(start_ns=start_ns, end_ns=start_ns, decoding=[], prefilling=[], prompt_tokens=0)
        budget = limits.batched_tokens
        preempted = self.counts.preemptions
        running = self.running
        index = 0
        while index < len(running) and budget > 0:
            generation = running[index]
            if generation.pending == 1 and generation.room and generation.produced:
                generation.room -= 1
                step.decoding.append(generation)
                budget -= 1
                index += 1
                continue
            tokens = min(generation.pending, budget)
            if not self._make_room(generation, tokens, step):
                break  # it was preempted itself, and it was the last
            # a victim that stood before this one moved it forward
            index = running.index(generation, 0, index + 1) + 1
            self._schedule(generation, tokens, step)
            budget = limits.batched_tokens - step.prompt_tokens - len(step.decoding)
        if self.counts.preemptions == preempted:
            self._admit(step, budget)
        if not step.decoding and not step.prefilling:
            return None
        self._price(step)
        return step

    def finish(self, step: Step) -> list[Generation]:
        """End a step and return the sequences that got a token, in the batch's order.

        Those that have produced all their tokens have left the batch; they are the ones that are ``gone``.
        """
        start_ns, end_ns = step.start_ns, step.end_ns
        got: list[Generation] = []
        left = False
        regular = 0
        for generation in step.decoding:
            if generation.gone:
                continue
            if generation.last_token_ns == start_ns:
                regular += 1
            else:
                step.odd_gaps_ns.append(end_ns - generation.last_token_ns)
            generation.computed += 1
            produced = generation.produced + 1
            generation.produced = produced
            generation.last_token_ns = end_ns
            if produced == generation.output_tokens:
                generation.gone = left = True
            got.append(generation)
        step.regular_gaps = regular
        self._context_tokens += len(got)
        for generation, tokens in step.prefilling:
            if generation.gone:
                continue
            self._context_tokens += tokens
            self._publish(generation, tokens)
            generation.computed += tokens
            generation.pending -= tokens
            if generation.pending == 0:
                generation.pending = 1
                generation.produced += 1
                if generation.first_token_ns is None:
                    generation.first_token_ns = end_ns
                else:
                    step.odd_gaps_ns.append(end_ns - generation.last_token_ns)
                generation.last_token_ns = end_ns
                if generation.produced == generation.output_tokens:
                    generation.gone = left = True
                got.append(generation)
        if left:
            for generation in got:
                if generation.gone:
                    self._release(generation)
            self.running = [generation for generation in self.running if not generation.gone]
        self.kv.settle(end_ns)
        return got

    def _rank(self, generation: Generation) -> tuple[int, int]:
        if self._policy == "priority":
            return (generation.priority, generation.number)
        # a preempted sequence was let in earlier than all that wait, so its number puts it first
        return (0, generation.number)

    def _make_room(self, generation: Generation, tokens: int, step: Step) -> bool:
        """Give ``generation`` blocks for ``tokens`` more tokens, at the cost of others if need be.

        False when it had to be preempted itself.
        """
        while not self._extend(generation, tokens):
            victim = (
                self.running[-1] if self._policy == "fcfs" else max(self.running, key=self._rank)
            )
            self._preempt(victim, step)
            if victim is generation:
                return False
        return True

    def _extend(self, generation: Generation, tokens: int) -> bool:
        while generation.room < tokens:
            block = self.kv.take()
            if block is None:
                return False
            generation.blocks.append(block)
            generation.room += self.preset.block_tokens
        return True

    def _preempt(self, victim: Generation, step: Step) -> None:
        self.running.remove(victim)
        # one still at its prompt took what was left of the step, so nobody after it can be in need of room
        if victim in step.decoding:
            step.decoding.remove(victim)
        self._release(victim)
        victim.pending = victim.prompt_tokens + victim.produced
        victim.computed = 0
        victim.room = 0
        victim.preemptions += 1
        self.counts.preemptions += 1
        self.add(victim)

    def _release(self, generation: Generation) -> None:
        self._context_tokens -= generation.computed
        self.kv.give_back(reversed(generation.blocks))
        generation.blocks = []

    def _schedule(self, generation: Generation, tokens: int, step: Step) -> None:
        generation.room -= tokens
        if generation.pending == 1 and generation.produced:
            step.decoding.append(generation)
        else:
            step.prefilling.append((generation, tokens))
            step.prompt_tokens += tokens

    def _admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.preset.limits.sequences:
            generation = self.waiting[0]
            # the last token is always computed, since its output is what is sampled from
            usable = (generation.pending - 1) // self.preset.block_tokens
            blocks = self.kv.reuse(generation.hashes[:usable])
            cached = len(blocks) * self.preset.block_tokens
            generation.blocks = blocks
            generation.room = 0
            tokens = min(generation.pending - cached, budget)
            if not self._extend(generation, tokens):
                self.kv.give_back(reversed(generation.blocks))
                generation.blocks = []
                return
            del self.waiting[0]
            self.running.append(generation)
            generation.pending -= cached
            generation.computed = cached
            self._context_tokens += cached
            if generation.first_scheduled_ns is None:
                generation.first_scheduled_ns = step.start_ns
                generation.cached = cached
                self.counts.prefix_queries += generation.prompt_tokens
                self.counts.prefix_hits += cached
            self._schedule(generation, tokens, step)
            budget -= tokens

    def _publish(self, generation: Generation, tokens: int) -> None:
        """Make the prompt blocks that this step filled findable."""
        size = self.preset.block_tokens
        hashes: Sequence[int] = generation.hashes
        first = generation.computed // size
        last = min((generation.computed + tokens) // size, len(hashes))
        for at in range(first, last):
            self.kv.publish(generation.blocks[at], hashes[at])

    def _price(self, step: Step) -> None:
        timing = self.preset.timing
        work_ns = (
            timing.base_ns
            + timing.prefill_token_ns * step.prompt_tokens
            + timing.sequence_ns * len(step.decoding)
            + timing.context_token_ns * self._context_tokens
        ) / self._gpus + timing.sync_ns * (self._gpus - 1)
        jitter = 1.0 + timing.jitter_share * (2.0 * self._jitter.random() - 1.0)
        step.end_ns = step.start_ns + max(1, round(work_ns * jitter))
        self.counts.steps += 1
        self.counts.busy_ns += step.end_ns - step.start_ns
