"""Times of requests: from due, the same from sent, and between reads."""

from __future__ import annotations

import numpy as np

from slas.columns import MISSING, UNBOUNDED, Bools, Columns, Ints
from slas.quantity import Latency, Samples


def _every_row(values_ns: Ints) -> Samples:
    return Samples(values_ns=values_ns, row=np.arange(values_ns.size))


def _until(columns: Columns, stamp_ns: Ints, since_ns: Ints) -> Samples:
    # a completed request that never reached the stamp is as bad as one that failed: it is never left out
    known = columns.completed & (stamp_ns != MISSING) & (since_ns != MISSING)
    return _every_row(np.where(known, stamp_ns - since_ns, UNBOUNDED))


def _ttft(columns: Columns) -> Samples:
    return _until(columns, columns.first_ns, columns.due_ns)


def _ttfo(columns: Columns) -> Samples:
    return _until(columns, columns.output_first_ns, columns.due_ns)


def _e2e(columns: Columns) -> Samples:
    return _until(columns, columns.last_ns, columns.due_ns)


def _service_ttft(columns: Columns) -> Samples:
    return _until(columns, columns.first_ns, columns.sent_ns)


def _service_ttfo(columns: Columns) -> Samples:
    return _until(columns, columns.output_first_ns, columns.sent_ns)


def _service_e2e(columns: Columns) -> Samples:
    return _until(columns, columns.last_ns, columns.sent_ns)


def _itl(columns: Columns) -> Samples:
    failed = np.flatnonzero(~columns.completed)
    row = columns.gap_row
    # gaps seen before a request failed are as real as any; the failure adds one that never ended
    return Samples(
        values_ns=np.concatenate((columns.gap_ns, np.full(failed.size, UNBOUNDED))),
        row=np.concatenate((row, failed)),
    )


def _one_per(columns: Columns, values_ns: Ints, defined: Bools) -> Samples:
    chosen = np.flatnonzero(defined | ~columns.completed)
    values_ns = np.where(columns.completed, values_ns, UNBOUNDED)
    return Samples(values_ns=values_ns[chosen], row=chosen)


def _stall(columns: Columns) -> Samples:
    longest = np.full(columns.size, MISSING)
    np.maximum.at(longest, columns.gap_row, columns.gap_ns)
    return _one_per(columns, longest, longest != MISSING)


def _tpot(columns: Columns) -> Samples:
    defined = (
        (columns.output_tokens > 1) & (columns.first_ns != MISSING) & (columns.last_ns != MISSING)
    )
    steps = np.where(defined, columns.output_tokens - 1, 1)
    span = np.where(defined, columns.last_ns - columns.first_ns, 0)
    # rounded up to a whole ns, so that rounding never keeps a promise
    return _one_per(columns, -(-span // steps), defined)


def _lateness(columns: Columns) -> Samples:
    late = columns.lateness_ns
    chosen = np.flatnonzero(late != MISSING)
    return Samples(values_ns=late[chosen], row=chosen)


TTFT = Latency(name="ttft", meaning="due to first token", samples=_ttft, clock="due")
TTFO = Latency(
    name="ttfo", meaning="due to first token that is not reasoning", samples=_ttfo, clock="due"
)
E2E = Latency(name="e2e", meaning="due to last token", samples=_e2e, clock="due")
SERVICE_TTFT = Latency(
    name="service.ttft", meaning="sent to first token", samples=_service_ttft, clock="sent"
)
SERVICE_TTFO = Latency(
    name="service.ttfo",
    meaning="sent to first token that is not reasoning",
    samples=_service_ttfo,
    clock="sent",
)
SERVICE_E2E = Latency(
    name="service.e2e", meaning="sent to last token", samples=_service_e2e, clock="sent"
)
ITL = Latency(
    name="itl",
    meaning="gap between reads that carried tokens, pooled over requests",
    samples=_itl,
    clock="gap",
    in_goodput="stall",
)
STALL = Latency(name="stall", meaning="longest gap of a request", samples=_stall, clock="gap")
TPOT = Latency(
    name="tpot",
    meaning="(last token - first token) / (output tokens - 1)",
    samples=_tpot,
    clock="gap",
)
LATENESS = Latency(
    name="lateness",
    meaning="due to sent, less the wait for a connection: the instrument's own",
    samples=_lateness,
    clock="instrument",
)
