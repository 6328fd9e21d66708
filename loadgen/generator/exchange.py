"""One request from due to done: its stamps, its reply and how it ended. Sans-IO; the wire moves its bytes.

Stamps here are this host's monotonic clock in ns; rows count from the start of the warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import sub
from typing import TYPE_CHECKING

from loadgen.generator.reply import Reply
from profiles.profile import Timeouts
from profiles.schedule import PlannedRequest
from slas.evidence import Outcome, Phase, RequestRow

if TYPE_CHECKING:
    import asyncio

    from loadgen.generator.turns import Turns
    from loadgen.generator.wire import Wire

# finish reasons with which a server says that it gave up; the tokens so far are no answer
GAVE_UP = frozenset({"abort", "error"})
WHY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an exchange ended, in the words of a row."""

    outcome: Outcome
    stage: str | None = None
    why: str | None = None


class Exchange:
    """One request under way.

    ``connect_ns`` is the length of its wait for a new connection, None if one was open. ``tokens_seen`` is how
    many of its tokens an earlier second already counted.
    """

    __slots__ = (
        "connect_ns",
        "connecting_ns",
        "done_ns",
        "due_ns",
        "ending",
        "look_again_ns",
        "merged_seen",
        "planned",
        "reply",
        "request",
        "reused",
        "sent_ns",
        "task",
        "tokens_seen",
        "turns",
        "wire",
    )

    def __init__(self, planned: PlannedRequest, due_ns: int, request: bytes, reply: Reply) -> None:
        self.planned = planned
        self.due_ns = due_ns
        self.request = request
        self.reply = reply
        self.turns: Turns | None = None
        self.connecting_ns: int | None = None
        self.connect_ns: int | None = None
        self.sent_ns: int | None = None
        self.done_ns = 0
        self.reused = False
        self.ending: Ending | None = None
        self.look_again_ns = 0
        self.tokens_seen = 0
        self.merged_seen = 0
        self.wire: Wire | None = None
        self.task: asyncio.Task[None] | None = None

    def overdue(self, now_ns: int, timeouts: Timeouts) -> str | None:
        """Return the stage whose limit has passed, or None and when to look again in ``look_again_ns``."""
        stage, at_ns = self._next_limit(timeouts)
        if now_ns >= at_ns:
            return stage
        self.look_again_ns = at_ns
        return None

    def _next_limit(self, timeouts: Timeouts) -> tuple[str, int]:
        stage, at_ns = "total", self.due_ns + timeouts.total_ns
        if self.sent_ns is None:
            started_ns = self.due_ns if self.connecting_ns is None else self.connecting_ns
            other, other_ns = "connect", started_ns + timeouts.connect_ns
        elif self.reply.stamps:
            other, other_ns = "idle", self.reply.stamps[-1] + timeouts.idle_ns
        else:
            other, other_ns = "first_token", self.sent_ns + timeouts.first_token_ns
        return (other, other_ns) if other_ns < at_ns else (stage, at_ns)

    def lateness_ns(self) -> int | None:
        """Return due to sent less the wait for a connection: the instrument's own fault. None if not sent."""
        if self.sent_ns is None:
            return None
        return self.sent_ns - self.due_ns - (self.connect_ns or 0)


def judge(reply: Reply, *, lost: str | None = None, overdue: str | None = None) -> Ending:
    """Return how an exchange ended that was sent, from its reply and from what ended it.

    ``lost`` says why the connection went away, ``overdue`` which limit passed; both None if the reply is over.
    What the server had already finished is not undone by either.
    """
    status = reply.status
    if status is not None and not 200 <= status < 300:
        return Ending(outcome=Outcome.REFUSED, why=reply.words()[:WHY] or None)
    stage = "head" if status is None else "stream"
    if reply.error is not None:
        return Ending(outcome=Outcome.BROKEN, stage=stage, why=reply.error[:WHY])
    if reply.ended:
        if reply.finish in GAVE_UP:
            why = f"the server gave up: finish reason {reply.finish!r}"
            return Ending(outcome=Outcome.BROKEN, stage=stage, why=why)
        if not reply.stamps:
            return Ending(outcome=Outcome.BROKEN, stage=stage, why="no tokens")
        open_end = overdue and "the reply was left open after its last event"
        # a reply whose end is the connection's lost nothing with it
        notes = filter(None, (None if reply.over else lost or open_end, reply.doubt))
        return Ending(outcome=Outcome.COMPLETED, why="; ".join(notes)[:WHY] or None)
    if overdue is not None:
        return Ending(outcome=Outcome.TIMED_OUT, stage=overdue)
    if lost is not None and not reply.over:
        return Ending(outcome=Outcome.BROKEN, stage=stage, why=lost[:WHY])
    if not reply.stamps:
        return Ending(outcome=Outcome.BROKEN, stage=stage, why="no tokens")
    why = "the stream ended without a finish reason or [DONE]"
    return Ending(outcome=Outcome.BROKEN, stage=stage, why=why)


def row(exchange: Exchange, *, run: int, start_ns: int, warmup_ns: int) -> RequestRow:
    """Return the row of an exchange that has ended. ``gap_tokens`` are the client's own count of deltas."""
    planned = exchange.planned
    reply = exchange.reply
    ending = exchange.ending
    assert ending is not None, "a row is written when its exchange has ended"
    gaps_ns, gap_tokens = _gaps(reply)
    due_ns = exchange.due_ns - start_ns
    counted = reply.completion_tokens
    return RequestRow(
        run=run,
        tenant=planned.tenant,
        phase=Phase.WARMUP if due_ns < warmup_ns else Phase.MEASURE,
        burst=planned.burst,
        ordinal=planned.ordinal,
        session=planned.session,
        turn=planned.turn,
        due_ns=due_ns,
        connect_ns=exchange.connect_ns,
        sent_ns=None if exchange.sent_ns is None else exchange.sent_ns - start_ns,
        first_ns=reply.stamps[0] - start_ns if reply.stamps else None,
        output_first_ns=(
            None if reply.output_first_ns is None else reply.output_first_ns - start_ns
        ),
        last_ns=reply.stamps[-1] - start_ns if reply.stamps else None,
        done_ns=exchange.done_ns - start_ns,
        outcome=ending.outcome,
        status=reply.status,
        stage=ending.stage,
        why=ending.why,
        finish=reply.finish,
        prompt_tokens=reply.prompt_tokens,
        output_tokens=len(reply.stamps) if counted is None else counted,
        client_tokens=len(reply.stamps),
        output_planned=planned.output_tokens,
        usage_from="client" if counted is None else "server",
        gaps_ns=gaps_ns,
        gap_tokens=gap_tokens,
        reused_connection=exchange.reused,
    )


def _gaps(reply: Reply) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ns between reads that carried tokens, and the tokens that the later read of each carried."""
    stamps = reply.stamps
    if not reply.merged:
        gaps_ns = tuple(map(sub, stamps[1:], stamps))
        return gaps_ns, (1,) * len(gaps_ns)
    reads = [(stamp, len(tuple(same))) for stamp, same in groupby(stamps)]
    gaps_ns = tuple(later - earlier for (earlier, _), (later, _) in pairwise(reads))
    return gaps_ns, tuple(tokens for _, tokens in reads[1:])
