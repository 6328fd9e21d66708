"""The planned requests of a profile: pure in (profile, seed, level), never rescaled to a duration.

Every tenant has a random stream of its own for each of its dimensions (arrivals, warm-up, prompt and output lengths),
keyed by names: another tenant moves none of its requests, other lengths none of its arrivals, and another warm-up
none of the measured window. Streams belong to a numpy version; ``schedule_sha256`` tells when they changed.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, takewhile

import numpy as np
from numpy.typing import NDArray

from profiles.amount import LOOP_DRAWS, draws, total
from profiles.arrivals.poisson import Poisson
from profiles.process import CHUNK
from profiles.profile import SECOND_NS, Profile
from profiles.surge import Tempo
from profiles.tenant import Tenant

Instants = NDArray[np.int64]
Span = tuple[int, int]
# (due_ns, index of the tenant, ordinal, session, burst, prompt tokens, output tokens)
_Planned = tuple[int, int, int, str, bool, int, int]


class LevelError(ValueError):
    """A load level that a profile cannot be played at."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request to send. ``due_ns`` counts from the start of the warm-up.

    It is None for a later request of a closed loop, which is due ``think_ns`` after the previous completion.
    ``ordinal`` counts the tenant's requests from 0; ``session`` decides the lane.
    """

    due_ns: int | None
    tenant: str
    ordinal: int
    session: str
    turn: int
    think_ns: int
    burst: bool
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One slot of a closed-loop tenant: a request, and the next when that one is done.

    ``slot`` of ``slots`` numbers it; its requests take every ``slots``-th ordinal.
    """

    tenant: Tenant
    seed: int
    slot: int
    slots: int

    @property
    def session(self) -> str:
        """The session that all of its requests belong to."""
        return f"{self.tenant.name}.slot{self.slot}"

    def requests(self) -> Iterator[PlannedRequest]:
        """Yield its requests without end; the first is due at 0, the others when the one before is done."""
        lengths = _lengths(self.tenant, self.seed, f"slot{self.slot}")
        ordinal = self.slot
        while True:
            prompts, outputs = lengths.draw(LOOP_DRAWS)
            for prompt_tokens, output_tokens in zip(prompts, outputs, strict=True):
                yield PlannedRequest(
                    due_ns=0 if ordinal == self.slot else None,
                    tenant=self.tenant.name,
                    ordinal=ordinal,
                    session=self.session,
                    turn=0,
                    think_ns=0,
                    burst=False,
                    prompt_tokens=prompt_tokens,
                    output_tokens=output_tokens,
                )
                ordinal += self.slots


def unroll(profile: Profile, seed: int, level_percent: int = 100) -> Iterator[PlannedRequest]:
    """Yield the requests of the open-loop tenants in due order, warm-up first.

    Raises LevelError for a level that is not positive, or above 100 with a trace, and TraceError when a trace has
    changed since the profile was read.
    """
    refuse_level(profile, level_percent)
    return _merged(
        tuple(tenant.name for tenant in profile.tenants),
        [
            _tenant_requests(profile, index, seed, level_percent)
            for index, tenant in enumerate(profile.tenants)
            if not tenant.closed
        ],
    )


def _merged(names: tuple[str, ...], streams: list[Iterator[_Planned]]) -> Iterator[PlannedRequest]:
    for due_ns, index, ordinal, session, burst, prompt, output in heapq.merge(*streams):
        yield PlannedRequest(
            due_ns=due_ns,
            tenant=names[index],
            ordinal=ordinal,
            session=session,
            turn=0,
            think_ns=0,
            burst=burst,
            prompt_tokens=prompt,
            output_tokens=output,
        )


def loops(profile: Profile, seed: int, level_percent: int = 100) -> tuple[Loop, ...]:
    """Return every slot of the closed-loop tenants: ceil(concurrency x level) for each.

    Raises LevelError for a level that is not positive.
    """
    refuse_level(profile, level_percent)
    return tuple(
        Loop(tenant=tenant, seed=seed, slot=slot, slots=slots)
        for tenant in profile.tenants
        if tenant.concurrency is not None
        for slots in (math.ceil(tenant.concurrency * level_percent / 100),)
        for slot in range(slots)
    )


def lane_of(session: str, lanes: int) -> int:
    """Return the lane, of ``lanes``, that sends a session's requests.

    >>> lane_of("chat.0", 1), lane_of("chat.0", 4) == lane_of("chat.0", 4)
    (0, True)
    """
    if lanes == 1:
        return 0
    return int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), "big") % lanes


def planned_counts(profile: Profile, seed: int, level_percent: int = 100) -> dict[str, int]:
    """Return the number of requests of each open-loop tenant, over warm-up and measured window."""
    refuse_level(profile, level_percent)
    return {
        tenant.name: sum(
            len(due_ns) for due_ns in _warmup_due(profile, tenant, seed, level_percent)
        )
        + sum(
            len(batch.due_ns)
            for batch in _measured(profile, tenant, seed, level_percent, profile.tempo(tenant))
        )
        for tenant in profile.tenants
        if not tenant.closed
    }


def burst_intervals(
    profile: Profile, seed: int, level_percent: int = 100
) -> dict[str, tuple[Span, ...]]:
    """Return the [start, end) intervals, in ns from the start of the warm-up, in which each tenant bursts.

    A burst is the arrival model's high state or a surge; for models without states also each second of the window
    that is planned at twice the tenant's mean rate or more, with two requests at least. Closed loops have none.
    """
    refuse_level(profile, level_percent)
    bursts: dict[str, tuple[Span, ...]] = {}
    for tenant in profile.tenants:
        spans: list[Span] = []
        if not tenant.closed:
            tempo = profile.tempo(tenant)
            spans += tempo.bursts_ns
            for batch in _marked(profile, tenant, seed, level_percent, tempo):
                spans += batch.bursts_ns
        bursts[tenant.name] = tuple(
            (start_ns + profile.warmup_ns, end_ns + profile.warmup_ns)
            for start_ns, end_ns in _union(spans)
        )
    return bursts


def schedule_sha256(profile: Profile, seed: int, level_percent: int = 100) -> str:
    """Return the SHA-256, in hex, of all that is to be sent: two profiles with one hash send the same traffic.

    Hashed are a line of JSON with the phases' lengths in ns and each tenant's name, API and number of slots, then a
    line for every open-loop request in due order (due_ns, tenant, session, turn, think_ns, burst, prompt and output
    tokens), then the first 64 requests of every closed-loop slot in the same form. The prompts' salt and text are
    outside; so are timeouts and drain, which say how replies are waited for.
    """
    slots = loops(profile, seed, level_percent)
    head = {
        "warmup_ns": profile.warmup_ns,
        "duration_ns": profile.duration_ns,
        "tenants": [
            [tenant.name, tenant.api, sum(loop.tenant is tenant for loop in slots)]
            for tenant in profile.tenants
        ],
    }
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode() + b"\n")
    for request in unroll(profile, seed, level_percent):
        digest.update(_hashed(request))
    for loop in slots:
        for request in islice(loop.requests(), LOOP_DRAWS):
            digest.update(_hashed(request))
    return digest.hexdigest()


def _hashed(request: PlannedRequest) -> bytes:
    return (
        f"{request.due_ns},{request.tenant},{request.session},{request.turn},{request.think_ns},"
        f"{request.burst:d},{request.prompt_tokens},{request.output_tokens}\n"
    ).encode()


def refuse_level(profile: Profile, level_percent: int) -> None:
    """Raise LevelError for a level that is not positive, too high to plan, or that would have to invent rows of a trace."""
    if level_percent <= 0:
        raise LevelError(f"load level {level_percent} %: it must be 1 % or more")
    traced = [tenant.name for tenant in profile.tenants if tenant.trace is not None]
    if level_percent > 100 and traced:
        raise LevelError(
            f"load level {level_percent} %: a replayed trace has no more than 100 % "
            f"(tenant {traced[0]}); use its `speed`"
        )
    planned = {
        tenant.name: draws(tenant, profile.warmup_ns, profile.tempo(tenant).length_ns)
        * level_percent
        / 100
        for tenant in profile.tenants
    }
    too_many = total(planned)
    if too_many is not None:
        raise LevelError(f"load level {level_percent} %: {too_many}")


# ---------------------------------------------------------------------------------------------------------
# random streams


def _stream(seed: int, tenant: str, dimension: str) -> np.random.Generator:
    key = hashlib.blake2b(f"{tenant}/{dimension}".encode(), digest_size=16).digest()
    words = tuple(int.from_bytes(key[at : at + 4], "big") for at in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=words)))


@dataclass(frozen=True, slots=True)
class _LengthStreams:
    tenant: Tenant
    prompt: np.random.Generator
    output: np.random.Generator

    def draw(self, n: int) -> tuple[list[int], list[int]]:
        return (
            self.tenant.prompt_tokens.draw(self.prompt, n).tolist(),
            self.tenant.output_tokens.draw(self.output, n).tolist(),
        )


def _lengths(tenant: Tenant, seed: int, part: str) -> _LengthStreams:
    return _LengthStreams(
        tenant,
        _stream(seed, tenant.name, f"{part}.prompt"),
        _stream(seed, tenant.name, f"{part}.output"),
    )


# ---------------------------------------------------------------------------------------------------------
# one tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Some of a tenant's requests in order, in ns from the start of the measured window.

    ``tokens`` are a trace's own lengths (prompt, output); ``bursts_ns`` the high states and crowded seconds.
    """

    due_ns: Instants
    tokens: tuple[list[int], list[int]] | None = None
    bursts_ns: tuple[Span, ...] = ()


def _tenant_requests(
    profile: Profile, index: int, seed: int, level_percent: int
) -> Iterator[_Planned]:
    tenant = profile.tenants[index]
    name = tenant.name
    ordinal = 0
    lengths = _lengths(tenant, seed, "warmup")
    for due_ns in _warmup_due(profile, tenant, seed, level_percent):
        for due, prompt, output in zip(due_ns.tolist(), *lengths.draw(len(due_ns)), strict=True):
            yield due, index, ordinal, f"{name}.w{ordinal}", False, prompt, output
            ordinal += 1
    # sessions are numbered within the phase, so that a shorter warm-up leaves lanes as they are
    before = ordinal
    lengths = _lengths(tenant, seed, "measure")
    tempo = profile.tempo(tenant)
    for batch in _marked(profile, tenant, seed, level_percent, tempo):
        burst = _inside(batch.due_ns, _union([*tempo.bursts_ns, *batch.bursts_ns]))
        prompts, outputs = batch.tokens or lengths.draw(len(batch.due_ns))
        instants = (batch.due_ns + profile.warmup_ns).tolist()
        for due, high, prompt, output in zip(
            instants, burst.tolist(), prompts, outputs, strict=True
        ):
            yield due, index, ordinal, f"{name}.{ordinal - before}", high, prompt, output
            ordinal += 1


def _warmup_due(
    profile: Profile, tenant: Tenant, seed: int, level_percent: int
) -> Iterator[Instants]:
    """Yield the due times of the warm-up: Poisson at the mean rate, without surges."""
    if profile.warmup_ns == 0:
        return
    rng = _stream(seed, tenant.name, "warmup.arrivals")
    rate_hz = tenant.mean_rate_hz * level_percent / 100
    for stretch in Poisson().stretches(rng, rate_hz, profile.warmup_ns / 1e9):
        due_ns = np.floor(stretch.times_s * 1e9)
        yield due_ns[due_ns < profile.warmup_ns].astype(np.int64)


def _measured(
    profile: Profile, tenant: Tenant, seed: int, level_percent: int, tempo: Tempo
) -> Iterator[_Batch]:
    """Yield the due times of the measured window, from its start, with the high states of the model."""
    if tenant.trace is not None:
        yield from _replayed(profile, tenant, seed, level_percent, tempo)
        return
    assert tenant.arrival is not None, f"{tenant.name} is a closed loop"
    rng = _stream(seed, tenant.name, "measure.arrivals")
    rate_hz = tenant.mean_rate_hz * level_percent / 100
    for stretch in tenant.arrival.stretches(rng, rate_hz, tempo.length_ns / 1e9):
        own_ns = stretch.times_s * 1e9
        due_ns = tempo.window_ns(own_ns[own_ns < tempo.length_ns])
        spans: list[Span] = []
        if stretch.bursts_s:
            edges_ns = np.minimum(np.asarray(stretch.bursts_s) * 1e9, tempo.length_ns)
            starts = tempo.window_ns(edges_ns[:, 0]).tolist()
            # an arrival rounds down to a nanosecond that its spell's end may round down to as well
            ends = (tempo.window_ns(edges_ns[:, 1]) + 1).tolist()
            spans = [
                (start, min(end, profile.duration_ns))
                for start, end in zip(starts, ends, strict=True)
                if start < profile.duration_ns
            ]
        yield _Batch(due_ns=due_ns[due_ns < profile.duration_ns], bursts_ns=tuple(spans))


def _replayed(
    profile: Profile, tenant: Tenant, seed: int, level_percent: int, tempo: Tempo
) -> Iterator[_Batch]:
    """Yield a trace's requests; below 100 % each row stays with that probability, by a stream of its own."""
    assert tenant.trace is not None
    keeps = _stream(seed, tenant.name, "measure.thinning")
    # not one more row than it takes to see the end: those behind it were not looked through
    rows = takewhile(
        lambda row: row.at_ns < tempo.length_ns,
        tenant.trace.spread_rows(_stream(seed, tenant.name, "measure.ticks")),
    )
    ended = False
    while not ended:
        batch = list(islice(rows, CHUNK))
        ended = len(batch) < CHUNK
        due_ns = tempo.window_ns(np.asarray([row.at_ns for row in batch], dtype=np.float64))
        kept = due_ns < profile.duration_ns
        if level_percent < 100:
            kept &= keeps.random(len(batch)) < level_percent / 100
        chosen = np.flatnonzero(kept).tolist()
        yield _Batch(
            due_ns=due_ns[kept],
            tokens=(
                [batch[at].prompt_tokens for at in chosen],
                [batch[at].output_tokens for at in chosen],
            ),
        )


def _marked(
    profile: Profile, tenant: Tenant, seed: int, level_percent: int, tempo: Tempo
) -> Iterator[_Batch]:
    """Yield a tenant's measured requests with all their bursts: a model's own, else the crowded seconds."""
    batches = _measured(profile, tenant, seed, level_percent, tempo)
    if tenant.arrival is not None and tenant.arrival.has_states:
        yield from batches
        return
    mean_hz = tenant.mean_rate_hz * level_percent / 100
    held: list[_Batch] = []
    for batch in batches:
        if not len(batch.due_ns):
            continue
        held.append(batch)
        # the second that the last request falls into may not be complete
        whole_ns = int(batch.due_ns[-1] // SECOND_NS) * SECOND_NS
        if held[0].due_ns[0] < whole_ns:
            joined = _joined(held)
            head, rest = _cut(joined, int(np.searchsorted(joined.due_ns, whole_ns)))
            held = [rest]
            yield _crowded(head, mean_hz, profile.duration_ns)
    if held:
        yield _crowded(_joined(held), mean_hz, profile.duration_ns)


def _joined(batches: list[_Batch]) -> _Batch:
    tokens = [batch.tokens for batch in batches if batch.tokens is not None]
    return _Batch(
        due_ns=np.concatenate([batch.due_ns for batch in batches]),
        tokens=(
            list(chain.from_iterable(prompts for prompts, _ in tokens)),
            list(chain.from_iterable(outputs for _, outputs in tokens)),
        )
        if tokens
        else None,
    )


def _cut(batch: _Batch, at: int) -> tuple[_Batch, _Batch]:
    head = tail = None
    if batch.tokens is not None:
        head = (batch.tokens[0][:at], batch.tokens[1][:at])
        tail = (batch.tokens[0][at:], batch.tokens[1][at:])
    return (
        _Batch(due_ns=batch.due_ns[:at], tokens=head),
        _Batch(due_ns=batch.due_ns[at:], tokens=tail),
    )


def _crowded(batch: _Batch, mean_hz: float, duration_ns: int) -> _Batch:
    """Return a batch of whole seconds with those marked that hold twice the mean or more."""
    seconds, counts = np.unique(batch.due_ns // SECOND_NS, return_counts=True)
    spans = []
    for second, count in zip(seconds.tolist(), counts.tolist(), strict=True):
        start_ns = second * SECOND_NS
        end_ns = min(start_ns + SECOND_NS, duration_ns)
        # one request is no burst, however slow the tenant
        if count >= max(2, 2 * mean_hz * (end_ns - start_ns) / SECOND_NS):
            spans.append((start_ns, end_ns))
    return _Batch(due_ns=batch.due_ns, tokens=batch.tokens, bursts_ns=tuple(spans))


def _union(spans: list[Span]) -> list[Span]:
    """Return the spans in order, those that touch joined."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _inside(due_ns: Instants, spans: list[Span]) -> NDArray[np.bool_]:
    """Return which instants lie in one of the disjoint, ascending spans."""
    if not spans:
        return np.zeros(len(due_ns), dtype=np.bool_)
    edges = np.asarray(spans, dtype=np.int64).reshape(-1)
    inside: NDArray[np.bool_] = np.searchsorted(edges, due_ns, side="right") % 2 == 1
    return inside
