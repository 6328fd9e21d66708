"""Ending a run early: has a promise been broken over every second of a sliding window?"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slas.expression import Expression, Statistic
from slas.histogram import BUCKETS, lower_us, rank_of
from slas.sla import Check

_NS_PER_S = 1_000_000_000
_NS_PER_US = 1_000
# A share is only believed once a single failure cannot break it; beyond this many requests none asks for more.
_MOST_NEEDED = 10_000

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSecond:
    """One tenant's second: counts of requests, and latencies of the completed ones as (bucket, count) pairs."""

    sent: int
    completed: int
    failed: int
    ttft: Pairs
    itl: Pairs
    tpot: Pairs
    e2e: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSecond:
    """One second of one generator; ``at_ns`` counts from the start of the warm-up."""

    at_ns: int
    tenants: Mapping[str, TenantSecond]


class _Window:
    """The requests of one tenant, or of all, that ended in the seconds of a window."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self.completed = 0
        self.failed = 0
        self.buckets: Counter[int] = Counter()

    def add(self, second: TenantSecond) -> None:
        self.completed += second.completed
        self.failed += second.failed
        if self._metric != "error_rate":
            pairs: Pairs = getattr(second, self._metric)
            for bucket, count in pairs:
                self.buckets[bucket] += count

    def breaks(self, expression: Expression, fewest: int) -> bool:
        """Return whether the promise is broken beyond doubt: a bucket counts at its lower edge."""
        ended = self.completed + self.failed
        if ended < fewest:
            return False
        limit = expression.limit.value
        assert limit is not None, "a limit beside a baseline has no abort_after"
        if expression.statistic is None:
            return _missed(expression, self.failed / ended, limit)
        value_ns = self._statistic_ns(expression.statistic)
        return value_ns is not None and _missed(expression, value_ns, limit)

    def _statistic_ns(self, statistic: Statistic) -> float | None:
        """Return the statistic, infinite where it falls on a failed request; None if there is nothing."""
        size = self.buckets.total() + self.failed
        if size == 0:
            return None
        if statistic.text == "mean":
            # what a failure counts is not known here; leaving it out can only miss an abort
            known = self.buckets.total()
            sums = sum(_lower_ns(bucket) * count for bucket, count in self.buckets.items())
            return sums / known if known else None
        share = {"min": 0.0, "max": 1.0}.get(statistic.text)
        rank = rank_of(float(statistic.share or 0) if share is None else share, size)
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return _lower_ns(bucket)
        return math.inf


def _lower_ns(bucket: int) -> int:
    return lower_us(min(bucket, BUCKETS - 1)) * _NS_PER_US


def _missed(expression: Expression, value: float, limit: float) -> bool:
    if expression.upper:
        return value >= limit if expression.strict else value > limit
    return value <= limit if expression.strict else value < limit


def _fewest(check: Check) -> int:
    """Return how many requests must have ended in the window before a single one can no longer break it."""
    expression = check.expression
    if expression.statistic is None:
        room = expression.limit.value or 0.0
    elif expression.statistic.share is None:
        room = 1.0
    else:
        room = float(1 - expression.statistic.share)
    needed = math.ceil(1 / room) if room * _MOST_NEEDED > 1 else _MOST_NEEDED
    return max(needed, check.min_samples or 1)


class Watch:
    """Follows the checks with ``abort_after`` through a run, second by second, all generators together.

    Seconds before ``from_ns`` (the warm-up) are left out. A window is judged once a later second has begun,
    so that every generator has spoken, and never before it is as long as ``abort_after``.
    """

    def __init__(self, checks: Iterable[Check], from_ns: int = 0) -> None:
        self._checks = tuple(check for check in checks if check.abort_after_ns is not None)
        self._from_ns = from_ns
        self._seconds: deque[tuple[int, LiveSecond]] = deque()
        self._newest = -1
        self._longest = max((_length(check) for check in self._checks), default=0)

    def observe(self, second: LiveSecond) -> Check | None:
        """Take one generator's second; return the check that is broken over its whole window, or None."""
        if not self._checks or second.at_ns < self._from_ns:
            return None
        number = (second.at_ns - self._from_ns) // _NS_PER_S
        broken = None
        if number > self._newest:
            broken = self._judge(number)
            self._newest = number
        self._seconds.append((number, second))
        while self._seconds and self._seconds[0][0] < self._newest - self._longest:
            self._seconds.popleft()
        return broken

    def _judge(self, end: int) -> Check | None:
        """Return the first check broken over the whole seconds before ``end``."""
        for check in self._checks:
            start = end - _length(check)
            if start < 0:
                continue
            seconds = [live for number, live in self._seconds if start <= number < end]
            if _broken(check, seconds):
                return check
        return None


def _length(check: Check) -> int:
    assert check.abort_after_ns is not None
    return -(-check.abort_after_ns // _NS_PER_S)


def _broken(check: Check, seconds: list[LiveSecond]) -> bool:
    expression = check.expression
    wanted = expression.tenant
    windows: dict[str | None, _Window] = {}
    for live in seconds:
        for tenant, second in live.tenants.items():
            if wanted not in (None, "*", tenant):
                continue
            key = None if wanted is None else tenant
            window = windows.setdefault(key, _Window(expression.metric.name))
            window.add(second)
    fewest = _fewest(check)
    return any(window.breaks(expression, fewest) for window in windows.values())
