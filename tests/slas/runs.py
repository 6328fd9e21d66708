"""Synthetic runs for the court's tests: what a generator would have left, without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiles.sheet import Spot
from slas.evidence import (
    EngineSample,
    Evidence,
    HealthSample,
    MemorySample,
    Outcome,
    Phase,
    RequestRow,
    RunSpan,
    Subject,
    Window,
)
from slas.expression import parse
from slas.ruling import Level
from slas.sla import Check, Sla

MS = 1_000_000
S = 1_000_000_000
GIB = 2**30
WARMUP_NS = 5 * S
DURATION_NS = 20 * S
WINDOW = Window(
    warmup_ns=WARMUP_NS, duration_ns=DURATION_NS, drain_ns=5 * S, total_timeout_ns=60 * S
)
START_NS = 1_000 * S
GAP_BETWEEN_RUNS_NS = 60 * S


def row(
    *,
    run: int = 1,
    tenant: str = "chat",
    ordinal: int = 0,
    due_ns: int = WARMUP_NS,
    late_ns: int = 0,
    ttft_ns: int = 100 * MS,
    gaps_ns: Sequence[int] = (20 * MS,) * 4,
    outcome: Outcome = Outcome.COMPLETED,
    **fields: Any,
) -> RequestRow:
    """A request; ``ttft_ns`` counts from due, and a failed one fails when its first token would have come."""
    sent = due_ns + late_ns
    first = due_ns + ttft_ns
    last = first + sum(gaps_ns)
    completed = outcome is Outcome.COMPLETED
    base = RequestRow(
        run=run,
        tenant=tenant,
        phase=Phase.MEASURE if due_ns >= WARMUP_NS else Phase.WARMUP,
        burst=False,
        ordinal=ordinal,
        session=f"{tenant}-{ordinal}",
        turn=0,
        due_ns=due_ns,
        connect_ns=None,
        sent_ns=None if outcome is Outcome.UNSENT else sent,
        first_ns=first if completed else None,
        output_first_ns=first if completed else None,
        last_ns=last if completed else None,
        done_ns=last if completed else first,
        outcome=outcome,
        status=200 if completed else None,
        stage=None,
        why=None if completed else "on purpose",
        finish="stop" if completed else None,
        prompt_tokens=100 if completed else None,
        output_tokens=len(gaps_ns) + 1 if completed else 0,
        client_tokens=len(gaps_ns) + 1 if completed else 0,
        output_planned=len(gaps_ns) + 1,
        usage_from="server" if completed else "client",
        gaps_ns=tuple(gaps_ns) if completed else (),
        gap_tokens=(1,) * len(gaps_ns) if completed else (),
        reused_connection=True,
    )
    return replace(base, **fields)


def rows(
    ttfts_ns: Iterable[int | None],
    *,
    run: int = 1,
    tenant: str = "chat",
    spacing_ns: int | None = None,
    first_ordinal: int = 0,
    **fields: Any,
) -> list[RequestRow]:
    """Requests spread evenly over the measured window; None is one that was refused."""
    values = list(ttfts_ns)
    step = spacing_ns or max(DURATION_NS // max(len(values), 1), 1)
    return [
        row(
            run=run,
            tenant=tenant,
            ordinal=first_ordinal + index,
            due_ns=WARMUP_NS + index * step,
            **(
                {"outcome": Outcome.REFUSED, "status": 503, "ttft_ns": 5 * MS}
                if value is None
                else {"ttft_ns": value}
            ),
            **fields,
        )
        for index, value in enumerate(values)
    ]


def start_of(run: int) -> int:
    """When a run began, on the monotonic clock."""
    return START_NS + (run - 1) * GAP_BETWEEN_RUNS_NS


def healthy(runs: Iterable[int] = (1,), lag_ns: int = 50_000, **fields: Any) -> list[HealthSample]:
    """A generator's reports of a whole run, calm unless told otherwise."""
    total_s = (WARMUP_NS + DURATION_NS) // S
    base = HealthSample(
        run=1,
        lane="local-0",
        at_ns=0,
        loop_lag_ns=(lag_ns,) * 10,
        events=100,
        reads=100,
        in_flight=1,
        run_queue_ns=0,
        steal_share=0.0,
    )
    return [
        replace(base, run=run, at_ns=second * S, **fields)
        for run in runs
        for second in range(1, total_s + 1)
    ]


def memory(
    used_bytes: Mapping[int, int] | None = None,
    *,
    run: int = 1,
    gpu: int = 0,
    node: str = "node-a",
    base_bytes: int = 40 * GIB,
    total_bytes: int | None = 80 * GIB,
    every_ns: int = S,
) -> list[MemorySample]:
    """One GPU's sweeps from 2 s before a run to its end; ``used_bytes`` by second of the measured window."""
    special = used_bytes or {}
    begin = start_of(run) - 2 * S
    end = start_of(run) + WARMUP_NS + DURATION_NS + 2 * S
    samples = []
    for at in range(begin, end + 1, every_ns):
        second = (at - start_of(run) - WARMUP_NS) // S
        samples.append(
            MemorySample(
                before_ns=at,
                after_ns=at + MS,
                node=node,
                gpu=gpu,
                used_bytes=special.get(second, base_bytes),
                total_bytes=total_bytes,
            )
        )
    return samples


def engine(run: int = 1, **fields: Any) -> list[EngineSample]:
    """The engine's metrics once a second through a run."""
    base = EngineSample(at_ns=0, kv_usage_share=0.3, running=2, waiting=0, preemptions=0)
    return [
        replace(base, at_ns=start_of(run) + second * S, **fields)
        for second in range((WARMUP_NS + DURATION_NS) // S + 2)
    ]


def evidence(requests: Iterable[RequestRow], *, runs: int = 1, **fields: Any) -> Evidence:
    """A whole, sealed run with a healthy instrument around the given requests."""
    all_rows = tuple(requests)
    tenants = tuple(dict.fromkeys(r.tenant for r in all_rows)) or ("chat",)
    closed = fields.get("closed_loop", frozenset())
    spans = tuple(
        RunSpan(
            run=run,
            start_ns=start_of(run),
            end_ns=start_of(run) + WARMUP_NS + DURATION_NS + S,
            planned={
                tenant: sum(r.tenant == tenant and r.run == run for r in all_rows)
                for tenant in tenants
                if tenant not in closed
            },
            finished=True,
        )
        for run in range(1, runs + 1)
    )
    base = Evidence(
        subject=Subject(
            engine="vllm",
            engine_version="0.33",
            model="m",
            gpu_models=("H100",),
            schedule_sha256="abc",
        ),
        window=WINDOW,
        tenants=tenants,
        closed_loop=frozenset(),
        bursts={},
        runs=spans,
        rows=all_rows,
        memory=(),
        memory_source=None,
        memory_every_ns=S,
        engine=(),
        health=tuple(healthy(range(1, runs + 1))),
        ready_ns=START_NS - 2 * S,
        stopped_ns=spans[-1].end_ns + S if spans else None,
        simulated=False,
        quick=False,
        sealed=True,
    )
    return replace(base, **fields)


def check(text: str, *, level: Level = "must", name: str | None = None, **fields: Any) -> Check:
    """One promise, as if it stood in line 7 of a sheet."""
    base = Check(
        expression=parse(text),
        level=level,
        abort_after_ns=None,
        min_samples=None,
        name=name or text,
        spot=Spot(path=Path("sla.yaml"), line=7, column=5),
        field=f"{level}[0]",
    )
    return replace(base, **fields)


def sla(*checks: str | Check, runs: int = 1, **fields: Any) -> Sla:
    """Promises on point evidence unless told otherwise."""
    base = Sla(
        name="test",
        runs=runs,
        confidence=None,
        on_inconclusive="fail",
        checks=tuple(check(c) if isinstance(c, str) else c for c in checks),
        path=Path("sla.yaml"),
    )
    return replace(base, **fields)
