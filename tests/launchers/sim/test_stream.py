"""Every fault of a stream, seen from the client's side of a real socket."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest

from .client import ask, chat, serving, stream


async def test_a_share_of_requests_is_refused_evenly() -> None:
    async with serving(faults={"refuse": 0.5, "refuse_status": 429}) as port:
        statuses = [(await stream(port, 1)).status for _ in range(6)]
    assert statuses == [200, 429] * 3


async def test_all_requests_are_refused_with_503() -> None:
    async with serving(faults={"refuse": 1.0}) as port:
        reply = await stream(port, 1)
        assert (await ask(port, "GET", "/health")).status == 200
    assert reply.status == 503
    assert reply.json["error"]["code"] == 503


async def test_spared_requests_come_whole() -> None:
    async with serving(faults={"spare": 1, "refuse": 0.5, "crlf": True}) as port:
        replies = [await stream(port, 1) for _ in range(3)]
    assert [reply.status for reply in replies] == [200, 200, 503]
    assert [b"\r\n" in reply.body for reply in replies] == [False, True, False]


async def test_an_error_event_in_the_middle() -> None:
    async with serving(faults={"error": 1.0, "error_after": 2}) as port:
        reply = await stream(port, 10)
    assert reply.status == 200
    assert reply.ended
    assert len(reply.text.split()) == 2
    assert reply.chunks[-1]["error"]["code"] == 500
    assert reply.events[-1] == "[DONE]"


async def test_an_error_before_the_first_token() -> None:
    async with serving(faults={"error": 1.0, "error_after": 0}) as port:
        reply = await stream(port, 10)
    assert [set(chunk) for chunk in reply.chunks] == [{"error"}]


async def test_a_connection_that_is_cut() -> None:
    async with serving(faults={"cut": 1.0, "cut_after": 4}) as port:
        reply = await stream(port, 10)
        assert len(reply.text.split()) == 4
        assert not reply.ended
        assert "[DONE]" not in reply.events
        page = (await ask(port, "GET", "/metrics")).body.decode()
    assert 'finished_reason="abort"} 1.0' in page


async def test_a_stream_that_stalls_and_then_goes_on() -> None:
    async with serving(faults={"stall": 1.0, "stall_after": 3, "stall_ns": 300_000_000}) as port:
        began = time.monotonic()
        reply = await stream(port, 10)
    assert time.monotonic() - began >= 0.3
    assert len(reply.text.split()) == 10
    assert reply.events[-1] == "[DONE]"
    # nothing between the third token and the end of the stall, then all that had waited
    assert sum(read.count(b'"content":" ') for read in reply.reads[:-1]) < 4
    assert reply.reads[-1].count(b'"content":" ') >= 7


async def test_a_200_without_a_token() -> None:
    async with serving(faults={"empty": 1.0}) as port:
        reply = await stream(port, 10)
    assert (reply.status, reply.events, reply.ended) == (200, ["[DONE]"], True)


async def test_comments_while_a_stream_is_silent() -> None:
    faults = {"ping_every_ns": 20_000_000, "stall": 1.0, "stall_after": 0, "stall_ns": 200_000_000}
    async with serving(faults=faults) as port:
        reply = await stream(port, 3)
        plain = await stream(port, 1)
    assert reply.body.startswith(b": keep-alive\n\n")
    assert len(reply.text.split()) == 3
    assert plain.ended


async def test_comments_do_not_fall_between_the_pieces_of_an_event() -> None:
    async with serving(faults={"ping_every_ns": 300_000, "split": True}) as port:
        reply = await stream(port, 40)
    assert reply.ended
    assert len(reply.text.split()) == 40


async def test_no_comment_follows_the_last_chunk_into_the_next_reply() -> None:
    body = {"model": "tailgate-sim", "max_tokens": 2, "stream": True}
    body["messages"] = [{"role": "user", "content": "one two three"}]
    async with (
        serving(faults={"ping_every_ns": 200_000, "split": True}) as port,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
    ):
        connections = set()
        for _ in range(30):
            async with session.post(
                f"http://127.0.0.1:{port}/v1/chat/completions", json=body
            ) as reply:
                assert reply.connection is not None
                assert reply.connection.transport is not None
                connections.add(reply.connection.transport.get_extra_info("sockname"))
                assert reply.status == 200
                assert (await reply.read()).endswith(b"[DONE]\n\n")
        assert len(connections) == 1


async def test_several_events_in_one_write() -> None:
    async with serving(faults={"coalesce": 4}) as port:
        reply = await stream(port, 11)
    assert len(reply.text.split()) == 11
    assert reply.reads[1].count(b"data: ") == 4
    assert reply.reads[1].count(b"\r\n") == 2  # one chunk


@pytest.mark.parametrize("unicode", [False, True])
async def test_events_cut_anywhere(unicode: bool) -> None:
    async with serving(faults={"split": True}, unicode=unicode) as port:
        reply = await stream(port, 12)
    async with serving(unicode=unicode) as port:
        plain = await stream(port, 12)
    assert reply.text == plain.text
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 12
    assert len(reply.reads) > 2 * len(plain.events)
    ends = [read[-2:] for read in reply.reads]
    assert sum(end != b"\r\n" for end in ends) > len(ends) / 2


async def test_words_beyond_ascii_and_characters_cut_in_two() -> None:
    async with serving(faults={"split": True}, unicode=True) as port:
        reply = await stream(port, 60)
    assert "東京" in reply.text
    assert "\u2028" in reply.text
    assert '"quoted"' in reply.text

    def torn(read: bytes) -> bool:
        try:
            read.decode()
        except UnicodeDecodeError:
            return True
        return False

    assert any(map(torn, reply.reads))


async def test_line_ends_of_two_bytes_and_no_space_after_the_colon() -> None:
    async with serving(faults={"crlf": True, "no_space": True}) as port:
        reply = await stream(port, 3)
    events = reply.body.split(b"\r\n\r\n")
    assert events[-2:] == [b"data:[DONE]", b""]
    assert all(event.startswith(b"data:{") for event in events[:-2])
    assert b"\n" not in reply.body.replace(b"\r\n", b"")
    assert len(reply.text.split()) == 3


async def test_no_usage_though_asked_for() -> None:
    async with serving(faults={"no_usage": True}) as port:
        reply = await stream(port, 3)
    assert not any("usage" in chunk for chunk in reply.chunks)
    assert reply.choices[-1]["finish_reason"] == "length"
    assert reply.events[-1] == "[DONE]"


async def test_an_end_without_done() -> None:
    async with serving(faults={"no_done": True}) as port:
        reply = await stream(port, 3)
    assert reply.ended
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 3
    assert "[DONE]" not in reply.events


async def test_an_end_without_any_sign_of_it() -> None:
    async with serving(faults={"no_finish": True}) as port:
        reply = await stream(port, 3)
    assert reply.ended
    assert len(reply.text.split()) == 3
    assert {choice["finish_reason"] for choice in reply.choices} == {None}
    assert "[DONE]" not in reply.events


async def test_several_tokens_in_one_event() -> None:
    async with serving(faults={"tokens_per_chunk": 4}) as port:
        reply = await stream(port, 10)
    assert [len(choice["delta"]["content"].split()) for choice in reply.choices[1:]] == [4, 4, 2]
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 10


async def test_thoughts_before_the_answer() -> None:
    async with serving(faults={"reasoning": 4, "tokens_per_chunk": 3}) as port:
        reply = await stream(port, 9)
        body = chat(9, stream=False, stream_options=None)
        whole = (await ask(port, "POST", "/v1/chat/completions", body)).json
    kinds = [next(iter(choice["delta"])) for choice in reply.choices[1:]]
    assert kinds == ["reasoning", "reasoning", "content", "content"]
    thought = "".join(choice["delta"].get("reasoning", "") for choice in reply.choices)
    assert (len(thought.split()), len(reply.text.split())) == (4, 5)
    usage = reply.chunks[-1]["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}
    message = whole["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == (thought, reply.text)


async def test_faults_can_be_changed_while_it_runs() -> None:
    async with serving() as port:
        assert (await stream(port, 1)).status == 200
        reply = await ask(port, "POST", "/tailgate/sim/fault", {"refuse": 1.0})
        assert reply.json["refuse"] == 1.0
        assert (await stream(port, 1)).status == 503
        reply = await ask(port, "POST", "/tailgate/sim/fault", {"refuze": 1.0})
        assert reply.status == 400
        assert "unknown fault 'refuze'" in reply.json["error"]["message"]
        assert (await ask(port, "POST", "/tailgate/sim/fault", b"x")).status == 400
        assert (await stream(port, 1)).status == 503
        await ask(port, "POST", "/tailgate/sim/fault", {"refuse": 0.0})
        assert (await stream(port, 1)).status == 200


async def test_faults_hit_the_same_requests_whatever_else_goes_on() -> None:
    async with serving(faults={"cut": 0.25}) as port:
        replies = await asyncio.gather(*(stream(port, 10) for _ in range(12)))
        assert sum(not reply.ended for reply in replies) == 3
