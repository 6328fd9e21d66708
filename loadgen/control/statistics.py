"""Generators' seconds as rows of locust's statistics: for eyes only, no ruling ever reads them.

A tenant has up to four rows: E2E (its requests, with failures), TTFT, TPOT and ITL (gaps between tokens). Only
E2E rows count in locust's Aggregated row, so that it counts requests once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from locust.stats import RequestStats, StatsEntry, StatsError

from loadgen.frames import Progress
from slas.histogram import lower_us, upper_us

US_PER_MS = 1000
# Locust keeps twenty copies of every row's distribution; eight of our buckets to one of its keys bounds that
# at 128 keys a doubling, and what it shows at 0.4 % from the bucket's true middle.
COARSE_BITS = 3


def record(stats: RequestStats, progress: Progress) -> None:
    """Add one second of one generator to locust's statistics."""
    for tenant, second in progress.tenants.items():
        requests = _second(stats, tenant, "E2E", second.e2e, failed=second.failed)
        if requests.num_requests:
            stats.entries[(tenant, "E2E")].extend(requests)
            stats.total.extend(requests)
        for method, pairs in (("TTFT", second.ttft), ("TPOT", second.tpot), ("ITL", second.itl)):
            samples = _second(stats, tenant, method, pairs)
            if samples.num_requests:
                stats.entries[(tenant, method)].extend(samples)
    for tenant, outcome, detail, count in progress.failures:
        _count_error(stats, tenant, f"{outcome}: {detail}", count)


def _second(
    stats: RequestStats,
    tenant: str,
    method: str,
    pairs: Iterable[tuple[int, int]],
    *,
    failed: int = 0,
) -> StatsEntry:
    entry = StatsEntry(stats, tenant, method)
    now_s = entry.start_time  # a fresh entry is stamped by the clock that locust's own rows use
    for bucket, count in pairs:
        coarse = bucket >> COARSE_BITS
        low_ms, middle_ms, high_ms = _edges_ms(coarse)
        entry.num_requests += count
        entry.total_response_time += middle_ms * count  # type: ignore[assignment]  # floats, annotated int
        entry.response_times[middle_ms] += count  # type: ignore[index]  # as above
        if entry.min_response_time is None or low_ms < entry.min_response_time:
            entry.min_response_time = low_ms  # type: ignore[assignment]  # as above
        entry.max_response_time = max(entry.max_response_time, high_ms)  # type: ignore[assignment]
    if failed:
        # a failure has no latency: locust's "None" requests count as requests and in no percentile
        entry.num_requests += failed
        entry.num_none_requests = failed
        entry.num_failures = failed
        entry.num_fail_per_sec[int(now_s)] = failed
    if entry.num_requests:
        entry.num_reqs_per_sec[int(now_s)] = entry.num_requests
        entry.last_request_timestamp = now_s
    return entry


@cache
def _edges_ms(coarse: int) -> tuple[float, float, float]:
    low_us = lower_us(coarse << COARSE_BITS)
    high_us = upper_us(((coarse + 1) << COARSE_BITS) - 1)
    return low_us / US_PER_MS, (low_us + high_us) / 2 / US_PER_MS, high_us / US_PER_MS


def _count_error(stats: RequestStats, tenant: str, error: str, count: int) -> None:
    key = StatsError.create_key("E2E", tenant, error)
    known = stats.errors.get(key)
    if known is None:
        known = stats.errors[key] = StatsError("E2E", tenant, error)
    known.occurred()  # counts one and stamps it
    known.occurrences += count - 1
