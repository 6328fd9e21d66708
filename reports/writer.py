"""Every file that is derived from a finished run, by name; ``tailgate.writers`` entry points add to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from profiles.shelf import ShelfError, shelve
from reports.report import Report, Writer
from reports.writers import (
    html,
    junit,
    markdown,
    measurements_json,
    metrics_txt,
    verdict_json,
)

GROUP = "tailgate.writers"
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

    Raises ShelfError if a name or a file is taken, or if an entry point cannot be loaded or is no Writer.
    """
    known = shelve(WRITERS, GROUP)
    owners: dict[str, str] = {}
    for name, writer in known.items():
        if not isinstance(writer, Writer):
            raise ShelfError(f"{GROUP}: {name!r} is {writer!r}, which is no Writer")
        if writer.file in owners:
            raise ShelfError(
                f"{GROUP}: {name!r} and {owners[writer.file]!r} both write {writer.file}"
            )
        owners[writer.file] = name
    return known


def write_all(report: Report) -> tuple[Path, ...]:
    """Write every derived file of the run, each atomically, verdict.json last; return their paths.

    Raises WriteError if one cannot be written.
    """
    # whoever waits for verdict.json finds the rest beside it
    ordered = sorted(all_writers().values(), key=lambda writer: writer.file == "verdict.json")
    for writer in ordered:
        report.run_dir.write_atomic(writer.file, writer.render(report))
    return tuple(report.run_dir.path / writer.file for writer in ordered)
