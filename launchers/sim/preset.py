"""Presets: one simulated model on one kind of simulated GPU, with its speeds and its memory policy."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
MIB = 1 << 20
MS = 1_000_000
US = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One simulated GPU: memory in bytes (``reserved`` is the driver's own), power in watts."""

    name: str
    total_bytes: int
    reserved_bytes: int
    idle_w: float
    busy_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What requests and steps cost, in ns; a step is one pass of the model over its batch.

    A request spends ``intake`` in the front end (parsing, chat template, tokenising) before it can be scheduled.

    step = (base + prefill_token x prompt tokens + sequence x decoding sequences
            + context_token x KV tokens of the running sequences) / GPUs
           + sync x (GPUs - 1),
    times a factor drawn evenly from 1 +- ``jitter_share``. The shape is the roofline of a decoder: weights
    are read once a step (base), prompt tokens are bound by arithmetic, decoding by reading the KV cache.
    """

    intake_ns: int
    base_ns: int
    prefill_token_ns: int
    sequence_ns: int
    context_token_ns: int
    sync_ns: int
    jitter_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The scheduler's bounds: longest context in tokens, running sequences, tokens computed in one step.

    ``queued`` is how many requests may wait before the next is refused with 503; None is no bound.
    """

    context_tokens: int
    sequences: int
    batched_tokens: int
    queued: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preallocated:
    """All memory is taken at start, up to ``share`` of the GPU, and never moves."""

    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """The KV cache starts at ``first_bytes`` and grows by segments up to ``share`` of the GPU.

    Bytes are per GPU. ``waste_share`` of them is lost to fragmentation. A segment that stayed unneeded for
    ``release_after_ns`` goes back; None keeps it for ever.
    """

    first_bytes: int
    segment_bytes: int
    share: float
    waste_share: float
    release_after_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Everything that a simulated engine is; ``weights`` and ``kv_token`` bytes are shared out over its GPUs.

    ``overhead_bytes`` (context, activations, graphs) is paid on every GPU.
    """

    name: str
    summary: str
    card: Card
    timing: Timing
    limits: Limits
    memory: Preallocated | Growing
    block_tokens: int
    kv_token_bytes: int
    weights_bytes: int
    overhead_bytes: int


_CARD = Card(
    name="simulated 24 GiB GPU",
    total_bytes=24 * GIB,
    reserved_bytes=512 * MIB,
    idle_w=28.0,
    busy_w=150.0,
)

# A model of some three billion parameters in 16 bits: 112 KiB of KV a context token, and weights that the card
# reads once a step in 10 ms. Prompt tokens are cheap enough that the catalogue's bursts queue for a moment only:
# a prompt of 500 words waits some 43 ms for its first token on an idle engine, and the next come 11 ms apart.
_TIMING = Timing(
    intake_ns=30 * MS,
    base_ns=10 * MS,
    prefill_token_ns=5 * US,
    sequence_ns=20 * US,
    context_token_ns=50,
    sync_ns=1 * MS,
    jitter_share=0.03,
)

_LIMITS = Limits(context_tokens=32_768, sequences=256, batched_tokens=4096)

STATIC = Preset(
    name="static",
    summary="preallocates 80 % of a 24 GiB GPU at start; VRAM stays flat, a full KV cache preempts",
    card=_CARD,
    timing=_TIMING,
    limits=_LIMITS,
    memory=Preallocated(share=0.80),
    block_tokens=16,
    kv_token_bytes=112 * 1024,
    weights_bytes=int(6.4e9),
    overhead_bytes=1200 * MIB,
)

DYNAMIC = Preset(
    name="dynamic",
    summary="takes KV memory on demand, up to 95 % of a 24 GiB GPU; VRAM spikes under bursts",
    card=_CARD,
    timing=_TIMING,
    limits=_LIMITS,
    memory=Growing(
        first_bytes=4 * GIB,
        segment_bytes=256 * MIB,
        share=0.95,
        waste_share=0.1,
        release_after_ns=20_000 * MS,
    ),
    block_tokens=16,
    kv_token_bytes=112 * 1024,
    weights_bytes=int(6.4e9),
    overhead_bytes=1200 * MIB,
)

FAST = Preset(
    name="fast",
    summary="steps of a millisecond on a small preallocated GPU, for tests",
    card=Card(
        name="simulated 2 GiB GPU",
        total_bytes=2 * GIB,
        reserved_bytes=64 * MIB,
        idle_w=10.0,
        busy_w=40.0,
    ),
    timing=Timing(
        intake_ns=0,
        base_ns=1 * MS,
        prefill_token_ns=1 * US,
        sequence_ns=2 * US,
        context_token_ns=1,
        sync_ns=100 * US,
        jitter_share=0.0,
    ),
    limits=Limits(context_tokens=8_192, sequences=512, batched_tokens=2_048),
    memory=Preallocated(share=0.80),
    block_tokens=16,
    kv_token_bytes=8 * 1024,
    weights_bytes=512 * MIB,
    overhead_bytes=128 * MIB,
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in (STATIC, DYNAMIC, FAST)}
