"""The block KV cache: blocks of tokens, shared by prompts that begin alike, evicted oldest first.

A full block of a prompt is known by a hash of its tokens and of all tokens before it, so that equal hashes
mean equal beginnings. A block that nobody uses any more keeps its content until the room is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launchers.sim.memory import Memory


def chain(words: Sequence[str], block_tokens: int) -> tuple[int, ...]:
    """The hash of every full block of ``words``, each over all that came before it.

    >>> a, b = chain(["x"] * 5, 2), chain(["x"] * 3 + ["y"] * 2, 2)
    >>> len(a), a[0] == b[0], a[1] == b[1]
    (2, True, False)
    """
    hashes: list[int] = []
    before = 0
    for end in range(block_tokens, len(words) + 1, block_tokens):
        before = hash((before, *words[end - block_tokens : end]))
        hashes.append(before)
    return tuple(hashes)


class Block:
    """Room for ``block_tokens`` tokens; ``hash`` is None until the block is full and shareable."""

    __slots__ = ("hash", "references")

    def __init__(self) -> None:
        self.hash: int | None = None
        self.references = 1


class KvCache:
    """All blocks; ``used`` counts those that a sequence holds now."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.used = 0
        self._known: dict[int, Block] = {}
        self._idle: dict[int, Block] = {}  # known blocks nobody holds, longest unused first

    @property
    def usage_share(self) -> float:
        """Blocks in use over blocks that could ever be: what vLLM calls ``kv_cache_usage_perc``."""
        return self.used / self.memory.ceiling_blocks

    @property
    def kept(self) -> int:
        """Blocks that nobody holds and whose content is kept for reuse."""
        return len(self._idle)

    def reuse(self, hashes: Sequence[int]) -> list[Block]:
        """Take the blocks of the longest known beginning of ``hashes``."""
        blocks: list[Block] = []
        for known in hashes:
            block = self._known.get(known)
            if block is None:
                break
            if block.references == 0:
                del self._idle[known]
                self.used += 1
            block.references += 1
            blocks.append(block)
        return blocks

    def take(self) -> Block | None:
        """A fresh block: free room first, then the oldest idle block's, then memory still to be taken."""
        if self.used + len(self._idle) >= self.memory.capacity_blocks:
            if self._idle:
                self._evict()
            elif not self.memory.grow():
                return None
        self.used += 1
        return Block()

    def publish(self, block: Block, known: int) -> None:
        """Make a full block findable; a twin that is known already stays the one that is found."""
        if block.hash is None and known not in self._known:
            block.hash = known
            self._known[known] = block

    def give_back(self, blocks: Iterable[Block]) -> None:
        """Stop holding ``blocks``; pass them last to first, so that a prefix outlives what follows it."""
        for block in blocks:
            block.references -= 1
            if block.references == 0:
                self.used -= 1
                if block.hash is not None:
                    self._idle[block.hash] = block

    def settle(self, now_ns: int) -> None:
        """Let the memory policy give back what is not needed, and forget what no longer fits."""
        self.memory.settle(now_ns, self.used)
        while self._idle and self.used + len(self._idle) > self.memory.capacity_blocks:
            self._evict()

    def _evict(self) -> None:
        oldest = next(iter(self._idle))
        del self._idle[oldest]
        del self._known[oldest]
