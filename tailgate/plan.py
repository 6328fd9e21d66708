"""A profile's schedule for people, machines and files."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from profiles.profile import SECOND_NS, Profile
from profiles.schedule import (
    PlannedRequest,
    burst_intervals,
    loops,
    schedule_sha256,
    unroll,
)
from profiles.summary import Spread, Summary, TenantSummary
from profiles.units import format_duration, format_rate
from reports.fault import WriteError

EIGHTHS = " ▁▂▃▄▅▆▇█"
CHART_ROWS = 3
LEFT_COLUMNS = 22
LOOP_ROWS = 64


def plan_json(profile: Profile, seed: int, level: int, summary: Summary) -> dict[str, Any]:
    """Return the figures of the schedule with its hash and its bursts (seconds from the warm-up's start)."""
    return {
        **summary.to_json(),
        "schedule_sha256": schedule_sha256(profile, seed, level),
        "bursts_s": {
            tenant: [[start / SECOND_NS, end / SECOND_NS] for start, end in spans]
            for tenant, spans in burst_intervals(profile, seed, level).items()
        },
    }


def plan_rows(profile: Profile, seed: int, level: int, path: Path) -> int:
    """Write the planned requests to ``path``, a JSON line each, and return how many there are.

    A closed loop's slot has its first 64 requests; all but the first are due when the one before completes,
    so their ``due_ns`` is null.
    Raises WriteError if the file cannot be written.
    """
    count = 0
    try:
        with path.open("w") as file:
            for request in unroll(profile, seed, level):
                file.write(_row(profile, request))
                count += 1
            for loop in loops(profile, seed, level):
                for request in islice(loop.requests(), LOOP_ROWS):
                    file.write(_row(profile, request))
                    count += 1
    except OSError as cause:
        raise WriteError(path, cause, lost=count) from cause
    return count


def _row(profile: Profile, request: PlannedRequest) -> str:
    phase = (
        None
        if request.due_ns is None
        else "warmup"
        if request.due_ns < profile.warmup_ns
        else "measure"
    )
    return (
        json.dumps(
            {
                "tenant": request.tenant,
                "phase": phase,
                "due_ns": request.due_ns,
                "session": request.session,
                "turn": request.turn,
                "prompt_tokens": request.prompt_tokens,
                "output_tokens": request.output_tokens,
            }
        )
        + "\n"
    )


def show_plan(console: Console, profile: Profile, seed: int, level: int, summary: Summary) -> None:
    """Print the figures per tenant and draw the arrival rate over time, bursts in colour."""
    length = f"{format_duration(profile.warmup_ns)} warm-up, {format_duration(profile.duration_ns)}"
    console.print(
        f"[bold]{summary.profile}[/]  {length} measured, seed {seed}, load {level} %",
        highlight=False,
    )
    console.print(f"schedule sha256 {schedule_sha256(profile, seed, level)}", highlight=False)
    for warning in summary.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
    console.print(_figures(summary))
    console.print(_lengths(summary))
    bursts = burst_intervals(profile, seed, level)
    console.print(
        "arrivals per second over warm-up and measured window (bursts in colour, ┊ = window starts)",
        highlight=False,
    )
    for tenant in summary.tenants:
        for line in _chart(profile, tenant, bursts.get(tenant.name, ()), console.width):
            console.print(line)


def _figures(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="bold")
    table.add_column("tenant")
    table.add_column("arrivals")
    for heading in ("requests", "planned", "realised", "CV", "IDC 1/10/60 s"):
        table.add_column(heading, justify="right")
    for tenant in summary.tenants:
        table.add_row(
            tenant.name,
            tenant.arrivals,
            "-" if tenant.measured_requests is None else f"{tenant.measured_requests:,}",
            _rate(tenant.planned_rate_hz),
            _rate(tenant.realised_rate_hz),
            _figure(tenant.gap_cv),
            "/".join(_figure(value) for value in tenant.dispersion.values()) or "-",
        )
    return table


def _lengths(summary: Summary) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="bold")
    table.add_column("tokens")
    for heading in ("prompt p50/p95/max", "output p50/p95/max"):
        table.add_column(heading, justify="right")
    for tenant in summary.tenants:
        table.add_row(tenant.name, _spread(tenant.prompt_tokens), _spread(tenant.output_tokens))
    return table


def _rate(hz: float | None) -> str:
    return "-" if hz is None else format_rate(hz)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _spread(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.p50:,}/{spread.p95:,}/{spread.max:,}"


def _chart(
    profile: Profile,
    tenant: TenantSummary,
    bursts: tuple[tuple[int, int], ...],
    width: int,
) -> list[Text]:
    """Return the lines of one tenant's bars; a column is the mean over its seconds."""
    if tenant.concurrency is not None:
        slots = f"closed loop of {tenant.concurrency}: due when the one before completes"
        return [Text(f"{tenant.name:<{LEFT_COLUMNS - 1}}{slots}", style="dim")]
    counts = tenant.arrivals_per_second
    columns = max(1, min(len(counts), width - LEFT_COLUMNS - 1))
    edges = [round(i * len(counts) / columns) for i in range(columns + 1)]
    means = [sum(counts[a:b]) / max(1, b - a) for a, b in pairwise(edges)]
    window_starts = profile.warmup_ns / SECOND_NS
    top = max(means, default=0) or 1
    lines = []
    for row in reversed(range(CHART_ROWS)):
        name = tenant.name if row == CHART_ROWS - 1 else ""
        scale = f"{top:.3g}/s" if row == CHART_ROWS - 1 else "0" if row == 0 else ""
        line = Text(f"{name[: LEFT_COLUMNS - 9]:<{LEFT_COLUMNS - 9}}{scale:>7} ")
        for column, mean in enumerate(means):
            if edges[column] <= window_starts < edges[column + 1] and window_starts > 0:
                line.append("┊", style="dim")
            eighths = round(mean / top * CHART_ROWS * 8) - row * 8
            burst = any(
                start < edges[column + 1] * SECOND_NS and end > edges[column] * SECOND_NS
                for start, end in bursts
            )
            line.append(EIGHTHS[min(8, max(0, eighths))], style="red" if burst else "cyan")
        lines.append(line)
    return lines
