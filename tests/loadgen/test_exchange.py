from __future__ import annotations

import pytest

from loadgen.dialect import dialect
from loadgen.generator.exchange import Ending, Exchange, judge, row
from loadgen.generator.reply import Reply, marks
from profiles.profile import Timeouts
from profiles.schedule import PlannedRequest
from slas.evidence import Outcome, Phase
from tests.loadgen import server as serve

MS = 1_000_000
START = 5_000 * MS
TIMEOUTS = Timeouts(connect_ns=5 * MS, first_token_ns=30 * MS, idle_ns=20 * MS, total_ns=100 * MS)


def planned(*, due_ns: int = 0, tokens: int = 4) -> PlannedRequest:
    return PlannedRequest(
        due_ns=due_ns,
        tenant="chat",
        ordinal=3,
        session="chat.3",
        turn=0,
        think_ns=0,
        burst=True,
        prompt_tokens=8,
        output_tokens=tokens,
    )


def exchange(*reads: tuple[int, bytes], due_ms: int = 0, sent_ms: int | None = 1) -> Exchange:
    spoken = dialect("chat")
    made = Exchange(
        planned(due_ns=due_ms * MS), START + due_ms * MS, b"", Reply(spoken, marks(spoken), asked=4)
    )
    made.sent_ns = None if sent_ms is None else START + sent_ms * MS
    for at_ms, data in reads:
        made.reply.feed(data, START + at_ms * MS)
    return made


TOKEN = serve.chunk(serve.token())
LAST = serve.chunk(serve.token(finish="length"))
END = serve.chunk(serve.event(b"[DONE]")) + serve.LAST_CHUNK


def test_a_row_counts_from_the_start_and_joins_the_events_of_a_read() -> None:
    made = exchange((9, serve.HEAD), (10, TOKEN), (14, TOKEN + TOKEN), (20, LAST), (21, END))
    made.ending = judge(made.reply)
    made.done_ns = START + 21 * MS
    made.connect_ns = MS // 2
    got = row(made, run=2, start_ns=START, warmup_ns=MS)
    assert (got.run, got.phase, got.burst, got.outcome) == (
        2,
        Phase.WARMUP,
        True,
        Outcome.COMPLETED,
    )
    assert (got.due_ns, got.sent_ns, got.first_ns) == (0, MS, 10 * MS)
    assert (got.last_ns, got.done_ns) == (20 * MS, 21 * MS)
    assert (got.gaps_ns, got.gap_tokens) == ((4 * MS, 6 * MS), (2, 1))
    assert (got.output_tokens, got.usage_from, got.output_planned) == (4, "client", 4)
    assert made.lateness_ns() == MS // 2


def test_a_request_due_when_the_warm_up_ends_is_measured() -> None:
    made = exchange(due_ms=1)
    made.ending = Ending(outcome=Outcome.UNSENT, why="stopped")
    assert row(made, run=0, start_ns=START, warmup_ns=MS).phase is Phase.MEASURE


def test_the_servers_count_of_tokens_is_preferred() -> None:
    counted = serve.chunk(serve.usage(9, 7))
    made = exchange((1, serve.HEAD + TOKEN + LAST + counted + END))
    made.ending = judge(made.reply)
    got = row(made, run=0, start_ns=START, warmup_ns=0)
    assert (got.output_tokens, got.usage_from, got.prompt_tokens) == (7, "server", 9)


@pytest.mark.parametrize(
    ("made", "lost", "overdue", "ending"),
    [
        (exchange((1, serve.HEAD + LAST + END)), None, None, Ending(outcome=Outcome.COMPLETED)),
        (
            exchange((1, serve.HEAD + LAST)),
            "gone",
            None,
            Ending(outcome=Outcome.COMPLETED, why="gone"),
        ),
        (
            exchange((1, serve.HEAD + TOKEN)),
            "gone",
            None,
            Ending(outcome=Outcome.BROKEN, stage="stream", why="gone"),
        ),
        (exchange(), "gone", None, Ending(outcome=Outcome.BROKEN, stage="head", why="gone")),
        (exchange(), None, "total", Ending(outcome=Outcome.TIMED_OUT, stage="total")),
        (
            exchange((1, serve.HEAD + TOKEN)),
            None,
            "idle",
            Ending(outcome=Outcome.TIMED_OUT, stage="idle"),
        ),
        (
            exchange((1, serve.reply(429, b'{"error":"slow down"}'))),
            None,
            None,
            Ending(outcome=Outcome.REFUSED, why="slow down"),
        ),
        (
            exchange((1, b"HTTP/1.1 500 X\r\ncontent-length: 99\r\n\r\noh no")),
            "gone",
            None,
            Ending(outcome=Outcome.REFUSED, why="oh no"),
        ),
        (
            exchange((1, b"HTTP/1.1 302 X\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n")),
            None,
            None,
            Ending(outcome=Outcome.REFUSED),
        ),
    ],
)
def test_how_an_exchange_ended(
    made: Exchange, lost: str | None, overdue: str | None, ending: Ending
) -> None:
    assert judge(made.reply, lost=lost, overdue=overdue) == ending


@pytest.mark.parametrize(
    ("made", "stage", "limit_ms"),
    [
        (exchange(sent_ms=None), "connect", 5),
        (exchange(sent_ms=90), "total", 100),
        (exchange(sent_ms=1), "first_token", 31),
        (exchange((9, serve.HEAD)), "first_token", 31),
        (exchange((9, serve.HEAD), (12, TOKEN)), "idle", 32),
        (exchange((9, serve.HEAD), (12, TOKEN), (85, TOKEN)), "total", 100),
    ],
)
def test_the_nearest_limit_is_the_one_that_counts(
    made: Exchange, stage: str, limit_ms: int
) -> None:
    at_ns = START + limit_ms * MS
    assert made.overdue(at_ns - 1, TIMEOUTS) is None
    assert made.look_again_ns == at_ns
    assert made.overdue(at_ns, TIMEOUTS) == stage
