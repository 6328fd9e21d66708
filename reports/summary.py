"""Measurements on disk: how those of measurements.json and of a pin are checked as they are read."""

from __future__ import annotations

import reprlib

from reports.shape import COUNT, NUMBER, TEXT, Shape
from slas.measurement import Measurement

_NUMBERS = ("mean", "min", "p50", "p90", "p95", "p99", "p99.9", "max")
_SHAPE = Shape(
    {
        "metric": TEXT,
        "tenant": TEXT.or_null(),
        "phase": TEXT.or_null(),
        "run": COUNT.or_null(),
        "unit": TEXT,
        "count": COUNT,
        "failed": COUNT,
        **{name: NUMBER.or_null() for name in _NUMBERS},
        "node": TEXT.or_null(may_lack=True),
        "gpu": COUNT.or_null(may_lack=True),
    }
)


def measurements_from(stored: object) -> tuple[Measurement, ...]:
    """Return the measurements that a stored list holds.

    Raises ValueError, naming the place and the key, if it is no such list.
    """
    if not isinstance(stored, list):
        raise ValueError(f"measurements are {reprlib.repr(stored)}, no list")
    found = []
    for at, body in enumerate(stored):
        if not isinstance(body, dict):
            raise ValueError(f"measurement {at} is {reprlib.repr(body)}, no object")
        try:
            found.append(Measurement.from_json(_SHAPE.read(body)))
        except ValueError as fault:
            raise ValueError(f"measurement {at}: {fault}") from fault
    return tuple(found)
