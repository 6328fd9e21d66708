"""Replay of a recorded trace: its arrivals and its lengths, as they were or faster and scaled.

To add a format: a file in ``traces/`` with a function that yields ``TraceRow`` and a line in ``TRACES``; from
outside, an entry point of the group ``tailgate.traces``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from profiles.lengths import MOST_TOKENS, Empirical
from profiles.sheet import Duration, RefusalError, Strict, nearest, shown
from profiles.shelf import shelve
from profiles.tracerow import TraceError, TraceRow
from profiles.traces import azure

TraceFormat = Callable[[Path], Iterator[TraceRow]]
TRACES: dict[str, TraceFormat] = {
    "azure": azure.rows,
}
LATER = frozenset({"mooncake", "burstgpt", "servegen"})

# more would be minutes of looking through them, before a run and again in every generator
MOST_ROWS = 10_000_000
# the longest that instants in int64 ns can span: 292 years
MOST_NS = 2**63 - 1
# stamps closer than this are a clock's resolution, not a tick that somebody rounded to
_COARSE_NS = 1_000_000
_SAMPLE_ROWS = 1024


@cache
def traces() -> Mapping[str, TraceFormat]:
    """Return every trace format by name, other packages' included.

    Raises ShelfError when two have one name.
    """
    return shelve(TRACES, "tailgate.traces")


def _known_format(name: str) -> str:
    formats = traces()
    if name in LATER and name not in formats:
        raise RefusalError(
            f"{shown(name)} is not yet supported", "use one of " + ", ".join(formats)
        )
    if name not in formats:
        raise RefusalError(f"unknown trace format {shown(name)}", nearest(name, formats))
    return name


class ScaleSheet(Strict):
    """What a trace's token counts are multiplied by, to fit another model."""

    prompt: float = Field(default=1, gt=0, le=1000)
    output: float = Field(default=1, gt=0, le=1000)


class SliceSheet(Strict):
    """The part of a trace that is replayed, in the trace's own time, from its first row."""

    from_: Duration = Field(default="0s", alias="from", validate_default=True)
    for_: Duration | None = Field(default=None, alias="for")


class TraceSheet(Strict):
    """A trace as a sheet names it; ``file`` is relative to the sheet."""

    later: ClassVar[frozenset[str]] = frozenset({"loop"})
    file: str = Field(min_length=1)
    format: Annotated[
        str, AfterValidator(_known_format), Field(json_schema_extra={"enum": list(TRACES)})
    ]
    speed: float = Field(default=1, ge=0.001, le=1_000_000)
    scale: ScaleSheet = Field(default_factory=ScaleSheet)
    slice: SliceSheet = Field(default_factory=SliceSheet)
    dequantise: Literal["auto", "none"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that was looked through once: where it is and what a replay of it needs to know ahead.

    ``tick_ns`` is the step that its stamps were rounded to, None where they were not. ``rate_hz`` is the mean
    rate of the replayed part, after ``speed``; ``prompt_tokens`` and ``output_tokens`` its first rows' lengths, scaled.
    """

    path: Path
    format: str
    speed: float
    prompt_scale: float
    output_scale: float
    from_ns: int
    for_ns: int | None
    tick_ns: int | None
    rate_hz: float
    prompt_tokens: Empirical
    output_tokens: Empirical

    def rows(self) -> Iterator[TraceRow]:
        """Yield the replayed rows; ``at_ns`` counts from the start of the slice, speed applied, tokens scaled.

        Raises TraceError as the format does.
        """
        for row in _slice(self):
            yield TraceRow(
                int(row.at_ns / self.speed),
                _scaled(row.prompt_tokens, self.prompt_scale),
                _scaled(row.output_tokens, self.output_scale),
                row.line,
            )

    def spread_rows(self, rng: np.random.Generator) -> Iterator[TraceRow]:
        """Yield the rows with those of one tick spread uniformly over it, if the stamps were rounded."""
        if self.tick_ns is None:
            yield from self.rows()
            return
        tick_ns = self.tick_ns / self.speed
        for at_ns, tick in groupby(self.rows(), key=lambda row: row.at_ns):
            rows = list(tick)
            offsets_ns = np.sort(rng.random(len(rows))) * tick_ns
            for row, offset_ns in zip(rows, offsets_ns.tolist(), strict=True):
                yield row._replace(at_ns=at_ns + int(offset_ns))


def _slice(trace: Trace) -> Iterator[TraceRow]:
    """Yield the rows of the slice as recorded, ``at_ns`` from the slice's start."""
    start_ns: int | None = None
    for row in traces()[trace.format](trace.path):
        if start_ns is None:
            start_ns = row.at_ns + trace.from_ns
        if row.at_ns < start_ns:
            continue
        if trace.for_ns is not None and row.at_ns >= start_ns + trace.for_ns:
            return
        at_ns = row.at_ns - start_ns
        if at_ns > MOST_NS:
            fault = "more than 292 years after the first row that is replayed"
            raise TraceError(row.line, fault, "mend its stamp")
        yield row._replace(at_ns=at_ns)


def _scaled(tokens: int, scale: float) -> int:
    # a request without tokens cannot be sent, so the least is one
    return min(max(1, round(tokens * scale)), MOST_TOKENS)


class _Survey:
    """What one pass over the rows of a trace finds."""

    def __init__(self) -> None:
        self.rows = 0
        self.last_ns = 0
        self.prompts: list[int] = []
        self.outputs: list[int] = []
        self._zero_gaps = 0
        self._step_ns = 0

    def add(self, row: TraceRow) -> None:
        gap_ns = row.at_ns - self.last_ns
        if self.rows:
            self._zero_gaps += gap_ns == 0
            self._step_ns = math.gcd(self._step_ns, gap_ns)
        self.rows += 1
        self.last_ns = row.at_ns
        if len(self.prompts) < _SAMPLE_ROWS:
            self.prompts.append(row.prompt_tokens)
            self.outputs.append(row.output_tokens)

    def tick_ns(self) -> int | None:
        """Return the step that stamps were rounded to: most gaps are 0 and all others share it."""
        rounded = 2 * self._zero_gaps > self.rows - 1 and self._step_ns >= _COARSE_NS
        return self._step_ns if rounded else None


def trace_file(folder: Path, file: str) -> Path:
    """Return the path of a trace that a sheet in ``folder`` names.

    Raises TraceError when there is no such file.
    """
    try:
        path = (folder / file).resolve()
        found = path.is_file()
        fault = "not a file" if path.exists() else "no such file"
    except (OSError, RuntimeError) as error:
        # a name or a path too long, a circle of links
        said = getattr(error, "strerror", None) or str(error)
        raise TraceError(0, f"cannot be looked up: {shown(said)}", "check the path") from None
    if not found:
        raise TraceError(0, f"{fault}: {path}", "the path counts from the sheet's folder")
    return path


def survey(sheet: TraceSheet, folder: Path, window_ns: int) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace, read through once as far as ``window_ns`` of replay needs it, and warnings.

    Raises TraceError when the file cannot be read, holds a malformed row or has none in the slice.
    """
    path = trace_file(folder, sheet.file)
    trace = Trace(
        path=path,
        format=sheet.format,
        speed=sheet.speed,
        prompt_scale=sheet.scale.prompt,
        output_scale=sheet.scale.output,
        from_ns=sheet.slice.from_,
        for_ns=sheet.slice.for_,
        tick_ns=None,
        rate_hz=0.0,
        prompt_tokens=Empirical(seen=()),
        output_tokens=Empirical(seen=()),
    )
    found = _Survey()
    ended = True
    for row in _slice(trace):
        if int(row.at_ns / trace.speed) >= window_ns:
            ended = False
            break
        found.add(row)
        if found.rows > MOST_ROWS:
            fault = f"more than {MOST_ROWS:,} rows up to here in the replayed part"
            raise TraceError(row.line, fault, "replay a shorter slice, or more slowly (`speed`)")
    if found.rows == 0:
        raise TraceError(0, "no rows in the replayed part", "name an earlier slice")
    warnings = []
    tick_ns = found.tick_ns()
    if tick_ns is not None:
        shown = f"{tick_ns / 1e9:g} s"
        if sheet.dequantise == "auto":
            warnings.append(
                f"{path.name}: stamps are rounded to {shown}; its requests are spread over each tick "
                "(dequantise: none replays them as one volley)"
            )
        else:
            warnings.append(f"{path.name}: stamps are rounded to {shown} and replayed as volleys")
    last_ns = int(found.last_ns / trace.speed)
    if ended and last_ns:
        warnings.append(
            f"{path.name}: ends {last_ns / 1e9:.1f} s into a window of {window_ns / 1e9:.1f} s; "
            "the rest of the window has no requests of this tenant"
        )
    replayed = replace(
        trace,
        tick_ns=tick_ns if sheet.dequantise == "auto" else None,
        rate_hz=found.rows * 1e9 / (last_ns if ended and last_ns else window_ns),
        prompt_tokens=Empirical(
            seen=tuple(_scaled(tokens, trace.prompt_scale) for tokens in found.prompts)
        ),
        output_tokens=Empirical(
            seen=tuple(_scaled(tokens, trace.output_scale) for tokens in found.outputs)
        ),
    )
    return replayed, tuple(warnings)
