"""Whether a run at a constant rate ever settled: the marginal standard error rule MSER-5 (White, 1997)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slas.columns import MISSING, Columns

_BATCH = 5
_FEWEST_BATCHES = 6
_NS_PER_S = 1_000_000_000


def truncation(series: NDArray[np.float64]) -> int | None:
    """Return how many leading values to cut so that the mean of the rest is surest; None if it never settles.

    Over means of batches of five, d* = argmin var(d) / (m - d), searched in the first half.
    """
    batches = series.size // _BATCH
    means = series[: batches * _BATCH].reshape(batches, _BATCH).mean(axis=1)
    left = batches - np.arange(batches)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum(means[::-1] ** 2)[::-1]
    error = np.maximum(squares / left - (sums / left) ** 2, 0.0) / left
    searched = batches // 2
    cut = int(np.argmin(error[:searched]))
    return None if cut == searched - 1 else cut * _BATCH


def unsettled_runs(columns: Columns, warmup_ns: int) -> dict[int, str]:
    """Return, for each run whose per-second median TTFT was still moving after the warm-up, what was seen."""
    warm_s = math.ceil(warmup_ns / _NS_PER_S / _BATCH) * _BATCH
    second = columns.due_ns // _NS_PER_S
    answered = columns.completed & (columns.first_ns != MISSING)
    answered &= columns.due_ns < columns.window_end_ns
    found: dict[int, str] = {}
    for index, run in enumerate(columns.runs):
        mine = answered & (columns.run == index)
        series = _medians(second[mine], (columns.first_ns - columns.due_ns)[mine])
        if series.size < _BATCH * _FEWEST_BATCHES:
            continue
        cut = truncation(series)
        if cut is None:
            found[run] = "its TTFT never settled"
        elif cut > warm_s:
            found[run] = f"its TTFT settled only {cut} s after the start of the warm-up"
    return found


def _medians(second: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.float64]:
    order = np.argsort(second, kind="stable")
    parts = np.split(values[order], np.flatnonzero(np.diff(second[order])) + 1)
    return np.array([np.median(part) for part in parts if part.size], dtype=np.float64)
