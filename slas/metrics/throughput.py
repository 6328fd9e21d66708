"""What came back per second of the measured window, whenever it was due."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slas.columns import MISSING, Bools, Columns, Ints
from slas.quantity import Rate

Amounts = NDArray[np.float64]


def _in_window(columns: Columns, at_ns: Ints) -> Bools:
    return (at_ns >= columns.window_start_ns) & (at_ns < columns.window_end_ns)


def _requests(columns: Columns) -> Amounts:
    answered = columns.completed & _in_window(columns, columns.last_ns)
    return answered.astype(np.float64)


def _output_tokens(columns: Columns) -> Amounts:
    """Return the output tokens of each request that arrived within the window.

    Reads say when tokens came, and ``output_tokens`` (the server's usage where it gives one) how many: the
    first read counts at least one, each later one its own tokens, and the total is spread over them in
    proportion, so that a server which counts more tokens than it streams in deltas is believed.
    """
    row = columns.gap_row
    gap_tokens = columns.gap_tokens.astype(np.float64)
    later = np.bincount(row, weights=gap_tokens, minlength=columns.size)
    # what the first read carried is the rest, where the client's own count is the total
    rest = columns.output_tokens - later
    first = np.where(columns.server_usage, 1.0, np.maximum(rest, 1.0))
    scale = columns.output_tokens / (first + later)
    elapsed = np.cumsum(columns.gap_ns)
    before = np.concatenate((np.zeros(1, dtype=np.int64), elapsed))[columns.gap_start[:-1]]
    at_ns = columns.first_ns[row] + elapsed - before[row]
    within = np.bincount(
        row, weights=gap_tokens * _in_window(columns, at_ns), minlength=columns.size
    )
    began = columns.first_ns != MISSING
    within = within + first * _in_window(columns, columns.first_ns)
    return np.where(began, within * scale, 0.0)


def _total_tokens(columns: Columns) -> Amounts:
    # a prompt counts when its first token comes: that is when it has been processed
    prefilled = _in_window(columns, columns.first_ns)
    unknown = columns.prompt_tokens == MISSING
    prompts = np.where(prefilled & ~unknown, columns.prompt_tokens, 0).astype(np.float64)
    # a request that failed on the way lost its usage with its last chunk: its prompt is left out
    prompts[prefilled & unknown & columns.completed] = np.nan
    return _output_tokens(columns) + prompts


REQUESTS = Rate(
    name="throughput.requests",
    meaning="requests completed per second of the measured window",
    amounts=_requests,
    unknown="no request was recorded",
)
OUTPUT_TOKENS = Rate(
    name="throughput.output_tokens",
    meaning="output tokens received per second of the measured window",
    amounts=_output_tokens,
    unknown="no request was recorded",
)
TOTAL_TOKENS = Rate(
    name="throughput.total_tokens",
    meaning="prompt and output tokens per second of the measured window",
    amounts=_total_tokens,
    unknown="the engine did not report how many tokens its prompts had",
)
