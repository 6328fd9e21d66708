from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from reports.rows import read_rows
from slas.evidence import Outcome, Phase
from tests.loadgen import server as serve
from tests.loadgen.playing import CLOSED, OPEN, play
from tests.loadgen.server import Asked, serving

PLANNED = 20  # 40/s over 0.5 s


async def test_every_request_is_sent_once_when_due_and_becomes_a_row(tmp_path: Path) -> None:
    async with serving(serve.stream) as server:
        played = await play(tmp_path, server.url)
    assert played.final.finished
    assert played.final.invalid == ()
    assert played.final.planned == {"chat": len(played.rows)}
    assert abs(len(played.rows) - PLANNED) <= 1
    assert sorted(row.ordinal for row in played.rows) == list(range(len(played.rows)))
    assert len(server.asked) == len(played.rows)
    for row in played.rows:
        assert row.outcome is Outcome.COMPLETED
        assert row.sent_ns is not None
        assert row.first_ns is not None
        assert row.last_ns is not None
        assert row.due_ns <= row.sent_ns < row.first_ns < row.last_ns <= row.done_ns
        assert sum(row.gaps_ns) == row.last_ns - row.first_ns
        assert (row.output_tokens, row.prompt_tokens, row.usage_from) == (4, 7, "server")
        assert (row.finish, row.status) == ("length", 200)
        assert (row.connect_ns is None) is row.reused_connection
        assert row.phase is (Phase.WARMUP if row.due_ns < 100_000_000 else Phase.MEASURE)


async def test_connections_are_open_before_the_first_request(tmp_path: Path) -> None:
    async with serving(serve.stream) as server:
        played = await play(tmp_path, server.url, start_in_ns=1_000_000_000)
    assert all(row.reused_connection for row in played.rows)
    assert server.connections <= len(played.rows)


async def test_connections_are_used_again(tmp_path: Path) -> None:
    async with serving(serve.stream) as server:
        await play(tmp_path, server.url, tenants=CLOSED, start_in_ns=1_000_000_000)
    assert server.connections == 2
    assert len(server.asked) > 4


async def test_the_request_is_what_all_engines_accept(tmp_path: Path) -> None:
    tenants = OPEN + "\n  plain: {rate: 10/s, prompt_tokens: 8, output_tokens: 4, api: completions}"
    async with serving(serve.stream) as server:
        await play(tmp_path, server.url + "/v1/", tenants=tenants, api_key="k3y")
    by_path = {asked.head.split()[1]: asked for asked in server.asked}
    assert set(by_path) == {"/v1/chat/completions", "/v1/completions"}
    chat = by_path["/v1/chat/completions"]
    shared = {"model", "max_tokens", "temperature", "stream", "stream_options", "ignore_eos"}
    assert set(chat.body) == shared | {"messages"}
    assert set(by_path["/v1/completions"].body) == shared | {"prompt"}
    assert chat.body["messages"][0]["content"].startswith("s4lt")
    lines = chat.head.lower().split("\r\n")
    assert "authorization: bearer k3y" in lines
    assert "accept-encoding: identity" in lines
    assert sum(line.startswith("host: 127.0.0.1:") for line in lines) == 1
    assert len({asked.head.lower().split("x-request-id: ")[1] for asked in server.asked}) == len(
        server.asked
    )


async def test_a_closed_loop_waits_for_the_reply_before_its_next_request(tmp_path: Path) -> None:
    open_now = most = 0

    async def count(writer: asyncio.StreamWriter, asked: Asked) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await serve.stream(writer, asked)
        open_now -= 1

    async with serving(count) as server:
        played = await play(tmp_path, server.url, tenants=CLOSED)
    assert most == 2
    assert len(played.rows) > 4
    assert played.final.planned == {}
    loops = Counter(row.session for row in played.rows)
    assert len(loops) == 2
    for session in loops:
        rows = [row for row in played.rows if row.session == session]
        assert rows[0].due_ns == 0
        for earlier, later in pairwise(rows):
            assert later.due_ns == earlier.done_ns
        assert all(row.due_ns < 500_000_000 for row in rows)


async def test_a_closed_loop_does_not_spin_on_a_server_that_refuses(tmp_path: Path) -> None:
    async def refuse(writer: asyncio.StreamWriter, asked: Asked) -> None:
        writer.write(serve.reply(503, b'{"error":{"message":"busy"}}'))

    async with serving(refuse) as server:
        played = await play(tmp_path, server.url, tenants=CLOSED)
    assert 2 < len(played.rows) <= 12
    assert {row.outcome for row in played.rows} == {Outcome.REFUSED}


async def test_refusals_keep_the_status_and_the_servers_words(tmp_path: Path) -> None:
    async def refuse(writer: asyncio.StreamWriter, asked: Asked) -> None:
        writer.write(serve.reply(503, b'{"error":{"message":"the queue is full"}}'))

    async with serving(refuse) as server:
        played = await play(tmp_path, server.url)
    assert played.final.finished
    assert played.final.invalid == ()
    for row in played.rows:
        assert (row.outcome, row.status, row.why) == (Outcome.REFUSED, 503, "the queue is full")
    assert any(row.reused_connection for row in played.rows)
    failures = Counter[tuple[str, str, str]]()
    for second in played.progress:
        for tenant, outcome, status, count in second.failures:
            failures[tenant, outcome, status] += count
    assert failures == {("chat", "refused", "503"): len(played.rows)}


async def test_nobody_listening_is_refused_while_connecting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        played = await play(tmp_path, url)
    assert abs(len(played.rows) - PLANNED) <= 1
    for row in played.rows:
        assert (row.outcome, row.stage, row.status) == (Outcome.REFUSED, "connect", None)
        assert row.sent_ns is None
        assert row.why
    assert played.final.finished
    assert played.final.invalid == ()


async def _cut_in_stream(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(serve.HEAD + serve.chunk(serve.token()))
    await asyncio.sleep(0.005)
    writer.transport.abort()


async def _cut_before_reply(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.close()


async def _error_event(writer: asyncio.StreamWriter, asked: Asked) -> None:
    fault = serve.event({"error": {"message": "engine died", "code": 500}})
    body = serve.chunk(serve.token()) + serve.chunk(fault) + serve.chunk(serve.event(b"[DONE]"))
    writer.write(serve.HEAD + body + serve.LAST_CHUNK)


async def _no_tokens(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(serve.HEAD + serve.chunk(serve.event(b"[DONE]")) + serve.LAST_CHUNK)


async def _no_end(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(serve.HEAD + serve.chunk(serve.token()) + serve.LAST_CHUNK)


async def _aborted(writer: asyncio.StreamWriter, asked: Asked) -> None:
    body = serve.chunk(serve.token()) + serve.chunk(serve.token("", "abort"))
    writer.write(serve.HEAD + body + serve.chunk(serve.event(b"[DONE]")) + serve.LAST_CHUNK)


async def _gzip(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
    )


async def _garbage(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(b"\x15\x03\x01\x00\x02\x02\x46")


@pytest.mark.parametrize(
    ("behave", "stage", "why"),
    [
        (_cut_in_stream, "stream", "the connection was lost"),
        (_cut_before_reply, "head", "the connection was lost"),
        (_error_event, "stream", "error event: engine died"),
        (_no_tokens, "stream", "no tokens"),
        (_no_end, "stream", "without a finish reason"),
        (_aborted, "stream", "finish reason 'abort'"),
        (_gzip, "stream", "content-encoding 'gzip'"),
        (_garbage, "head", "not an HTTP/1.1 reply"),
    ],
)
async def test_broken_replies_say_where_and_why(
    tmp_path: Path, behave: serve.Behaviour, stage: str, why: str
) -> None:
    async with serving(behave) as server:
        played = await play(tmp_path, server.url)
    assert abs(len(played.rows) - PLANNED) <= 1
    assert len(server.asked) == len(played.rows), "nothing is tried twice"
    for row in played.rows:
        assert (row.outcome, row.stage) == (Outcome.BROKEN, stage)
        assert row.why is not None
        assert why in row.why
    assert played.final.finished
    assert played.final.invalid == ()


async def _never(writer: asyncio.StreamWriter, asked: Asked) -> None:
    await asyncio.sleep(3600)


async def _pings(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(serve.HEAD)
    while not writer.is_closing():
        writer.write(serve.chunk(b": ping\n\n"))
        await asyncio.sleep(0.01)


async def _stalls(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(serve.HEAD + serve.chunk(serve.token()))
    await asyncio.sleep(3600)


async def _trickles(writer: asyncio.StreamWriter, asked: Asked) -> None:
    writer.write(serve.HEAD)
    while not writer.is_closing():
        writer.write(serve.chunk(serve.token()))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("behave", "stage", "limits"),
    [
        (_never, "first_token", {"first_token": "200ms"}),
        (_pings, "first_token", {"first_token": "200ms"}),
        (_stalls, "idle", {"idle": "200ms"}),
        (_trickles, "total", {"total": "300ms"}),
    ],
)
async def test_each_limit_ends_its_own_kind_of_silence(
    tmp_path: Path, behave: serve.Behaviour, stage: str, limits: dict[str, str]
) -> None:
    async with serving(behave) as server:
        played = await play(tmp_path, server.url, timeouts=limits, drain="2s")
    limit_ns = int(next(iter(limits.values())).removesuffix("ms")) * 1_000_000
    for row in played.rows:
        assert (row.outcome, row.stage) == (Outcome.TIMED_OUT, stage)
        assert row.sent_ns is not None
        assert row.done_ns - row.due_ns >= limit_ns
    assert played.final.finished


async def test_what_is_open_at_the_end_of_the_drain_is_a_row(tmp_path: Path) -> None:
    async with serving(_never) as server:
        played = await play(tmp_path, server.url, drain="100ms")
    assert abs(len(played.rows) - PLANNED) <= 1
    assert {(row.outcome, row.stage) for row in played.rows} == {(Outcome.TIMED_OUT, "drain")}
    assert played.final.finished


async def test_a_finished_answer_whose_reply_stays_open_is_completed(tmp_path: Path) -> None:
    async def left_open(writer: asyncio.StreamWriter, asked: Asked) -> None:
        writer.write(serve.HEAD + serve.chunk(serve.token("a", "stop")))
        await asyncio.sleep(3600)

    async with serving(left_open) as server:
        played = await play(tmp_path, server.url, timeouts={"idle": "100ms"})
    assert {row.outcome for row in played.rows} == {Outcome.COMPLETED}
    assert all(row.why for row in played.rows)


async def test_stop_sends_nothing_more_and_waits_for_what_is_open(tmp_path: Path) -> None:
    async def slow(writer: asyncio.StreamWriter, asked: Asked) -> None:
        await serve.stream(writer, asked, gap_s=0.03)

    async with serving(slow) as server:
        played = await play(tmp_path, server.url, stop_after_s=0.3)
    assert not played.final.finished
    assert 0 < len(played.rows) < PLANNED
    assert abs(played.final.planned["chat"] - PLANNED) <= 1
    assert {row.outcome for row in played.rows} <= {Outcome.COMPLETED, Outcome.UNSENT}
    assert len(server.asked) == sum(row.sent_ns is not None for row in played.rows)


async def test_reaching_the_cap_is_a_row_and_our_fault(tmp_path: Path) -> None:
    async with serving(_never) as server:
        played = await play(tmp_path, server.url, more="max_in_flight: 3", drain="100ms")
    outcomes = Counter(row.outcome for row in played.rows)
    assert outcomes[Outcome.TIMED_OUT] == 3
    assert abs(outcomes[Outcome.UNSENT] - (PLANNED - 3)) <= 1
    (why,) = played.final.invalid
    assert "max_in_flight of 3 was reached" in why


async def test_lanes_share_a_schedule_without_overlap(tmp_path: Path) -> None:
    async with serving(serve.stream) as server:
        halves = [await play(tmp_path, server.url, lane=lane, lanes=2) for lane in (0, 1)]
    ordinals = [{row.ordinal for row in half.rows} for half in halves]
    assert ordinals[0].isdisjoint(ordinals[1])
    assert abs(len(ordinals[0] | ordinals[1]) - PLANNED) <= 1
    assert all(half.final.planned == {"chat": len(half.rows)} for half in halves)


async def test_several_runs_append_to_the_same_files(tmp_path: Path) -> None:
    async with serving(serve.stream) as server:
        first = await play(tmp_path, server.url, run=0)
        again = await play(tmp_path, server.url, run=1)
    assert len(again.rows) == len(first.rows)
    both = list(read_rows(tmp_path / "requests" / "local-0.jsonl.gz"))
    assert len(both) == len(first.rows) + len(again.rows)
    assert [row.due_ns for row in again.rows] == [row.due_ns for row in first.rows]


async def test_a_connection_that_the_server_closed_is_not_used_again(tmp_path: Path) -> None:
    async def once(writer: asyncio.StreamWriter, asked: Asked) -> None:
        await serve.stream(writer, asked)
        await writer.drain()
        writer.close()

    async with serving(once) as server:
        played = await play(tmp_path, server.url)
    assert {row.outcome for row in played.rows} == {Outcome.COMPLETED}
    assert {asked.number for asked in server.asked} == {0}


async def test_health_and_progress_tell_of_every_second(tmp_path: Path) -> None:
    async with serving(serve.stream) as server:
        played = await play(tmp_path, server.url, drain="1s")
    assert played.health
    assert sum(sample.events for sample in played.health) == 4 * len(played.rows)
    assert sum(second.events for second in played.progress) == 4 * len(played.rows)
    assert all(delay >= 0 for sample in played.health for delay in sample.loop_lag_ns)
    completed = sum(second.tenants["chat"].completed for second in played.progress)
    assert completed == len(played.rows)
    itl = sum(n for second in played.progress for _, n in second.tenants["chat"].itl)
    assert itl == sum(len(row.gaps_ns) for row in played.rows)


async def test_rows_that_cannot_be_written_make_the_run_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(serve.stream) as server:
        task = asyncio.create_task(play(tmp_path, server.url, readable=False))
        await asyncio.sleep(0.2)
        monkeypatch.setattr("reports.members.os.write", full)
        played = await task
    assert played.final.rows == len(server.asked), "the run went on"
    assert any("No space left on device" in why for why in played.final.invalid)


async def test_a_bug_of_ours_ends_the_run_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def oops(*_: object, **__: object) -> None:
        raise KeyError("oops")

    async with serving(serve.stream) as server:
        monkeypatch.setattr("loadgen.generator.player.judge", oops)
        played = await play(tmp_path, server.url)
    assert not played.final.finished
    assert any("KeyError('oops')" in why for why in played.final.invalid)
    assert played.player.bug is not None
