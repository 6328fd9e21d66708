"""Request rows on disk: ``requests/<worker>-<lane>.jsonl.gz``, one writer each, the truth of a run."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.fault import FormatError
from reports.members import MemberReader, MemberWriter, compact
from reports.shape import COUNT, FLAG, OBJECT, STAMP, TEXT, Shape, integers
from slas.evidence import Outcome, Phase, RequestRow, UsageFrom

KIND = "requests"
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_PHASES = {phase.value: phase for phase in Phase}
_USAGE: dict[str, UsageFrom] = {"server": "server", "client": "client"}
_SHAPE = Shape(
    {
        "run": COUNT,
        "tenant": TEXT,
        "phase": TEXT,
        "burst": FLAG,
        "ordinal": COUNT,
        "session": TEXT,
        "turn": COUNT,
        "due_ns": STAMP,
        "connect_ns": STAMP.or_null(),
        "sent_ns": STAMP.or_null(),
        "first_ns": STAMP.or_null(),
        "output_first_ns": STAMP.or_null(),
        "last_ns": STAMP.or_null(),
        "done_ns": STAMP,
        "outcome": TEXT,
        "status": COUNT.or_null(),
        "stage": TEXT.or_null(),
        "why": TEXT.or_null(),
        "finish": TEXT.or_null(),
        "prompt_tokens": COUNT.or_null(),
        "output_tokens": COUNT,
        "client_tokens": COUNT.or_null(may_lack=True),
        "output_planned": COUNT,
        "usage_from": TEXT,
        "gaps": OBJECT,
        "reused_connection": FLAG,
    }
)


class RowWriter(MemberWriter):
    """Appends request rows, as values or as lines made ahead with ``row_line``.

    Raises WriteError if the file system refuses; see MemberWriter.
    """

    __slots__ = ()

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        super().__init__(path, KIND, header)

    def append(self, rows: Iterable[bytes | RequestRow]) -> None:
        """Keep the rows for the next flush."""
        super().append(row if isinstance(row, bytes) else row_line(row) for row in rows)


def row_json(row: RequestRow) -> dict[str, object]:
    """Return the row as the JSON object that is stored. Stamps and gaps are integer nanoseconds."""
    return {
        "run": row.run,
        "tenant": row.tenant,
        "phase": row.phase,
        "burst": row.burst,
        "ordinal": row.ordinal,
        "session": row.session,
        "turn": row.turn,
        "due_ns": row.due_ns,
        "connect_ns": row.connect_ns,
        "sent_ns": row.sent_ns,
        "first_ns": row.first_ns,
        "output_first_ns": row.output_first_ns,
        "last_ns": row.last_ns,
        "done_ns": row.done_ns,
        "outcome": row.outcome,
        "status": row.status,
        "stage": row.stage,
        "why": row.why,
        "finish": row.finish,
        "prompt_tokens": row.prompt_tokens,
        "output_tokens": row.output_tokens,
        "client_tokens": row.client_tokens,
        "output_planned": row.output_planned,
        "usage_from": row.usage_from,
        "gaps": {"ns": row.gaps_ns, "tokens": row.gap_tokens},
        "reused_connection": row.reused_connection,
    }


def row_line(row: RequestRow) -> bytes:
    """Return the row as its line of JSON, without the newline."""
    return compact(row_json(row))


def row_from(stored: Mapping[str, Any]) -> RequestRow:
    """Return the row that a stored object holds.

    Raises ValueError, naming the key, if it holds none.
    """
    fields = _SHAPE.read(stored)
    gaps = fields.pop("gaps")
    try:
        fields["phase"] = _PHASES[fields["phase"]]
        fields["outcome"] = _OUTCOMES[fields["outcome"]]
        fields["usage_from"] = _USAGE[fields["usage_from"]]
        gaps_ns, gap_tokens = gaps["ns"], gaps["tokens"]
    except KeyError as fault:
        raise ValueError(_lacking(stored)) from fault
    gaps_ns = integers("gaps.ns", gaps_ns)
    gap_tokens = integers("gaps.tokens", gap_tokens)
    if len(gaps_ns) != len(gap_tokens):
        raise ValueError(f"gaps.ns has {len(gaps_ns)} values and gaps.tokens {len(gap_tokens)}")
    return RequestRow(gaps_ns=gaps_ns, gap_tokens=gap_tokens, **fields)


def _lacking(stored: Mapping[str, Any]) -> str:
    """Return in words which key holds no word that is known, or which list of gaps is missing."""
    for name, known in (("phase", _PHASES), ("outcome", _OUTCOMES), ("usage_from", _USAGE)):
        if stored[name] not in known:
            return f"{name} is {reprlib.repr(stored[name])}, not one of {', '.join(known)}"
    return f"the key 'gaps.{'tokens' if 'ns' in stored['gaps'] else 'ns'}' is missing"


class RowReader:
    """The rows of one file, in the order written; ``torn`` counts what was cut off, after the iteration."""

    def __init__(self, path: Path) -> None:
        self._stored = MemberReader(path, KIND)

    @property
    def torn(self) -> int:
        """Members or lines that could not be read."""
        return self._stored.torn

    def __iter__(self) -> Iterator[RequestRow]:
        for number, stored in enumerate(self._stored, start=2):
            try:
                yield row_from(stored)
            except ValueError as fault:
                raise FormatError(
                    self._stored.path,
                    f"line {number} is no request row: {fault}",
                    "the file was changed after it was written; measure again",
                ) from fault


def read_rows(path: Path) -> Iterator[RequestRow]:
    """Yield the rows of one file; whole lines before a torn tail are read.

    Raises FormatError if the file is of another kind, damaged by hand, or of a newer format.
    """
    return iter(RowReader(path))
