"""What a run left behind, as values: requests, memory, engine metrics and the instrument's own health.

Everything here is frozen. Stamps of a request count integer nanoseconds from the start of its run's warm-up;
stamps of samples are the node's monotonic clock (``RunSpan.start_ns`` joins the two).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

UsageFrom = Literal["server", "client"]

NO_CONNECTION: Final = "no connection within"
"""How the ``why`` of a row begins whose connection was waited for until its limit passed."""


class Outcome(StrEnum):
    """How a request that was due ended; there is no sixth way and no row without one."""

    COMPLETED = "completed"
    REFUSED = "refused"
    BROKEN = "broken"
    TIMED_OUT = "timed_out"
    UNSENT = "unsent"


class Phase(StrEnum):
    """The part of the run in which a request was due."""

    WARMUP = "warmup"
    MEASURE = "measure"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request that was due: three stamps, its tokens and how it ended.

    ``connect_ns`` is the length of the wait for a new connection (None on a reused one); the other ``_ns``
    fields except ``gaps_ns`` are stamps. ``gaps_ns[i]`` is the time between consecutive socket reads that
    carried tokens and ``gap_tokens[i]`` the tokens that the later read carried. ``output_tokens`` is the
    server's usage where it gives one; ``client_tokens`` is always the client's own count of token deltas, None in
    rows written before it was kept.
    """

    run: int
    tenant: str
    phase: Phase
    burst: bool
    ordinal: int
    session: str
    turn: int
    due_ns: int
    connect_ns: int | None
    sent_ns: int | None
    first_ns: int | None
    output_first_ns: int | None
    last_ns: int | None
    done_ns: int
    outcome: Outcome
    status: int | None
    stage: str | None
    why: str | None
    finish: str | None
    prompt_tokens: int | None
    output_tokens: int
    client_tokens: int | None
    output_planned: int
    usage_from: UsageFrom
    gaps_ns: tuple[int, ...]
    gap_tokens: tuple[int, ...]
    reused_connection: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """One GPU's memory at one sweep, between the monotonic stamps before and after it.

    A value that the source cannot give is None, and ``why`` says why.
    """

    before_ns: int
    after_ns: int
    node: str
    gpu: int
    used_bytes: int | None
    total_bytes: int | None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """The engine's own metrics at one scrape; None where the engine does not say."""

    at_ns: int
    kv_usage_share: float | None
    running: float | None
    waiting: float | None
    preemptions: float | None
    queue_seconds_sum: float | None = None
    queue_seconds_count: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSample:
    """One second of one generator: how late it woke and how busy it was.

    ``loop_lag_ns`` holds every wake-up delay of the probe in that second; ``at_ns`` counts from the start of
    the warm-up. ``run_queue_ns`` and ``steal_share`` are causes, reported and never ruled on.
    """

    run: int
    lane: str
    at_ns: int
    loop_lag_ns: tuple[int, ...]
    events: int
    reads: int
    in_flight: int
    run_queue_ns: int | None
    steal_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """When one of the R runs began, on the monotonic clock, and what was planned in it.

    ``planned`` counts the open-loop requests per tenant over warm-up and measured window (closed-loop tenants
    are absent: their count depends on the engine). ``finished`` is true only if every generator said so.
    """

    run: int
    start_ns: int
    end_ns: int
    planned: Mapping[str, int]
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was tested and under which traffic: two runs compare only when these agree.

    Versions and drivers are shown and never required to be equal; ``gpu_models`` is sorted.
    """

    engine: str
    engine_version: str | None
    model: str
    gpu_models: tuple[str, ...]
    schedule_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Lengths of the phases and the total timeout, all in nanoseconds."""

    warmup_ns: int
    duration_ns: int
    drain_ns: int
    total_timeout_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a run directory holds, ready to be ruled on.

    ``invalid`` lists our own faults in words, ``engine_fault`` the engine's (it died, it was killed), ``cut``
    why the run ended before its plan. ``bursts`` holds, per tenant, the half-open [start, end) intervals
    from the start of the warm-up in which the tenant was planned to burst. ``rows_missing`` is true of a sealed run
    that planned requests and holds no row: somebody took them away.
    """

    subject: Subject
    window: Window
    tenants: tuple[str, ...]
    closed_loop: frozenset[str]
    bursts: Mapping[str, tuple[tuple[int, int], ...]]
    runs: tuple[RunSpan, ...]
    rows: tuple[RequestRow, ...]
    memory: tuple[MemorySample, ...]
    memory_source: str | None
    memory_every_ns: int | None
    engine: tuple[EngineSample, ...]
    health: tuple[HealthSample, ...]
    ready_ns: int | None
    stopped_ns: int | None
    simulated: bool
    quick: bool
    sealed: bool
    cut: str | None = None
    engine_fault: str | None = None
    aborted: str | None = None
    constant_rate: bool = False
    invalid: tuple[str, ...] = field(default=())
    rows_missing: bool = False
