"""Shares of the requests that were due."""

from __future__ import annotations

from slas.columns import Bools, Columns
from slas.quantity import Bound, Ratio

# what a server says when it sheds load: RFC 6585 section 4 and RFC 9110 section 15.6.4
_TOO_MANY = 429
_UNAVAILABLE = 503


def _failed(columns: Columns, _: tuple[Bound, ...]) -> Bools:
    return ~columns.completed


def _rejected(columns: Columns, _: tuple[Bound, ...]) -> Bools:
    shed: Bools = (columns.status == _TOO_MANY) | (columns.status == _UNAVAILABLE)
    return shed & ~columns.completed


def _good(columns: Columns, bounds: tuple[Bound, ...]) -> Bools:
    good = columns.completed.copy()
    for bound in bounds:
        samples = bound.latency.seen(columns)
        missed = (
            samples.values_ns >= bound.limit_ns
            if bound.strict
            else samples.values_ns > bound.limit_ns
        )
        good[samples.row[missed]] = False
    return good


ERROR_RATE = Ratio(
    name="error_rate", meaning="requests due and not completed / requests due", counted=_failed
)
REJECTIONS = Ratio(
    name="rejections", meaning="requests answered 429 or 503 / requests due", counted=_rejected
)
GOODPUT = Ratio(
    name="goodput",
    meaning="requests completed within every bound / requests due",
    counted=_good,
    good=True,
    bounded=True,
)
