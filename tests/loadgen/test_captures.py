"""What real servers sent, where such captures are at hand: the wire against a plain reading of the same bytes.

Captures are not part of the repository; tests/loadgen/streams.py holds their shapes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadgen.dialect import dialect
from loadgen.generator.reply import Reply, marks

CAPTURES = Path(__file__).parents[3] / "shared" / "engines"


def plainly(body: str) -> tuple[int, str | None, int | None]:
    """Return tokens, finish reason and completion tokens of an event stream, read without any haste."""
    tokens, finish, completion = 0, None, None
    for line in body.splitlines():
        if not line.startswith("data:") or line[5:].strip() == "[DONE]":
            continue
        value: dict[str, Any] = json.loads(line[5:])
        for choice in value.get("choices", []):
            delta = choice.get("delta") or {"content": choice.get("text")}
            keys = ("content", "reasoning", "reasoning_content", "tool_calls")
            tokens += any(delta.get(key) for key in keys)
            finish = choice.get("finish_reason") or finish
        completion = (value.get("usage") or {}).get("completion_tokens", completion)
    return tokens, finish, completion


def told(api: str, reads: list[bytes]) -> Reply:
    spoken = dialect(api)
    reply = Reply(spoken, marks(spoken), asked=4096)
    over = [reply.feed(data, at) for at, data in enumerate(reads)]
    if not over[-1]:
        reply.cut(len(reads))
    return reply


def unchunked(data: bytes) -> str:
    """Return the body of a chunked reply, by a loop of its own."""
    rest = data.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body.decode()


def test_every_captured_stream_is_told_as_a_plain_reading_tells_it() -> None:
    for file in sorted(CAPTURES.glob("captures/*/*.json")):
        capture = json.loads(file.read_text())
        if not isinstance(capture, dict) or "completions" not in capture["request"]["path"]:
            continue
        reads = [read["bytes"].encode() for read in capture["reads"]]
        if b"text/event-stream" not in b"".join(reads):
            continue
        api = "chat" if "chat" in capture["request"]["path"] else "completions"
        body = unchunked(b"".join(reads))
        single = [bytes([byte]) for byte in b"".join(reads)]
        for cut in (reads, [b"".join(reads)], single):
            reply = told(api, cut)
            got = (len(reply.stamps), reply.finish, reply.completion_tokens)
            assert got == plainly(body), file.name
            assert reply.over, file.name
            assert (reply.error is not None) == ('"error"' in body), file.name


def test_every_written_down_stream_is_told_as_a_plain_reading_tells_it() -> None:
    for file in sorted(CAPTURES.glob("wire/*.txt")):
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#!")]
        head, _, body = ("\n".join(lines) + "\n\n").partition("\n\n")
        if "text/event-stream" not in head:
            continue
        data = head.replace("\n", "\r\n").encode() + b"\r\n\r\n"
        reply = told("completions" if "completion-" in file.name else "chat", [data, body.encode()])
        got = (len(reply.stamps), reply.finish, reply.completion_tokens)
        assert got == plainly(body), file.name
        assert (reply.error is not None) == ('"error"' in body), file.name
