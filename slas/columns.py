"""The rows of a run as numpy columns, built once, so that a hundred thousand requests are measured in a second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from slas.evidence import NO_CONNECTION, Evidence, Outcome, RequestRow

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MISSING: Final = np.iinfo(np.int64).min
"""A stamp that was never taken."""
UNBOUNDED: Final = np.iinfo(np.int64).max
"""A latency above every limit: that of a request that failed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """One array element per request; all ``_ns`` are int64 nanoseconds, MISSING where a row has None.

    ``tenant`` and ``run`` index ``tenants`` and ``runs``. ``measured`` says which requests were due in the
    measured window, and ``given_up`` which were waited for until a limit of ours passed. The gaps of all rows lie one after another: those of row i are
    ``gap_ns[gap_start[i]:gap_start[i + 1]]``, and ``gap_row`` names the row of every gap. ``read_late_ns`` is how
    much later than it came each request may have been read, where that is to be forgiven; else None.
    """

    tenants: tuple[str, ...]
    runs: tuple[int, ...]
    tenant: Ints
    run: Ints
    ordinal: Ints
    due_ns: Ints
    connect_ns: Ints
    sent_ns: Ints
    first_ns: Ints
    output_first_ns: Ints
    last_ns: Ints
    done_ns: Ints
    status: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    completed: Bools
    unsent: Bools
    given_up: Bools
    server_usage: Bools
    burst: Bools
    measured: Bools
    gap_ns: Ints
    gap_tokens: Ints
    gap_start: Ints
    gap_row: Ints
    window_start_ns: int
    window_end_ns: int
    total_timeout_ns: int
    read_late_ns: Ints | None = None

    @property
    def size(self) -> int:
        """The number of requests."""
        return int(self.due_ns.size)

    @property
    def lateness_ns(self) -> Ints:
        """Due to sent, less the wait for a connection; UNBOUNDED for the unsent, MISSING if refused unsent.

        A connection that could not be made is the engine's answer, not the instrument's lateness.
        """
        waited = np.where(self.connect_ns == MISSING, 0, self.connect_ns)
        late = np.maximum(self.sent_ns - waited - self.due_ns, 0)
        late = np.where(self.sent_ns == MISSING, MISSING, late)
        return np.where(self.unsent, UNBOUNDED, late)

    def punctual(self) -> Columns:
        """Return the same requests as if the instrument had been on time: due moved to where sending began.

        The wait for a connection stays inside every latency, since it is the engine's; membership of the
        measured window stays as it was.
        """
        late = self.lateness_ns
        moved = np.where((late == MISSING) | (late == UNBOUNDED), 0, late)
        return replace(self, due_ns=self.due_ns + moved)

    def hasty(self, reach_ns: int) -> Bools:
        """Return which requests were given up on before ``reach_ns`` from due had passed."""
        soon: Bools = self.given_up & (self.done_ns - self.due_ns <= reach_ns)
        return soon

    def answered_in_window(self, hasty: Bools) -> Columns:
        """Return the requests as if all that was due in the window and came, or is ``hasty``, had come in it.

        A hasty one is taken as long as those that completed are on average.
        """
        usual = self.measured & self.completed
        mine = self.measured & hasty

        def filled(tokens: Ints) -> Ints:
            known = tokens[usual & (tokens != MISSING)]
            mean = int(known.mean()) if known.size else 0
            return np.where(mine, np.maximum(tokens, mean), tokens)

        def moved(stamps_ns: Ints) -> Ints:
            return np.where(mine | (self.measured & (stamps_ns != MISSING)), self.due_ns, stamps_ns)

        return replace(
            self,
            first_ns=moved(self.first_ns),
            last_ns=moved(self.last_ns),
            completed=self.completed | mine,
            prompt_tokens=filled(self.prompt_tokens),
            output_tokens=filled(self.output_tokens),
            gap_ns=np.where(self.measured[self.gap_row], 0, self.gap_ns),
        )

    def read_in_time(self, *, gaps: bool) -> Columns:
        """Return the same requests without ``read_late_ns`` in their gaps, or in the times from due and from sent.

        A late read stretches one gap and moves the last token, or moves the token that a wait ends with.
        """
        late = self.read_late_ns
        if late is None:
            return self
        if gaps:
            return replace(
                self,
                gap_ns=self.gap_ns - late[self.gap_row],
                last_ns=np.where(self.last_ns == MISSING, MISSING, self.last_ns - late),
            )
        return replace(
            self,
            due_ns=self.due_ns + late,
            sent_ns=np.where(self.sent_ns == MISSING, MISSING, self.sent_ns + late),
        )

    def of_tenant(self, tenant: str | None) -> Bools:
        """Return which requests are a tenant's; None is every tenant, and an unknown one has none."""
        if tenant is None:
            return np.ones(self.size, dtype=np.bool_)
        index = self.tenants.index(tenant) if tenant in self.tenants else -1
        mine: Bools = self.tenant == index
        return mine

    def where(self, *, tenant: str | None = None, phase: str | None = None) -> Bools:
        """Return which requests of the measured window belong to a tenant and to a phase (burst or calm)."""
        mask = self.measured & self.of_tenant(tenant)
        if phase is not None:
            mask = mask & (self.burst if phase == "burst" else ~self.burst)
        return mask


def columns_of(evidence: Evidence) -> Columns:
    """Return the columns of all rows. A tenant or a run that only a row names is added, never dropped."""
    rows = evidence.rows
    tenants = _known(evidence.tenants, (row.tenant for row in rows))
    runs = tuple(sorted({span.run for span in evidence.runs} | {row.run for row in rows}))
    tenant_index = {name: index for index, name in enumerate(tenants)}
    run_index = {run: index for index, run in enumerate(runs)}
    start_ns = evidence.window.warmup_ns
    end_ns = start_ns + evidence.window.duration_ns
    due_ns = _ints(row.due_ns for row in rows)
    gap_counts = _ints(len(row.gaps_ns) for row in rows)
    gap_start = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(gap_counts, out=gap_start[1:])
    return Columns(
        tenants=tenants,
        runs=runs,
        tenant=_ints(tenant_index[row.tenant] for row in rows),
        run=_ints(run_index[row.run] for row in rows),
        ordinal=_ints(row.ordinal for row in rows),
        due_ns=due_ns,
        connect_ns=_stamps(row.connect_ns for row in rows),
        sent_ns=_stamps(row.sent_ns for row in rows),
        first_ns=_stamps(row.first_ns for row in rows),
        output_first_ns=_stamps(row.output_first_ns for row in rows),
        last_ns=_stamps(row.last_ns for row in rows),
        done_ns=_ints(row.done_ns for row in rows),
        status=_stamps(row.status for row in rows),
        prompt_tokens=_stamps(row.prompt_tokens for row in rows),
        output_tokens=_ints(row.output_tokens for row in rows),
        # an answer without a token is none, whatever its row says
        completed=_bools(
            row.outcome is Outcome.COMPLETED
            and row.first_ns is not None
            and row.last_ns is not None
            for row in rows
        ),
        unsent=_bools(row.outcome is Outcome.UNSENT for row in rows),
        given_up=_bools(
            row.outcome is Outcome.TIMED_OUT
            or (
                row.outcome is Outcome.REFUSED
                and row.stage == "connect"
                and (row.why or "").startswith(NO_CONNECTION)
            )
            for row in rows
        ),
        server_usage=_bools(row.usage_from == "server" for row in rows),
        burst=_bools(row.burst for row in rows),
        measured=(due_ns >= start_ns) & (due_ns < end_ns),
        gap_ns=_ints(chain.from_iterable(row.gaps_ns for row in rows), int(gap_start[-1])),
        gap_tokens=_gap_tokens(rows, int(gap_start[-1])),
        gap_start=gap_start,
        gap_row=np.repeat(np.arange(len(rows)), gap_counts),
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        total_timeout_ns=evidence.window.total_timeout_ns,
    )


def _known(named: tuple[str, ...], seen: Iterable[str]) -> tuple[str, ...]:
    extra = sorted(set(seen) - set(named))
    return (*named, *extra)


def _ints(values: Iterable[int], count: int = -1) -> Ints:
    return np.fromiter(values, dtype=np.int64, count=count)


def _stamps(values: Iterable[int | None]) -> Ints:
    return np.fromiter((MISSING if value is None else value for value in values), dtype=np.int64)


def _bools(values: Iterable[bool]) -> Bools:
    return np.fromiter(values, dtype=np.bool_)


def _gap_tokens(rows: tuple[RequestRow, ...], count: int) -> Ints:
    for row in rows:
        if len(row.gaps_ns) != len(row.gap_tokens):
            raise ValueError(
                f"row {row.tenant}/{row.ordinal} of run {row.run} has {len(row.gaps_ns)} gaps"
                f" but tokens for {len(row.gap_tokens)}"
            )
    return _ints(chain.from_iterable(row.gap_tokens for row in rows), count)
