"""``metrics.txt``: the measurements as OpenMetrics text, for CI systems that show how metrics changed."""

from __future__ import annotations

import math
import re

from reports.report import Report, Writer
from slas.measurement import Measurement

UNITS = {"s": "seconds", "B": "bytes", "share": "ratio", "/s": "per_second"}
STATISTICS = ("mean", "min", "p50", "p90", "p95", "p99", "p999", "max")


def render(report: Report) -> bytes:
    """Return the measurements over all runs and the whole window, in base units with four digits.

    GitLab compares values as text, so digits beyond what a repetition gives would only make noise.
    """
    families: dict[str, list[str]] = {}
    units: dict[str, str] = {}
    for measurement in report.measurements:
        if measurement.run is not None or measurement.phase is not None:
            continue
        name = _family(measurement)
        units[name] = UNITS.get(measurement.unit, "")
        families.setdefault(name, []).extend(_samples(name, measurement, report.manifest.simulated))
    lines = []
    for name, samples in sorted(families.items()):
        if samples:
            lines.append(f"# TYPE {name} gauge")
            if units[name]:
                lines.append(f"# UNIT {name} {units[name]}")
            lines += samples
    return "\n".join([*lines, "# EOF\n"]).encode()


def _family(measurement: Measurement) -> str:
    unit = UNITS.get(measurement.unit)
    stem = re.sub(r"[^a-zA-Z0-9_]", "_", f"tailgate_{measurement.metric}")
    return stem if unit is None else f"{stem}_{unit}"


def _samples(name: str, measurement: Measurement, simulated: bool) -> list[str]:
    labels = {
        "tenant": measurement.tenant,
        "node": measurement.node,
        "gpu": None if measurement.gpu is None else str(measurement.gpu),
        "simulated": "true" if simulated else None,
    }
    samples = []
    for statistic in STATISTICS:
        value = getattr(measurement, statistic)
        if value is not None and math.isfinite(value):
            said = {**labels, "statistic": "p99.9" if statistic == "p999" else statistic}
            pairs = ",".join(
                f'{label}="{_escaped(word)}"' for label, word in said.items() if word is not None
            )
            samples.append(f"{name}{{{pairs}}} {value:.4g}")
    return samples


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


WRITER = Writer(file="metrics.txt", render=render)
