"""Request rows on disk: ``requests/<worker>-<lane>.jsonl.gz``, one writer each, the truth of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.fault import FormatError
from reports.members import MemberReader, MemberWriter, compact
from slas.evidence import Outcome, Phase, RequestRow, UsageFrom

KIND = "requests"
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_PHASES = {phase.value: phase for phase in Phase}
_USAGE: dict[str, UsageFrom] = {"server": "server", "client": "client"}

_INTEGERS = (
    "run",
    "ordinal",
    "turn",
    "due_ns",
    "done_ns",
    "output_tokens",
    "output_planned",
)
_INTEGERS_OR_NULL = (
    "connect_ns",
    "sent_ns",
    "first_ns",
    "output_first_ns",
    "last_ns",
    "status",
    "prompt_tokens",
    "client_tokens",
)
_MOST = 2**62
"""Beyond it a difference of two stamps has no 64-bit integer; in nanoseconds it is 146 years."""


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

    Raises KeyError, TypeError or ValueError if it holds none.
    """
    gaps = stored["gaps"]
    for name in _INTEGERS:
        if type(stored[name]) is not int or abs(stored[name]) > _MOST:
            raise ValueError(f"{name} is {stored[name]!r}, no integer")
    # a later key of this format: older rows lack it
    client_tokens = stored.get("client_tokens")
    for name in _INTEGERS_OR_NULL:
        value = client_tokens if name == "client_tokens" else stored[name]
        if value is not None and (type(value) is not int or abs(value) > _MOST):
            raise ValueError(f"{name} is {value!r}, no integer and not null")
    for name in ("ns", "tokens"):
        if not set(map(type, gaps[name])) <= {int} or max(map(abs, gaps[name]), default=0) > _MOST:
            raise ValueError(f"gaps.{name} holds something that is no integer")
    return RequestRow(
        run=stored["run"],
        tenant=stored["tenant"],
        phase=_PHASES[stored["phase"]],
        burst=stored["burst"],
        ordinal=stored["ordinal"],
        session=stored["session"],
        turn=stored["turn"],
        due_ns=stored["due_ns"],
        connect_ns=stored["connect_ns"],
        sent_ns=stored["sent_ns"],
        first_ns=stored["first_ns"],
        output_first_ns=stored["output_first_ns"],
        last_ns=stored["last_ns"],
        done_ns=stored["done_ns"],
        outcome=_OUTCOMES[stored["outcome"]],
        status=stored["status"],
        stage=stored["stage"],
        why=stored["why"],
        finish=stored["finish"],
        prompt_tokens=stored["prompt_tokens"],
        output_tokens=stored["output_tokens"],
        client_tokens=client_tokens,
        output_planned=stored["output_planned"],
        usage_from=_USAGE[stored["usage_from"]],
        gaps_ns=tuple(gaps["ns"]),
        gap_tokens=tuple(gaps["tokens"]),
        reused_connection=stored["reused_connection"],
    )


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
            except (KeyError, TypeError, ValueError) as fault:
                raise FormatError(
                    self._stored.path,
                    f"line {number} is no request row: {_words(fault, stored)}",
                    "the file was changed after it was written; measure again",
                ) from fault


def _words(fault: Exception, stored: Mapping[str, Any]) -> str:
    if not isinstance(fault, KeyError):
        return str(fault)
    if fault.args[0] in (stored.get("outcome"), stored.get("phase"), stored.get("usage_from")):
        return f"{fault} is no outcome, phase or source of usage"
    return f"the key {fault} is missing"


def read_rows(path: Path) -> Iterator[RequestRow]:
    """Yield the rows of one file; whole lines before a torn tail are read.

    Raises FormatError if the file is of another kind, damaged by hand, or of a newer format.
    """
    return iter(RowReader(path))
