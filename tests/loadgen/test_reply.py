from __future__ import annotations

import random
from array import array

import pytest

from loadgen.dialect import dialect
from loadgen.generator.reply import Reply, marks
from tests.loadgen.streams import STREAMS, Told

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
ASKED = 8


def new(api: str = "chat") -> Reply:
    spoken = dialect(api)
    return Reply(spoken, marks(spoken), asked=ASKED)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def sse(event: str) -> bytes:
    return f"data: {event}\n\n".encode()


def check(reply: Reply, told: Told) -> None:
    assert len(reply.stamps) == told.tokens
    assert (reply.finish, reply.end_mark, reply.error) == (told.finish, told.end_mark, told.error)
    usage = (reply.prompt_tokens, reply.completion_tokens)
    assert usage == (told.usage or (None, None))


@pytest.mark.parametrize("name", STREAMS)
def test_each_stream_is_told_with_the_read_that_carried_each_token(name: str) -> None:
    events, told = STREAMS[name]
    reply = new(told.api)
    assert not reply.feed(CHUNKED, 0)
    for number, event in enumerate(events):
        assert not reply.feed(chunk(sse(event)), 1000 + number)
    assert reply.feed(LAST_CHUNK, 2000)
    check(reply, told)
    assert reply.reusable is (told.error is None or reply.over)
    if told.tokens:
        assert told.first is not None
        assert told.last is not None
        assert told.output_first is not None
        assert reply.stamps[0] == 1000 + told.first
        assert reply.stamps[-1] == 1000 + told.last
        assert reply.output_first_ns == 1000 + told.output_first


@pytest.mark.parametrize("name", STREAMS)
def test_all_events_of_one_read_share_its_stamp(name: str) -> None:
    events, told = STREAMS[name]
    reply = new(told.api)
    body = b"".join(chunk(sse(event)) for event in events)
    assert reply.feed(CHUNKED + body + LAST_CHUNK, 7)
    check(reply, told)
    assert reply.stamps == array("q", [7] * told.tokens)
    assert reply.merged == max(told.tokens - 1, 0)


def framed(body: bytes, random_: random.Random, per_event: bool) -> bytes:
    """Return the body in chunks: an event each, or cut anywhere, with extensions and trailers now and then."""
    pieces = []
    at = 0
    while at < len(body):
        if per_event:
            end = body.find(b"\n\n", at) + 2
            size = (end if end > 1 else len(body)) - at
        else:
            size = random_.choice([1, 2, 7, 40, 200, 1000])
        data = body[at : at + size]
        extension = b";ext=1" if random_.random() < 0.1 else b""
        spelling = b"%x" if random_.random() < 0.5 else b"%X"
        pieces.append(spelling % len(data) + extension + b"\r\n" + data + b"\r\n")
        at += size
    trailer = b"Trail: er\r\n" if random_.random() < 0.3 else b""
    return b"".join(pieces) + b"0\r\n" + trailer + b"\r\n"


def written(events: tuple[str, ...], random_: random.Random) -> bytes:
    """Return the events as a server might write them: any line ending, BOM, comments, ids, split data lines."""
    end = random_.choice(["\n", "\n", "\n", "\r\n", "\r"])
    text = "\ufeff" if random_.random() < 0.2 else ""
    for event in events:
        if random_.random() < 0.2:
            text += ": ping" + end + random_.choice(["", end])
        if random_.random() < 0.1:
            text += f"event: message{end}id: 3{end}retry: 5{end}"
        if random_.random() < 0.1 and '"choices":' in event:
            event = event.replace('"choices":', '"choices":\n', 1)  # white space between tokens
        field = random_.choice(["data: ", "data: ", "data:"])
        text += "".join(f"{field}{line}{end}" for line in event.split("\n")) + end
    return text.encode()


def cut(data: bytes, random_: random.Random) -> list[bytes]:
    step = random_.choice([3, 30, 300, 100_000, 0, 0, 1])
    if step == 0:  # where the chunks of a server end
        parts = [part + b"\n\n\r\n" for part in data.split(b"\n\n\r\n")]
        parts[-1] = parts[-1][:-4]
        return [part for part in parts if part]
    parts = []
    at = 0
    while at < len(data):
        size = random_.randint(1, step)
        parts.append(data[at : at + size])
        at += size
    return parts


@pytest.mark.parametrize("block", range(8))
def test_no_way_of_writing_framing_or_cutting_a_stream_changes_what_is_told(block: int) -> None:
    for seed in range(block * 250, block * 250 + 250):
        random_ = random.Random(seed)
        name = random_.choice(list(STREAMS))
        events, told = STREAMS[name]
        body = written(events, random_)
        framing = random_.choice(["chunked", "chunked", "chunked", "length", "eof"])
        wire = b"HTTP/1.1 100 Continue\r\n\r\n" if random_.random() < 0.2 else b""
        if framing == "chunked":
            wire += CHUNKED + framed(body, random_, per_event=random_.random() < 0.5)
        elif framing == "length":
            wire += HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        else:
            wire += HEAD + b"\r\n" + body
        reply = new(told.api)
        parts = cut(wire, random_)
        over = [reply.feed(part, at) for at, part in enumerate(parts)]
        if framing == "eof":
            assert not any(over)
            reply.cut(len(parts))
        else:
            assert over == [False] * (len(parts) - 1) + [True], f"seed {seed}"
        assert (seed, len(reply.stamps)) == (seed, told.tokens)
        check(reply, told)
        assert reply.reusable is (framing != "eof")
        assert list(reply.stamps) == sorted(reply.stamps)
        assert len(reply.stamps) - reply.merged == len(set(reply.stamps))


def test_the_quick_way_and_the_long_way_tell_the_same() -> None:
    events = STREAMS["vllm-chat"][0]
    quick, long = new(), new()
    quick.feed(CHUNKED, 0)
    long.feed(CHUNKED, 0)
    for at, event in enumerate(events):
        data = chunk(sse(event))
        quick.feed(data, at)
        long.feed(data[:5], at)
        long.feed(data[5:], at)
    assert quick.stamps == long.stamps


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not an HTTP/1.1 reply"),
        (b"HTTP/2 200\r\n\r\n", "not an HTTP/1.1 reply"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "switched protocols"),
        (CHUNKED + b"zz\r\n", "bad chunk size"),
        (CHUNKED + b"-5\r\n", "bad chunk size"),
        (CHUNKED + b"0x5\r\n", "bad chunk size"),
        (CHUNKED + b"1_0\r\n", "bad chunk size"),
        (CHUNKED + b"2\r\nabXX", "bad end of a chunk"),
        (HEAD + b"content-length: -1\r\n\r\n", "bad content-length"),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", "bad content-length"),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", "is not supported"),
        (HEAD + b"content-encoding: gzip\r\n\r\n", "content-encoding 'gzip'"),
        (HEAD + b"no colon\r\n\r\n", "bad header line"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "the head does not end"),
    ],
)
def test_what_is_no_reply_is_broken_and_says_why(wire: bytes, why: str) -> None:
    reply = new()
    assert reply.feed(wire, 1)
    assert reply.error is not None
    assert why in reply.error
    assert not reply.reusable


def test_a_chunk_whose_end_is_cut_is_still_checked() -> None:
    reply = new()
    assert not reply.feed(CHUNKED + b"2\r\nab\r", 1)
    assert reply.feed(b"X", 2)
    assert reply.error is not None


def test_an_event_that_is_no_json_breaks_the_stream() -> None:
    reply = new()
    reply.feed(CHUNKED + chunk(b"data: {oops\n\n") + LAST_CHUNK, 1)
    assert reply.error is not None
    assert "no JSON object" in reply.error


def test_bytes_that_are_no_utf8_and_lone_surrogates_break_nothing() -> None:
    reply = new()
    reply.feed(CHUNKED, 1)
    reply.feed(chunk(b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'), 2)
    reply.feed(chunk(b'data: {"choices":[{"delta":{"role":"\\ud83d","content":"a"}}]}\n\n'), 3)
    assert reply.error is None
    assert len(reply.stamps) == 2


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_reply_in_one_piece_is_one_token_read(api: str) -> None:
    said = '"message":{"content":"Hi there"}' if api == "chat" else '"text":"Hi there"'
    body = (
        '{"choices":[{"index":0,' + said + ',"finish_reason":"stop"}],'
        '"usage":{"prompt_tokens":3,"completion_tokens":2}}'
    ).encode()
    reply = new(api)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    assert not reply.feed(head % len(body) + body[:20], 5)
    assert reply.feed(body[20:], 9)
    assert (list(reply.stamps), reply.output_first_ns) == ([9], 9)
    assert (reply.finish, reply.prompt_tokens, reply.completion_tokens) == ("stop", 3, 2)
    assert reply.reusable


def test_html_with_status_200_is_broken() -> None:
    reply = new()
    reply.feed(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p>x", 1)
    assert reply.error is not None
    assert "text/html" in reply.error


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"no such model","code":404}}', "no such model"),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b"LLM is unavailable.\n Please", "LLM is unavailable. Please"),
        (b'{"detail":[{"msg":"x"}]}', '[{"msg": "x"}]'),
    ],
)
def test_an_error_reply_keeps_the_servers_words(body: bytes, words: str) -> None:
    reply = new()
    assert reply.feed(b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n" % len(body) + body, 1)
    assert (reply.status, reply.words(), reply.error) == (503, words, None)
    assert reply.reusable


def test_bytes_after_the_end_make_the_connection_unfit() -> None:
    reply = new()
    reply.feed(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\nx", 1
    )
    assert reply.over
    assert not reply.reusable


@pytest.mark.parametrize(
    ("version", "header", "reusable"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"connection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"connection: keep-alive\r\n", True),
    ],
)
def test_keep_alive_is_the_servers_to_say(version: bytes, header: bytes, reusable: bool) -> None:
    reply = new()
    reply.feed(b"HTTP/" + version + b" 200 OK\r\n" + header + b"content-length: 0\r\n\r\n", 1)
    assert reply.reusable is reusable


def test_fixture_names_say_whose_shape_they_are() -> None:
    assert {name.split("-")[0] for name in STREAMS} >= {"vllm", "trtllm", "sglang", "transformers"}
