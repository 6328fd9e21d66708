"""The slots of closed loops: whether the engine let each of them come due in the measured window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slas.docket import Docket
from slas.evidence import Evidence, Outcome, RequestRow

TOLERATED = 0.1
"""The share of a tenant's slots that an engine may never answer before the promised concurrency was not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One closed-loop tenant in one run; each count is of slots.

    ``due`` had a request due in the measured window. Of the others, ``held`` are those whose request of the warm-up
    was not answered when the window began, ``silent`` those of them that saw no token before it ended, and
    ``quiet`` those that the engine had answered and that sent nothing more.
    """

    run: int
    tenant: str
    due: int
    held: int
    silent: int
    quiet: int

    @property
    def slots(self) -> int:
        """How many slots sent anything."""
        return self.due + self.held + self.quiet


def loops_of(evidence: Evidence) -> tuple[Loop, ...]:
    """Return how the slots of every closed-loop tenant fared in every run; needs rows."""
    newest: dict[tuple[int, str, str], RequestRow] = {}
    end_ns = evidence.window.warmup_ns + evidence.window.duration_ns
    due: set[tuple[int, str, str]] = set()
    for row in evidence.rows:
        if row.tenant not in evidence.closed_loop or row.outcome is Outcome.UNSENT:
            continue
        slot = (row.run, row.tenant, row.session)
        if evidence.window.warmup_ns <= row.due_ns < end_ns:
            due.add(slot)
        last = newest.get(slot)
        if last is None or row.due_ns >= last.due_ns:
            newest[slot] = row
    found = []
    for span in evidence.runs:
        for tenant in sorted(evidence.closed_loop):
            mine = {slot: row for slot, row in newest.items() if slot[:2] == (span.run, tenant)}
            idle = [row for slot, row in mine.items() if slot not in due]
            held = [row for row in idle if _is_held(row, evidence.window.warmup_ns)]
            found.append(
                Loop(
                    run=span.run,
                    tenant=tenant,
                    due=len(mine) - len(idle),
                    held=len(held),
                    silent=sum(_is_silent(row, end_ns) for row in held),
                    quiet=len(idle) - len(held),
                )
            )
    return tuple(found)


def _is_held(row: RequestRow, start_ns: int) -> bool:
    return row.done_ns >= start_ns or row.outcome is not Outcome.COMPLETED


def _is_silent(row: RequestRow, end_ns: int) -> bool:
    """Return whether a request saw no token although it was open until the window ended."""
    return row.done_ns >= end_ns and (row.first_ns is None or row.first_ns >= end_ns)


def held_back(docket: Docket) -> tuple[str, ...]:
    """Return, for each closed loop that an engine kept from its window, how: such an engine broke its promises."""
    if docket.columns is None:
        return ()
    return tuple(_held(docket.evidence))


def _held(evidence: Evidence) -> Iterator[str]:
    for loop in loops_of(evidence):
        if loop.quiet == 0 and loop.held and not loop.due:
            yield (
                f"none of the {loop.held:,} requests of {_whose(evidence, loop)} that were sent in the warm-up"
                " was answered before it ended, so that no other came due"
            )
        elif loop.due and loop.silent > TOLERATED * loop.slots:
            yield f"{_silent(evidence, loop)}, so that it never bore the concurrency that was planned"


def held_in_part(evidence: Evidence) -> Iterator[str]:
    """Yield, for each closed loop of which the engine held a few slots only, how many."""
    for loop in loops_of(evidence):
        if loop.due and 0 < loop.silent <= TOLERATED * loop.slots:
            yield _silent(evidence, loop)


def gone_quiet(docket: Docket) -> Iterable[str]:
    """Yield which closed loop had nothing due in the window although no engine held it: that is our own fault."""
    if docket.columns is not None:
        for loop in loops_of(docket.evidence):
            if not loop.due and (loop.quiet or not loop.held):
                yield (
                    f"no request of {_whose(docket.evidence, loop)} was due in the measured window, and the"
                    " engine held none"
                    if not loop.held
                    else f"{loop.quiet:,} of {loop.slots:,} slots of {_whose(docket.evidence, loop)} sent"
                    " nothing in the measured window, although the engine had answered them"
                )
        return
    assert docket.summaries is not None
    for kept in docket.summaries.measurements:
        if (
            kept.metric == "error_rate"
            and kept.tenant in docket.evidence.closed_loop
            and kept.phase is None
            and kept.run is not None
            and kept.count == 0
        ):
            yield (
                f"no request of {kept.tenant} was due in the measured window of run {kept.run}, and the rows"
                " that could say why are gone"
            )


def holed_loops(evidence: Evidence) -> Iterator[str]:
    """Yield which closed loops lack rows: the ordinals of each of n slots count up from its number in steps of n."""
    ordinals: dict[tuple[int, str], dict[str, list[int]]] = {}
    for row in evidence.rows:
        if row.tenant in evidence.closed_loop:
            slots = ordinals.setdefault((row.run, row.tenant), {})
            slots.setdefault(row.session, []).append(row.ordinal)
    for (run, tenant), slots in sorted(ordinals.items()):
        whole = sorted(tuple(sorted(mine)) for mine in slots.values())
        planned = [
            tuple(range(number, number + len(mine) * len(whole), len(whole)))
            for number, mine in enumerate(whole)
        ]
        if whole != planned:
            yield unnumbered(run, tenant)


def unnumbered(run: int, tenant: str) -> str:
    """Return what to say of a tenant whose ordinals have holes."""
    return (
        f"run {run}: the requests of {tenant} are not numbered through, so that some rows are gone"
    )


def _silent(evidence: Evidence, loop: Loop) -> str:
    return (
        f"{loop.silent:,} of {loop.slots:,} slots of {_whose(evidence, loop)} waited for the engine from the"
        " warm-up to the end of the measured window without a token"
    )


def _whose(evidence: Evidence, loop: Loop) -> str:
    return loop.tenant if len(evidence.runs) == 1 else f"{loop.tenant} in run {loop.run}"
