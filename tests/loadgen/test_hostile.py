"""Whatever an engine sends becomes a row that can be written, after bounded work: never a crash of ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.dialect import dialect
from loadgen.generator.exchange import Exchange, judge, row
from loadgen.generator.reply import Reply, marks
from profiles.schedule import PlannedRequest
from reports.rows import row_from, row_line
from slas.evidence import Outcome, RequestRow
from tests.loadgen import server as serve

ASKED = 4
PLANNED = PlannedRequest(
    due_ns=0,
    tenant="chat",
    ordinal=0,
    session="chat.0",
    turn=0,
    think_ns=0,
    burst=False,
    prompt_tokens=8,
    output_tokens=ASKED,
)
APIS = ("chat", "completions")
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
TOKEN = serve.token()
END = serve.token("", "stop") + serve.event(b"[DONE]")
DEEP = b"[" * 5000


def fed(data: bytes, *, api: str = "chat", step: int | None = None) -> Reply:
    spoken = dialect(api)
    reply = Reply(spoken, marks(spoken), asked=ASKED)
    step = step or len(data) or 1
    for at in range(0, len(data), step):
        if reply.feed(data[at : at + step], 1 + at):
            break
    else:
        reply.cut(1 + len(data))
    return reply


def told(data: bytes, *, api: str = "chat", step: int | None = None) -> RequestRow:
    """Return the row of a reply, once written to its line and read again."""
    reply = fed(data, api=api, step=step)
    made = Exchange(replace(PLANNED, output_tokens=ASKED), 0, b"", reply)
    made.ending = judge(reply, lost=None if reply.over else "gone")
    line = row_line(row(made, run=0, start_ns=0, warmup_ns=0))
    assert len(line) < 20_000
    return row_from(json.loads(line))


def finishing(reason: str) -> bytes:
    said = b'{"choices":[{"index":0,"delta":{},"finish_reason":%s}]}' % reason.encode()
    return EVENTS + TOKEN + serve.event(said) + serve.event(b"[DONE]")


@pytest.mark.parametrize("reason", ['["stop"]', "{}", "NaN", "1e999", "7", "true", "false", "[]"])
def test_a_finish_reason_is_text_or_the_reply_is_broken(reason: str) -> None:
    got = told(finishing(reason))
    assert (got.outcome, got.stage, got.finish) == (Outcome.BROKEN, "stream", None)
    assert got.why is not None
    assert got.why.endswith("finish reason is no text")


def test_a_long_finish_reason_is_kept_in_part() -> None:
    got = told(finishing('"' + "z" * 100_000 + '"'))
    assert (got.outcome, got.finish) == (Outcome.COMPLETED, "z" * 200)


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("key", [b"content", b"reasoning"])
def test_an_event_that_is_cut_off_is_no_token(key: bytes, framed: bool) -> None:
    short = b'data: {"choices":[{"delta":{"%s":"' % key
    token = short + b'a"}}]}\n\n'
    frame = serve.chunk if framed else bytes
    reply = Reply(dialect("chat"), marks(dialect("chat")), asked=ASKED)
    for at, part in enumerate((token, token, short + b"\n\n")):
        start = b"" if at else serve.HEAD if framed else EVENTS
        reply.feed(start + frame(part), at)
    assert list(reply.stamps) == [0, 1]
    assert reply.error is not None
    assert "none of this API" in reply.error


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("data", "outcome", "why"),
    [
        (EVENTS + TOKEN + b"data: " + DEEP + b"\n\n", Outcome.BROKEN, "no JSON object"),
        (EVENTS + b"data: \xff" + DEEP + b"\n\n", Outcome.BROKEN, "no JSON object"),
        (EVENTS + b'data: "\\ud800' + DEEP + b"\n\n", Outcome.BROKEN, "no JSON object"),
        (b"HTTP/1.1 200 X\r\n\r\n" + DEEP, Outcome.BROKEN, "no event stream"),
        (b"HTTP/1.1 500 X\r\n\r\n" + DEEP, Outcome.REFUSED, "[[[["),
        (b"HTTP/1.1 500 X\r\n\r\n\xff" + DEEP, Outcome.REFUSED, "[[[["),
        (
            b'HTTP/1.1 500 X\r\n\r\n{"error":{"a\xff":' + b"[" * 900 + b"]" * 900 + b"}}",
            Outcome.REFUSED,
            "",
        ),
        (
            b"HTTP/1.1 200 X\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
            Outcome.BROKEN,
            "bad content-length",
        ),
        (b"HTTP/1.1 200 X\r\ncontent-length: -1\r\n\r\n", Outcome.BROKEN, "bad content-length"),
        (b"HTTP/1.1 200 X\r\ncontent-length:\r\n\r\n", Outcome.BROKEN, "bad content-length"),
        (
            b"HTTP/1.1 200 X\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            Outcome.BROKEN,
            "bad content-length",
        ),
    ],
)
def test_nothing_that_an_engine_sends_is_a_bug_of_ours(
    api: str, data: bytes, outcome: Outcome, why: str
) -> None:
    got = told(data, api=api)
    assert got.outcome is outcome
    assert got.why is not None
    assert why in got.why


def using(usage: str) -> bytes:
    said = b'{"choices":[],"usage":%s}' % usage.encode()
    return EVENTS + TOKEN * 2 + serve.token("a", "stop") + serve.event(said)


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        ('{"prompt_tokens":7,"completion_tokens":-7}', "-7 output tokens where 4 were asked for"),
        ('{"prompt_tokens":7,"completion_tokens":%s}' % ("9" * 30), "9" * 30),
        ('{"prompt_tokens":7,"completion_tokens":21}', "21 output tokens where 4 were asked for"),
        ('{"prompt_tokens":7,"completion_tokens":2.0}', "completion_tokens is no whole number"),
        ('{"prompt_tokens":7,"completion_tokens":true}', "completion_tokens is no whole number"),
        ('{"prompt_tokens":7,"completion_tokens":"2"}', "completion_tokens is no whole number"),
        ('{"prompt_tokens":-1,"completion_tokens":3}', "-1 prompt tokens"),
        ('{"prompt_tokens":9999999999,"completion_tokens":3}', "9999999999 prompt tokens"),
        ("[1]", "usage is no object"),
    ],
)
def test_a_usage_that_cannot_be_is_not_believed(usage: str, why: str) -> None:
    got = told(using(usage))
    assert (got.outcome, got.finish) == (Outcome.COMPLETED, "stop")
    assert (got.output_tokens, got.usage_from, got.prompt_tokens) == (3, "client", None)
    assert got.why is not None
    assert "the server's usage is not believed" in got.why
    assert why in got.why


@pytest.mark.parametrize("usage", ["null", "{}", '{"completion_tokens":null}'])
def test_a_server_may_give_no_usage(usage: str) -> None:
    got = told(using(usage))
    assert (got.output_tokens, got.usage_from, got.why) == (3, "client", None)


def test_the_last_usage_is_the_one_that_counts() -> None:
    good, odd = '{"completion_tokens":3}', '{"completion_tokens":-3}'
    event = serve.event(b'{"choices":[],"usage":%s}' % good.encode())
    got = told(using(odd) + event)
    assert (got.output_tokens, got.usage_from, got.why) == (3, "server", None)
    event = serve.event(b'{"choices":[],"usage":%s}' % odd.encode())
    got = told(using('{"completion_tokens":2}') + event)
    assert (got.output_tokens, got.usage_from) == (3, "client")


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["", "stop", "abort", "\ud800", 10**30, -1, 0, 3]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["content", "message", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": ODD,
        "delta": st.fixed_dictionaries({}, optional=dict.fromkeys(("content", "reasoning"), ODD))
        | ODD,
        "message": st.fixed_dictionaries({}, optional={"content": ODD}) | ODD,
        "text": ODD,
        "token_ids": ODD,
        "finish_reason": ODD,
    },
)
USAGE = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("prompt_tokens", "completion_tokens"), ODD)
)
OBJECT = st.fixed_dictionaries(
    {},
    optional={
        "id": ODD,
        "object": st.just("error") | ODD,
        "choices": st.lists(CHOICE | ODD, max_size=3) | ODD,
        "usage": USAGE | ODD,
        "error": ODD,
        "message": ODD,
        "detail": ODD,
    },
)
SAID = OBJECT.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)


@given(
    said=st.lists(st.just(TOKEN) | SAID.map(serve.event), max_size=6),
    status=st.sampled_from([200, 200, 200, 400, 503]),
    kind=st.sampled_from(["text/event-stream", "application/json", "", "\xff"]),
    chunked=st.booleans(),
    closing=st.sampled_from([b"", END, b"data: "]),
    api=st.sampled_from(APIS),
    step=st.sampled_from([None, 1, 7, 100]),
)
@settings(deadline=None, max_examples=150)
def test_every_reply_of_odd_values_is_a_row(
    said: list[bytes],
    status: int,
    kind: str,
    chunked: bool,
    closing: bytes,
    api: str,
    step: int | None,
) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n".encode("latin-1")
    parts = [*said, closing]
    if chunked:
        head += b"transfer-encoding: chunked\r\n"
        body = b"".join(serve.chunk(part) for part in parts if part) + serve.LAST_CHUNK
    else:
        body = b"".join(parts)
    got = told(head + b"\r\n" + body, api=api, step=step)
    if status != 200:
        assert got.outcome is Outcome.REFUSED


@given(
    value=OBJECT,
    status=st.sampled_from([200, 500]),
    api=st.sampled_from(APIS),
)
@settings(deadline=None, max_examples=75)
def test_every_whole_reply_of_odd_values_is_a_row(
    value: dict[str, object], status: int, api: str
) -> None:
    told(serve.reply(status, json.dumps(value).encode()), api=api)


@given(
    head=st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", EVENTS, serve.HEAD]),
    rest=st.binary(max_size=200),
    step=st.sampled_from([None, 1, 5]),
)
@settings(deadline=None, max_examples=75)
def test_bytes_of_any_kind_are_a_row(head: bytes, rest: bytes, step: int | None) -> None:
    told(head + rest, step=step)


def flood(head: bytes, piece: bytes) -> Reply:
    """Feed the piece again and again, 64 KiB a read, until the reply is over."""
    reply = Reply(dialect("chat"), marks(dialect("chat")), asked=ASKED)
    read = piece * max(65536 // len(piece), 1)
    fed_bytes = 0
    reply.feed(head, 0)
    while not reply.over:
        assert fed_bytes < 4 << 20, "the flood goes on"
        reply.feed(read, fed_bytes)
        fed_bytes += len(read)
    return reply


@pytest.mark.parametrize(
    ("head", "piece", "why"),
    [
        (EVENTS + b"data: ", b"x", "an event of more than 256 KiB"),
        (EVENTS + b": ", b"x", "an event of more than 256 KiB"),
        (EVENTS, b"data: x\n", "an event of more than 256 KiB"),
        (EVENTS, b"\n", "more than 1040 events"),
        (EVENTS, b"\r", "more than 1040 events"),
        (EVENTS, b": ping\n\n", "more than 1040 events"),
        (EVENTS, b"data:\n\n", "more than 1040 events"),
        (EVENTS, TOKEN, "more than 1040 events"),
        (EVENTS, b"data: {" + b" " * 200_000 + b"}\n\n", "bytes"),
        (EVENTS, serve.event({"choices": [{"delta": {"content": "a"}}] * 2000}), "2000 tokens"),
        (serve.HEAD, b"1\r\nx\r\n", "chunks at once"),
        (serve.HEAD, b"1", "bad chunk size"),
        (serve.HEAD, b"1;" + b"x" * 500, "bad chunk size"),
        (serve.HEAD + b"0\r\n", b"a: b\r\n", "the trailers do not end"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", "the head does not end"),
        (b"HTTP/1.1 200 OK\r\na: ", b"b", "the head does not end"),
        (b"HTTP/1.1 100 X\r\n\r\n", b"HTTP/1.1 103 X\r\n\r\n", "the head does not end"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x", "no event stream"),
        (b"HTTP/1.1 500 OK\r\n\r\n", b"x", "no event stream"),
    ],
)
def test_a_flood_ends_after_bounded_work(head: bytes, piece: bytes, why: str) -> None:
    reply = flood(head, piece)
    assert reply.error is not None
    assert why in reply.error
    assert not reply.reusable
    expected = Outcome.REFUSED if reply.status == 500 else Outcome.BROKEN
    assert judge(reply).outcome is expected


def test_a_flood_of_tokens_a_read_each_ends_too() -> None:
    reply = Reply(dialect("chat"), marks(dialect("chat")), asked=ASKED)
    reply.feed(serve.HEAD, 0)
    reads = 0
    while not reply.feed(serve.chunk(TOKEN), reads):
        reads += 1
        assert reads < 3000
    assert reply.error is not None
    assert "where 4 tokens were asked for" in reply.error


def test_a_server_that_does_not_heed_the_length_asked_for_is_read_to_its_end() -> None:
    got = told(EVENTS + TOKEN * 1000 + END)
    assert (got.outcome, got.output_tokens, got.usage_from) == (Outcome.COMPLETED, 1000, "client")


def test_a_large_event_in_small_pieces_is_one_event() -> None:
    event = serve.event({"choices": [{"delta": {"content": "a" * 200_000}}]})
    got = told(EVENTS + event + END, step=3)
    assert (got.outcome, got.output_tokens) == (Outcome.COMPLETED, 1)


def test_a_reply_that_ends_with_its_connection_lost_nothing() -> None:
    reply = fed(EVENTS + TOKEN + END)
    assert judge(reply, lost="gone").why is None
    reply = fed(serve.HEAD + serve.chunk(TOKEN + END))
    assert judge(reply, lost="gone").why == "gone"
