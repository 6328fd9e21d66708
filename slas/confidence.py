"""How sure the evidence makes us, when the run and not the request is the unit of evidence.

Requests of one run share its luck, so their number overstates what is known: a plain binomial bound passes a
system at its limit 40 to 80 times in 100 (measured on a queue at load 0.6 to 0.8). On a frozen schedule the
spread between runs says how much they share, and the bounds below widen by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

_HOPELESS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One-sided bounds, each at the confidence; ``effective`` is the sample size once clustering is allowed for."""

    low: float
    high: float
    effective: float


def share_interval(hits: Sequence[float], sizes: Sequence[int], confidence: float) -> Interval:
    """Bound the share of hits over runs: Clopper-Pearson on a sample size deflated by the spread between runs.

    With f_r = k_r / n_r, K and n their sums and phat = max(K, 1) / n: deff = max(1, var(f) / (phat (1 - phat) /
    mean(n_r))); where deff > 1 the sample shrinks further by (z / t_{R-1})^2 (Korn and Graubard, 1998, for
    clustered proportions). Raises ValueError without runs or with an empty one.
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if k.size == 0 or not (n > 0).all():
        raise ValueError("every run needs a sample")
    shrink = _shrink(k, n, confidence)
    effective = float(n.sum() * shrink)
    low, high = _clopper_pearson(float(k.sum()) * shrink, effective, confidence)
    return Interval(low=low, high=high, effective=effective)


def _shrink(k: NDArray[np.float64], n: NDArray[np.float64], confidence: float) -> float:
    total, hits = float(n.sum()), float(k.sum())
    pooled = max(hits, 1.0) / total
    within = pooled * (1 - pooled) / float(n.mean())
    between = float(np.var(k / n, ddof=1)) if k.size > 1 else 0.0
    if between <= within:
        return 1.0
    # within is 0 only if every request is a hit, and then no two runs differ
    deff = between / within
    fewer_runs = float(ndtri(confidence) / stdtrit(k.size - 1, confidence)) ** 2
    return fewer_runs / deff


def _clopper_pearson(hits: float, size: float, confidence: float) -> tuple[float, float]:
    low = float(betaincinv(hits, size - hits + 1, 1 - confidence)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, size - hits, confidence)) if hits < size else 1.0
    return low, high


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Bound the mean over runs by Student's t. Raises ValueError with fewer than two runs."""
    if len(values) < 2:
        raise ValueError("a spread needs at least two runs")
    runs = np.asarray(values, dtype=np.float64)
    reach = float(stdtrit(runs.size - 1, confidence)) * float(np.std(runs, ddof=1))
    reach /= math.sqrt(runs.size)
    middle = float(runs.mean())
    return Interval(low=middle - reach, high=middle + reach, effective=float(runs.size))


def percentile_interval(
    runs_ns: Sequence[NDArray[np.int64]],
    requests: Sequence[int],
    share: float,
    confidence: float,
    *,
    unbounded: int,
) -> tuple[int | None, int | None]:
    """Return (low, high) of a percentile in ns: the limits between which a check would be INCONCLUSIVE.

    ``runs_ns`` are sorted latencies per run, ``unbounded`` the value that stands for a failure; None where a
    bound is above every latency that was seen. Found by bisection over the latencies themselves.
    """
    pooled = np.unique(np.concatenate(list(runs_ns)))
    pooled = pooled[pooled != unbounded]

    def beyond(limit_ns: int) -> Interval:
        hits = [
            n * (values.size - int(np.searchsorted(values, limit_ns, side="right"))) / values.size
            for values, n in zip(runs_ns, requests, strict=True)
        ]
        return share_interval(hits, requests, confidence)

    allowed = 1 - share
    low = _first(pooled.size, lambda i: beyond(int(pooled[i])).low <= allowed)
    high = _first(pooled.size, lambda i: beyond(int(pooled[i])).high <= allowed)
    return (
        None if low is None else int(pooled[low]),
        None if high is None else int(pooled[high]),
    )


def _first(size: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first index at which ``holds``, which never turns false again; None if it never does."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low if low < size else None


def fewest_requests(share: float, confidence: float) -> int:
    """Return how many requests, none of them over the limit, prove a percentile: ceil(ln a / ln p).

    >>> fewest_requests(0.99, 0.95), fewest_requests(0.5, 0.95)
    (299, 5)
    """
    return math.ceil(math.log(1 - confidence) / math.log(share))


def more_requests(
    hits: float, size: int, effective: float, allowed: float, confidence: float
) -> int | None:
    """Return about how many more requests would settle whether the share of hits is above ``allowed``.

    Assumes that hits and spread stay as they are; None if no number would, or an absurd one.
    """
    shrink = effective / size
    share = hits / size

    def settled(n: int) -> bool:
        low, high = _clopper_pearson(share * n * shrink, n * shrink, confidence)
        return low > allowed or high <= allowed

    if settled(size):
        return 0
    upper = size
    while not settled(upper):
        upper *= 2
        if upper > _HOPELESS:
            return None
    lower = upper // 2
    while lower + 1 < upper:
        middle = (lower + upper) // 2
        if settled(middle):
            upper = middle
        else:
            lower = middle
    return upper - size
