"""One second's counts and latencies per tenant, for the live pages; never for a ruling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from loadgen.frames import TenantProgress
from slas.evidence import Outcome, RequestRow
from slas.histogram import BUCKETS, HIGHEST_US, bucket_of_us

_LATENCIES = ("ttft", "itl", "tpot", "e2e")


class Second:
    """What happened since the last ``take``: requests due and sent now, those that ended, and their latencies."""

    def __init__(self, tenants: Iterable[str]) -> None:
        self._tenants = tuple(tenants)
        self._clear()

    def _clear(self) -> None:
        self.due: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.lateness_max_ns = 0
        self._completed: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._failures: Counter[tuple[str, str, str]] = Counter()
        self._us: dict[str, dict[str, list[int]]] = {
            tenant: {latency: [] for latency in _LATENCIES} for tenant in self._tenants
        }

    def end(self, row: RequestRow) -> None:
        """Count a request that ended. Latencies are those of completed requests, in microseconds."""
        tenant = row.tenant
        if row.outcome is not Outcome.COMPLETED:
            self._failed[tenant] += 1
            self._failures[tenant, row.outcome, str(row.status or row.stage or "")] += 1
            return
        self._completed[tenant] += 1
        assert row.first_ns is not None
        assert row.last_ns is not None
        us = self._us[tenant]
        us["ttft"].append((row.first_ns - row.due_ns) // 1000)
        us["e2e"].append((row.last_ns - row.due_ns) // 1000)
        us["itl"].extend(gap // 1000 for gap in row.gaps_ns)
        if row.output_tokens > 1:
            us["tpot"].append((row.last_ns - row.first_ns) // (row.output_tokens - 1) // 1000)

    def take(self) -> tuple[Mapping[str, TenantProgress], tuple[tuple[str, str, str, int], ...]]:
        """Return the second per tenant and its failures, and begin the next."""
        tenants = {
            tenant: TenantProgress(
                due=self.due[tenant],
                sent=self.sent[tenant],
                completed=self._completed[tenant],
                failed=self._failed[tenant],
                ttft=_sparse(us["ttft"]),
                itl=_sparse(us["itl"]),
                tpot=_sparse(us["tpot"]),
                e2e=_sparse(us["e2e"]),
            )
            for tenant, us in self._us.items()
        }
        failures = tuple((*key, times) for key, times in self._failures.items())
        self._clear()
        return tenants, failures


def _sparse(values_us: list[int]) -> tuple[tuple[int, int], ...]:
    """Return (bucket index, count) pairs as a Histogram of the values has them, without its 188 kB."""
    if not values_us:
        return ()
    values = np.asarray(values_us, dtype=np.int64)
    over = values > HIGHEST_US
    buckets = bucket_of_us(np.where(over, 0, values))
    buckets[over] = BUCKETS - 1
    index, counts = np.unique(buckets, return_counts=True)
    return tuple(zip(index.tolist(), counts.tolist(), strict=True))
