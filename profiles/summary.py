"""A schedule in figures: how many requests, how bursty, how long, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiles.amount import LOOP_DRAWS
from profiles.profile import SECOND_NS, Profile
from profiles.schedule import loops, unroll

BINS_S = (1, 10, 60)
# fewer bins say nothing about a variance
_LEAST_BINS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Token counts: median, 95th percentile (rank = ceil(p n)) and the largest."""

    p50: int
    p95: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSummary:
    """One tenant's schedule; rates in 1/s, figures of the measured window unless they say otherwise.

    ``planned_rate_hz`` is the mean rate asked for at this level, surges included, ``realised_rate_hz`` what the draw
    gave.
    ``dispersion`` is variance / mean of the counts in whole bins of 1, 10 and 60 s (1 for Poisson), None with fewer
    than five bins. ``arrivals_per_second`` covers warm-up and window. For a closed loop, whose arrivals depend on
    the server, all of these are None or empty, and the lengths are those of each slot's first 64 requests.
    """

    name: str
    arrivals: str
    api: str
    concurrency: int | None
    planned_rate_hz: float | None
    realised_rate_hz: float | None
    warmup_requests: int | None
    measured_requests: int | None
    burst_requests: int | None
    gap_cv: float | None
    dispersion: Mapping[int, float | None]
    prompt_tokens: Spread | None
    output_tokens: Spread | None
    arrivals_per_second: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What (profile, seed, level) plans to send."""

    profile: str
    seed: int
    level_percent: int
    warmup_ns: int
    duration_ns: int
    tenants: tuple[TenantSummary, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON knows them; ``dispersion`` by bin, such as "10s"."""
        body = asdict(self)
        for tenant in body["tenants"]:
            tenant["dispersion"] = {f"{bin_s}s": v for bin_s, v in tenant["dispersion"].items()}
            tenant["arrivals_per_second"] = list(tenant["arrivals_per_second"])
        body["tenants"] = list(body["tenants"])
        body["warnings"] = list(body["warnings"])
        return body


class _Columns:
    """A tenant's requests, a list for each figure that is wanted."""

    def __init__(self) -> None:
        self.due_ns: list[int] = []
        self.prompt_tokens: list[int] = []
        self.output_tokens: list[int] = []
        self.bursts = 0


def summarise(profile: Profile, seed: int, level_percent: int = 100) -> Summary:
    """Return the figures of a schedule, by unrolling it once.

    Raises LevelError and TraceError as ``unroll`` does.
    """
    columns = {tenant.name: _Columns() for tenant in profile.tenants}
    for request in unroll(profile, seed, level_percent):
        column = columns[request.tenant]
        assert request.due_ns is not None, "an open loop knows when it is due"
        column.due_ns.append(request.due_ns)
        column.prompt_tokens.append(request.prompt_tokens)
        column.output_tokens.append(request.output_tokens)
        column.bursts += request.burst
    slots = dict.fromkeys(columns, 0)
    for loop in loops(profile, seed, level_percent):
        slots[loop.tenant.name] += 1
        column = columns[loop.tenant.name]
        for request in islice(loop.requests(), LOOP_DRAWS):
            column.prompt_tokens.append(request.prompt_tokens)
            column.output_tokens.append(request.output_tokens)
    tenants = []
    for tenant in profile.tenants:
        column = columns[tenant.name]
        lengths = (_spread(column.prompt_tokens), _spread(column.output_tokens))
        if tenant.closed:
            tenants.append(
                TenantSummary(
                    name=tenant.name,
                    arrivals="closed loop",
                    api=tenant.api,
                    concurrency=slots[tenant.name],
                    planned_rate_hz=None,
                    realised_rate_hz=None,
                    warmup_requests=None,
                    measured_requests=None,
                    burst_requests=None,
                    gap_cv=None,
                    dispersion=dict.fromkeys(BINS_S),
                    prompt_tokens=lengths[0],
                    output_tokens=lengths[1],
                    arrivals_per_second=(),
                )
            )
            continue
        due_ns = np.asarray(column.due_ns, dtype=np.int64)
        measured_ns = due_ns[due_ns >= profile.warmup_ns] - profile.warmup_ns
        seconds = -(-(profile.warmup_ns + profile.duration_ns) // SECOND_NS)
        tenants.append(
            TenantSummary(
                name=tenant.name,
                arrivals=tenant.arrival.model if tenant.arrival is not None else "trace",
                api=tenant.api,
                concurrency=None,
                planned_rate_hz=tenant.mean_rate_hz
                * (level_percent / 100)
                * (profile.tempo(tenant).length_ns / profile.duration_ns),
                realised_rate_hz=len(measured_ns) * 1e9 / profile.duration_ns,
                warmup_requests=len(due_ns) - len(measured_ns),
                measured_requests=len(measured_ns),
                burst_requests=column.bursts,
                gap_cv=gap_cv(measured_ns),
                dispersion={
                    bin_s: dispersion(measured_ns, profile.duration_ns, bin_s * SECOND_NS)
                    for bin_s in BINS_S
                },
                prompt_tokens=lengths[0],
                output_tokens=lengths[1],
                arrivals_per_second=tuple(
                    np.bincount(due_ns // SECOND_NS, minlength=seconds).tolist()
                ),
            )
        )
    return Summary(
        profile=profile.name,
        seed=seed,
        level_percent=level_percent,
        warmup_ns=profile.warmup_ns,
        duration_ns=profile.duration_ns,
        tenants=tuple(tenants),
        warnings=profile.warnings,
    )


def gap_cv(due_ns: NDArray[np.int64]) -> float | None:
    """Return the coefficient of variation of the gaps between ascending instants, None for fewer than 3."""
    if len(due_ns) < 3:
        return None
    gaps_ns = np.diff(due_ns)
    mean_ns = gaps_ns.mean()
    return float(gaps_ns.std(ddof=1) / mean_ns) if mean_ns > 0 else None


def dispersion(due_ns: NDArray[np.int64], duration_ns: int, bin_ns: int) -> float | None:
    """Return the index of dispersion: variance / mean of the counts in the whole bins of [0, duration).

    None with fewer than five bins, or when all are empty.
    """
    bins = duration_ns // bin_ns
    if bins < _LEAST_BINS:
        return None
    counts = np.bincount(due_ns[due_ns < bins * bin_ns] // bin_ns, minlength=bins)
    mean = counts.mean()
    return float(counts.var(ddof=1) / mean) if mean > 0 else None


def _spread(tokens: list[int]) -> Spread | None:
    if not tokens:
        return None
    ordered = sorted(tokens)
    p50, p95 = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 95))
    return Spread(p50=p50, p95=p95, max=ordered[-1])
