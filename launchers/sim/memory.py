"""The memory of the simulated GPUs under the two policies: preallocated, or grown on demand."""

from __future__ import annotations

from typing import Protocol

from launchers.sim.preset import Growing, Preallocated, Preset


class Memory(Protocol):
    """How many KV blocks there is room for, and what that makes of every GPU's memory.

    ``used_bytes`` is per GPU and holds the engine's share; the driver's reserve is beside it.
    """

    ceiling_blocks: int
    capacity_blocks: int

    @property
    def used_bytes(self) -> int:
        """Bytes that the engine holds on each GPU now."""
        ...

    def grow(self) -> bool:
        """Make room for more blocks; False when there is no more."""
        ...

    def settle(self, now_ns: int, blocks: int) -> None:
        """Let time pass at ``blocks`` in use: a policy may give memory back here."""
        ...


def memory_of(preset: Preset, gpus: int) -> Memory:
    """The memory of ``preset`` on ``gpus`` GPUs.

    Raises ValueError when the KV cache could not hold one sequence of the longest context.
    """
    fixed_bytes = preset.weights_bytes // gpus + preset.overhead_bytes
    block_bytes = preset.kv_token_bytes * preset.block_tokens // gpus
    match preset.memory:
        case Preallocated():
            memory: Memory = PreallocatedMemory(preset, fixed_bytes, block_bytes, preset.memory)
        case Growing():
            memory = GrowingMemory(preset, fixed_bytes, block_bytes, preset.memory)
    needed_blocks = -(-preset.limits.context_tokens // preset.block_tokens)
    if memory.ceiling_blocks < needed_blocks:
        raise ValueError(
            f"preset {preset.name}: the KV cache has {memory.ceiling_blocks} blocks,"
            f" and one sequence of {preset.limits.context_tokens} tokens needs {needed_blocks}"
        )
    return memory


class PreallocatedMemory:
    """Takes its whole share at start; what lies beyond weights and overhead is KV blocks."""

    def __init__(
        self, preset: Preset, fixed_bytes: int, block_bytes: int, policy: Preallocated
    ) -> None:
        self.used_bytes = int(preset.card.total_bytes * policy.share) - preset.card.reserved_bytes
        self.ceiling_blocks = max(0, self.used_bytes - fixed_bytes) // block_bytes
        self.capacity_blocks = self.ceiling_blocks

    def grow(self) -> bool:
        """Nothing is left to take."""
        return False

    def settle(self, now_ns: int, blocks: int) -> None:
        """Nothing moves."""


class GrowingMemory:
    """Takes a segment when the blocks run out, and gives the last one back after it lay idle long enough."""

    def __init__(self, preset: Preset, fixed_bytes: int, block_bytes: int, policy: Growing) -> None:
        self._fixed_bytes = fixed_bytes
        self._block_bytes = block_bytes
        self._segment_bytes = policy.segment_bytes
        self._first_bytes = policy.first_bytes
        self._useful_share = 1.0 - policy.waste_share
        self._release_after_ns = policy.release_after_ns
        room_bytes = (
            int(preset.card.total_bytes * policy.share) - preset.card.reserved_bytes - fixed_bytes
        )
        self._segments_most = max(0, room_bytes - policy.first_bytes) // policy.segment_bytes
        self._segments = 0
        self._needed_ns = 0
        self.ceiling_blocks = self._blocks(self._segments_most)
        self.capacity_blocks = self._blocks(0)

    def _blocks(self, segments: int) -> int:
        held_bytes = self._first_bytes + segments * self._segment_bytes
        return int(held_bytes * self._useful_share) // self._block_bytes

    @property
    def used_bytes(self) -> int:
        """Weights, overhead, the first allocation and the segments taken since."""
        return self._fixed_bytes + self._first_bytes + self._segments * self._segment_bytes

    def grow(self) -> bool:
        """Take one more segment, unless the GPU's share is used up."""
        if self._segments == self._segments_most:
            return False
        self._segments += 1
        self.capacity_blocks = self._blocks(self._segments)
        return True

    def settle(self, now_ns: int, blocks: int) -> None:
        """Give the last segment back once ``blocks`` fitted without it for the whole release time."""
        if self._segments == 0 or blocks > self._blocks(self._segments - 1):
            self._needed_ns = now_ns
        elif (
            self._release_after_ns is not None
            and now_ns - self._needed_ns >= self._release_after_ns
        ):
            self._segments -= 1
            self.capacity_blocks = self._blocks(self._segments)
            self._needed_ns = now_ns
