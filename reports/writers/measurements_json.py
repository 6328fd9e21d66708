"""``measurements.json``: everything that was measured, promised or not."""

from __future__ import annotations

import json

from reports.report import Report, Writer


def render(report: Report) -> bytes:
    """Return the measurements as a JSON array, an object a line."""
    lines = (
        json.dumps(measurement.to_json(), allow_nan=False) for measurement in report.measurements
    )
    return b"[\n" + ",\n".join(lines).encode() + b"\n]\n"


WRITER = Writer(file="measurements.json", render=render)
