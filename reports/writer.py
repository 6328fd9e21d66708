"""Every file that is derived from a finished run, by name; ``tailgate.writers`` entry points add to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from reports.report import Report, Writer
from reports.writers import (
    html,
    junit,
    markdown,
    measurements_json,
    metrics_txt,
    verdict_json,
)

WRITERS: dict[str, Writer] = {
    "verdict": verdict_json.WRITER,
    "measurements": measurements_json.WRITER,
    "junit": junit.WRITER,
    "markdown": markdown.WRITER,
    "metrics": metrics_txt.WRITER,
    "html": html.WRITER,
}


@cache
def all_writers() -> Mapping[str, Writer]:
    """Return our writers and those of installed packages.

    Raises ValueError if a package brings a name or a file that is taken, or something that is no Writer.
    """
    found = dict(WRITERS)
    for point in entry_points(group="tailgate.writers"):
        writer = point.load()
        if not isinstance(writer, Writer):
            raise ValueError(
                f"entry point {point.name} = {point.value} is no reports.report.Writer"
            )
        if point.name in found or writer.file in {known.file for known in found.values()}:
            raise ValueError(f"entry point {point.name}: the name or {writer.file} is taken")
        found[point.name] = writer
    return found


def write_all(report: Report) -> tuple[Path, ...]:
    """Write every derived file of the run, each atomically, verdict.json last; return their paths.

    Raises WriteError if one cannot be written.
    """
    # whoever waits for verdict.json finds the rest beside it
    ordered = sorted(all_writers().values(), key=lambda writer: writer.file == "verdict.json")
    for writer in ordered:
        report.run_dir.write_atomic(writer.file, writer.render(report))
    return tuple(report.run_dir.path / writer.file for writer in ordered)
