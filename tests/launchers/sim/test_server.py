from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp
import pytest

from .client import HOST, ask, chat, connected, serving, stream
from .models import small
from .test_metrics import value


async def test_a_streamed_chat_has_vllms_shape() -> None:
    async with serving() as port:
        reply = await stream(port, 3)
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["x-tailgate-simulated"] == "fast"
    assert reply.events[-1] == "[DONE]"
    role, one, two, last, usage = reply.chunks
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert set(role) == {"id", "object", "created", "model", "choices", "prompt_token_ids", "prompt_text"}  # fmt: skip
    for chunk in (one, two):
        assert set(chunk) == {"id", "object", "created", "model", "choices", "kv_transfer_params"}
        (choice,) = chunk["choices"]
        assert set(choice) == {"index", "delta", "logprobs", "finish_reason", "token_ids"}
        assert choice["finish_reason"] is None
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    # two words and the template's four
    assert usage["usage"] == {"prompt_tokens": 6, "total_tokens": 9, "completion_tokens": 3}
    assert usage["system_fingerprint"].startswith("tailgate-sim-")
    assert len(reply.text.split()) == 3
    assert len({chunk["id"] for chunk in reply.chunks}) == 1
    assert {chunk["object"] for chunk in reply.chunks} == {"chat.completion.chunk"}


async def test_a_streamed_completion_has_vllms_shape() -> None:
    async with serving() as port:
        body = {"model": "tailgate-sim", "prompt": "one two", "max_tokens": 3, "stream": True}
        reply = await ask(port, "POST", "/v1/completions", body, {"X-Request-Id": "abc"})
    assert [set(choice) for choice in reply.choices] == [
        {"index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids", "weight_versions"}
    ] * 3  # fmt: skip
    assert {chunk["id"] for chunk in reply.chunks} == {"cmpl-abc"}
    assert "usage" not in reply.chunks[-1]
    assert reply.chunks[-1]["system_fingerprint"].startswith("tailgate-sim-")
    assert reply.choices[-1]["finish_reason"] == "length"


async def test_streamed_and_whole_replies_say_the_same() -> None:
    async with serving() as port:
        streamed = await stream(port, 40)
        body = chat(40, stream=False)
        del body["stream_options"]
        whole = await ask(port, "POST", "/v1/chat/completions", body)
        again = await stream(port, 40)
    message = whole.json["choices"][0]["message"]
    assert message["content"] == streamed.text == again.text
    assert whole.json["usage"]["completion_tokens"] == 40
    assert whole.json["choices"][0]["finish_reason"] == "length"


async def test_usage_so_far_comes_with_every_event_when_asked_for() -> None:
    async with serving() as port:
        options = {"include_usage": True, "continuous_usage_stats": True}
        reply = await stream(port, 3, stream_options=options)
    assert [chunk["usage"]["completion_tokens"] for chunk in reply.chunks] == [0, 1, 2, 3, 3]


async def test_one_connection_serves_many_requests_and_those_sent_ahead() -> None:
    async with serving() as port, connected(port) as connection:
        for _ in range(3):
            assert (await connection.request("GET", "/health")).body == b""
            reply = await connection.request("POST", "/v1/chat/completions", chat(2))
            assert len(reply.text.split()) == 2
        await connection.send(b"GET /health HTTP/1.1\r\n\r\nGET /version HTTP/1.1\r\n\r\n")
        assert (await connection.reply()).status == 200
        assert (await connection.reply()).json["simulated"] is True


async def test_a_request_may_come_in_pieces() -> None:
    body = json.dumps(chat(2)).encode()
    data = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    async with serving() as port, connected(port) as connection:
        for at in range(0, len(data), 40):
            await connection.send(data[at : at + 40])
            await asyncio.sleep(0)
        assert len((await connection.reply()).text.split()) == 2


async def test_a_client_that_waits_for_leave_gets_it() -> None:
    body = json.dumps(chat(2)).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    )
    async with serving() as port, connected(port) as connection:
        await connection.send(head % len(body))
        assert (await connection.reply()).status == 100
        await connection.send(body)
        assert (await connection.reply()).status == 200


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with serving(keep_alive_ns=100_000_000) as port:
        async with connected(port) as connection:
            reply = await connection.request("POST", "/v1/chat/completions", chat(700))
            assert reply.ended
            assert await connection.closed()
        async with connected(port) as connection:
            assert await connection.closed()


async def test_close_is_honoured() -> None:
    async with serving() as port, connected(port) as connection:
        reply = await connection.request("GET", "/health", headers={"Connection": "close"})
        assert reply.headers["connection"] == "close"
        assert await connection.closed()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000, 431),
    ],
)
async def test_what_is_not_understood_is_refused_and_closed(data: bytes, status: int) -> None:
    async with serving() as port, connected(port) as connection:
        await connection.send(data)
        assert (await connection.reply()).status == status
        assert await connection.closed()


async def test_pages() -> None:
    async with serving(models=("one", "two"), gpus=2) as port:
        models = (await ask(port, "GET", "/v1/models")).json["data"]
        assert [model["id"] for model in models] == ["one", "two"]
        assert models[0]["max_model_len"] == 8192
        assert models[0]["root"] == "simulated/fast"
        sim = (await ask(port, "GET", "/tailgate/sim")).json
        assert sim["simulated"] is True
        assert sim["preset"]["name"] == "fast"
        assert len(sim["gpus"]) == 2
        assert (await ask(port, "GET", "/nope")).status == 404
        wrong = await ask(port, "GET", "/v1/chat/completions")
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        reply = await ask(port, "POST", "/v1/chat/completions", chat(4, model="two"))
        assert reply.chunks[0]["model"] == "two"
        metrics = (await ask(port, "GET", "/metrics")).body.decode()
        assert value(metrics, "vllm:generation_tokens_total", model_name="one", engine="0") == 4
        assert value(metrics, "tailgate_sim_info", simulated="true") == 1
        dcgm = (await ask(port, "GET", "/dcgm/metrics")).body.decode()
        assert value(dcgm, "DCGM_FI_DEV_FB_TOTAL", gpu="1") == 2048


async def test_errors_come_as_json_with_their_status() -> None:
    async with serving(api_key="secret") as port:
        key = {"Authorization": "Bearer secret"}
        reply = await ask(port, "POST", "/v1/chat/completions", chat(2))
        assert (reply.status, reply.json) == (401, {"error": "Unauthorized"})
        assert (await ask(port, "GET", "/health")).status == 200
        reply = await ask(port, "POST", "/v1/chat/completions", chat(2, model="x"), key)
        assert (reply.status, reply.json["error"]["type"]) == (404, "NotFoundError")
        reply = await ask(port, "POST", "/v1/chat/completions", b"{", key)
        assert (reply.status, reply.json["error"]["code"]) == (400, 400)


async def test_a_full_queue_is_refused_with_503() -> None:
    limits = {"sequences": 1, "queued": 1}
    async with serving(preset=small(64, **limits)) as port:
        replies = await asyncio.gather(*(stream(port, 50) for _ in range(6)))
        page = (await ask(port, "GET", "/metrics")).body.decode()
    refused = [reply for reply in replies if reply.status == 503]
    assert refused
    assert refused[0].json["error"]["type"] == "Service Unavailable"
    assert value(page, "vllm:admission_rejections_total", reason="max_num_queued_reqs") == len(
        refused
    )
    assert sum(reply.status == 200 for reply in replies) == 6 - len(refused)


async def test_a_client_that_leaves_frees_the_engine() -> None:
    async with serving() as port:
        async with connected(port) as connection:
            body = json.dumps(chat(8000)).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
            await connection.send(head + body)
        for _ in range(200):
            page = (await ask(port, "GET", "/metrics")).body.decode()
            if value(page, "vllm:request_success_total", finished_reason="abort") == 1:
                break
            await asyncio.sleep(0.02)
        assert value(page, "vllm:num_requests_running") == 0
        assert value(page, "vllm:kv_cache_usage_perc") == 0


async def test_priorities_decide_who_is_let_in_first() -> None:
    async with serving(preset=small(64, sequences=1)) as port:
        order: list[int] = []

        async def one(priority: int) -> None:
            await stream(port, 30, priority=priority, prompt=f"p {priority}")
            order.append(priority)

        first = asyncio.ensure_future(one(99))
        await asyncio.sleep(0.005)
        await asyncio.gather(first, *(one(priority) for priority in (3, 1, 2)))
    assert order == [99, 1, 2, 3]


async def test_many_streams_at_once_all_come_whole_through_an_ordinary_client() -> None:
    async with serving() as port, aiohttp.ClientSession() as session:

        async def one(number: int) -> tuple[int, bool]:
            body = chat(20, prompt=f"request {number}")
            async with session.post(
                f"http://{HOST}:{port}/v1/chat/completions", json=body
            ) as reply:
                text = (await reply.read()).decode()
            return text.count('"content":"') - 1, text.endswith("data: [DONE]\n\n")

        assert await asyncio.gather(*(one(number) for number in range(60))) == [(20, True)] * 60


async def test_the_truth_log_holds_every_write(tmp_path: Path) -> None:
    log = tmp_path / "truth.jsonl"
    before_ns = time.monotonic_ns()
    async with serving(truth=log) as port:
        headers = {"X-Request-Id": "r1"}
        await ask(port, "POST", "/v1/chat/completions", chat(5), headers)
        await ask(port, "POST", "/v1/chat/completions", chat(4, stream=False, stream_options=None))
        async with connected(port) as connection:
            body = json.dumps(chat(8000)).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
            await connection.send(head + body)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
    after_ns = time.monotonic_ns()
    first, whole, left = (json.loads(line) for line in log.read_text().splitlines())
    assert first["id"] == "r1"
    assert first["tokens"] == [1] * 5
    stamps = [before_ns, first["received_ns"], *first["writes_ns"], after_ns]
    assert stamps == sorted(stamps)
    assert (whole["id"], whole["tokens"]) == (None, [4])
    assert 0 < len(left["writes_ns"]) < 8000


async def test_a_late_wake_up_delays_no_later_step() -> None:
    async with serving() as port:
        reply = asyncio.ensure_future(stream(port, 100))
        await asyncio.sleep(0.03)
        time.sleep(0.05)
        await reply
        page = (await ask(port, "GET", "/metrics")).body.decode()
    # what the engine counts is simulated time: 99 gaps of a step, whatever the machine did meanwhile
    gaps = value(page, "vllm:inter_token_latency_seconds_count")
    total = value(page, "vllm:inter_token_latency_seconds_sum")
    assert gaps == 99
    assert 0.001 <= total / gaps < 0.0015
    assert value(page, "tailgate_sim_lag_seconds_max") > 0.02
    assert value(page, "tailgate_sim_resyncs_total") == 0
