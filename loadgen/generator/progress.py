"""One second's counts and latencies per tenant, for the live pages; never for a ruling."""

from __future__ import annotations

from array import array
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
        self._ns: dict[str, dict[str, array[int]]] = {
            tenant: {latency: array("q") for latency in _LATENCIES} for tenant in self._tenants
        }

    def end(self, row: RequestRow) -> None:
        """Count a request that ended. Latencies are those of completed requests."""
        tenant = row.tenant
        if row.outcome is not Outcome.COMPLETED:
            self._failed[tenant] += 1
            self._failures[tenant, row.outcome, str(row.status or row.stage or "")] += 1
            return
        self._completed[tenant] += 1
        assert row.first_ns is not None
        assert row.last_ns is not None
        ns = self._ns[tenant]
        ns["ttft"].append(row.first_ns - row.due_ns)
        ns["e2e"].append(row.last_ns - row.due_ns)
        ns["itl"].extend(row.gaps_ns)
        if row.output_tokens > 1:
            ns["tpot"].append((row.last_ns - row.first_ns) // (row.output_tokens - 1))

    def take(self) -> tuple[Mapping[str, TenantProgress], tuple[tuple[str, str, str, int], ...]]:
        """Return the second per tenant and its failures, and begin the next."""
        tenants = {
            tenant: TenantProgress(
                due=self.due[tenant],
                sent=self.sent[tenant],
                completed=self._completed[tenant],
                failed=self._failed[tenant],
                ttft=_sparse(ns["ttft"]),
                itl=_sparse(ns["itl"]),
                tpot=_sparse(ns["tpot"]),
                e2e=_sparse(ns["e2e"]),
            )
            for tenant, ns in self._ns.items()
        }
        failures = tuple((*key, times) for key, times in self._failures.items())
        self._clear()
        return tenants, failures


def _sparse(values_ns: array[int]) -> tuple[tuple[int, int], ...]:
    """Return (bucket index, count) pairs as a Histogram of the values in microseconds has them."""
    if not values_ns:
        return ()
    values_us = np.frombuffer(values_ns, dtype=np.int64) // 1000
    over = values_us > HIGHEST_US
    buckets = bucket_of_us(np.where(over, 0, values_us))
    buckets[over] = BUCKETS - 1
    counts = np.bincount(buckets)
    used = np.flatnonzero(counts)
    return tuple(zip(used.tolist(), counts[used].tolist(), strict=True))
