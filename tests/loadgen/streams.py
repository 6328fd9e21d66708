"""Streams in the shapes that servers write, and what a client must make of each.

Own examples in the shapes of vLLM, TensorRT-LLM, SGLang and ``transformers serve``; no server's own text.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client must make of one stream. ``reads`` and ``at`` count events, from 0, fed one a read."""

    tokens: int
    first: int | None
    output_first: int | None
    last: int | None
    finish: str | None = None
    usage: tuple[int, int] | None = None
    end_mark: bool = True
    error: str | None = None
    api: str = "chat"


def _chat(delta: str, finish: str | None = None, *, more: str = "", spaced: bool = False) -> str:
    last = "null" if finish is None else f'"{finish}"'
    text = (
        '{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        f'[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{last}}}]{more}}}'
    )
    return text.replace('":"', '": "') if spaced else text


def _usage(prompt: int, completion: int) -> str:
    return (
        '{"id":"c-1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":'
        f'{prompt},"total_tokens":{prompt + completion},"completion_tokens":{completion}}}}}'
    )


def _text(text: str, finish: str | None = None, ids: str = "null") -> str:
    last = "null" if finish is None else f'"{finish}"'
    return (
        '{"id":"t-1","object":"text_completion","choices":[{"index":0,"text":'
        f'"{text}","token_ids":{ids},"logprobs":null,"finish_reason":{last}}}],"usage":null}}'
    )


ROLE = '{"role":"assistant","content":""}'
DONE = "[DONE]"


def _said(word: str) -> str:
    return f'{{"content":"{word}"}}'


STREAMS: dict[str, tuple[tuple[str, ...], Told]] = {
    "vllm-chat": (
        (
            _chat(ROLE, more=',"prompt_token_ids":null'),
            _chat(_said("The")),
            _chat(_said(" sky")),
            _chat(_said(" is"), "length"),
            _usage(11, 3),
            DONE,
        ),
        Told(tokens=3, first=1, output_first=1, last=3, finish="length", usage=(11, 3)),
    ),
    "vllm-reasoning": (
        (
            _chat(ROLE),
            _chat('{"reasoning":"The user"}'),
            _chat('{"reasoning":" greets."}'),
            _chat('{"reasoning":"!","content":"Hel"}'),
            _chat(_said("lo")),
            _chat(_said("!"), "stop"),
            _usage(11, 7),
            DONE,
        ),
        Told(tokens=5, first=1, output_first=3, last=5, finish="stop", usage=(11, 7)),
    ),
    "vllm-0.11-both-reasoning-keys": (
        (
            _chat(ROLE),
            _chat('{"reasoning":"Hm","reasoning_content":"Hm"}'),
            _chat('{"reasoning":".","reasoning_content":"."}'),
            _chat(_said("Yes"), "stop"),
            DONE,
        ),
        Told(tokens=3, first=1, output_first=3, last=3, finish="stop"),
    ),
    "vllm-multi-token": (
        (
            _chat(ROLE),
            _chat(_said("The quick")),
            _chat(_said("")),
            _chat(_said(" brown fox jumps"), "stop"),
            _usage(5, 8),
            DONE,
        ),
        Told(tokens=2, first=1, output_first=1, last=3, finish="stop", usage=(5, 8)),
    ),
    "vllm-continuous-usage": (
        (
            _chat(ROLE, more=',"usage":{"prompt_tokens":11,"completion_tokens":0}'),
            _chat(_said("The"), more=',"usage":{"prompt_tokens":11,"completion_tokens":1}'),
            _chat(
                _said(" sky"), "length", more=',"usage":{"prompt_tokens":11,"completion_tokens":2}'
            ),
            DONE,
        ),
        Told(tokens=2, first=1, output_first=1, last=2, finish="length", usage=(11, 2)),
    ),
    "vllm-error-event": (
        (
            _chat(ROLE),
            _chat(_said("The")),
            '{"error":{"message":"The server had an error.","type":"InternalServerError","code":500}}',
            DONE,
        ),
        Told(
            tokens=1, first=1, output_first=1, last=1, error="error event: The server had an error."
        ),
    ),
    "vllm-tool-call": (
        (
            _chat(ROLE),
            _chat('{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}'),
            _chat('{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}'),
            _chat("{}", "tool_calls"),
            DONE,
        ),
        Told(tokens=2, first=1, output_first=1, last=2, finish="tool_calls"),
    ),
    "trtllm-chat": (
        (
            '{"id":"a","choices":[{"index":0,"delta":{"role":"assistant"}}]} ',
            '{"id":"b","choices":[{"index":0,"delta":{"content":"The","reasoning_content":""}}]}',
            '{"id":"c","choices":[{"index":0,"delta":{"content":"","reasoning_content":""}}]}',
            '{"id":"d","choices":[{"index":0,"delta":{"content":" sky"},"finish_reason":"length"}]}',
            _usage(11, 3),
            DONE,
        ),
        Told(tokens=2, first=1, output_first=1, last=3, finish="length", usage=(11, 3)),
    ),
    "trtllm-reasoning": (
        (
            '{"choices":[{"index":0,"delta":{"role":"assistant"}}]} ',
            '{"choices":[{"index":0,"delta":{"content":"","reasoning_content":"The"}}]}',
            '{"choices":[{"index":0,"delta":{"content":"","reasoning_content":" user"}}]}',
            '{"choices":[{"index":0,"delta":{"content":"Hi","reasoning_content":""}}]}',
            '{"choices":[{"index":0,"delta":{"content":"!","reasoning_content":""},"finish_reason":"stop"}]}',
            DONE,
        ),
        Told(tokens=4, first=1, output_first=3, last=4, finish="stop"),
    ),
    "sglang-chat": (
        (
            _chat('{"reasoning_content":null,"role":"assistant","content":""}'),
            _chat('{"reasoning_content":null,"content":"The"}'),
            _chat('{"reasoning_content":null,"content":" sky"}'),
            _chat('{"reasoning_content":null}', "length"),
            _usage(11, 2),
            DONE,
        ),
        Told(tokens=2, first=1, output_first=1, last=2, finish="length", usage=(11, 2)),
    ),
    "sglang-queue-full": (
        (
            '{"error": {"object": "error", "message": "The request queue is full.", "code": 503}}',
            DONE,
        ),
        Told(
            tokens=0,
            first=None,
            output_first=None,
            last=None,
            error="error event: The request queue is full.",
        ),
    ),
    "transformers-no-end-mark": (
        (_chat(ROLE), _chat(_said("Hi")), _chat(_said("!")), _chat("{}", "stop")),
        Told(tokens=2, first=1, output_first=1, last=2, finish="stop", end_mark=False),
    ),
    "spaced-json": (
        (
            _chat(ROLE, spaced=True),
            _chat(_said("Hi"), spaced=True),
            _chat(_said("!"), spaced=True),
            _chat(_said("?"), "stop", spaced=True),
            DONE,
        ),
        Told(tokens=3, first=1, output_first=1, last=3, finish="stop"),
    ),
    "look-alikes": (
        (
            _chat(ROLE),
            _chat(_said("a")),
            _chat(_said(r"\"content\":\"x")),
            _chat(_said(r"data: x\n\n")),
            _chat(_said("a\u2028b\u0085c")),
            _chat('{"content":"","note":"\\"content\\":\\"no\\""}'),
            _chat('{"content":null}'),
            _chat(_said("é…😀"), "stop"),
            DONE,
        ),
        Told(tokens=5, first=1, output_first=1, last=7, finish="stop"),
    ),
    "completions": (
        (_text(" Paris"), _text(","), _text(""), _text(" France", "length"), _usage(5, 4), DONE),
        Told(
            tokens=3,
            first=0,
            output_first=0,
            last=3,
            finish="length",
            usage=(5, 4),
            api="completions",
        ),
    ),
    "completions-token-ids": (
        (_text("", ids="[5,6]"), _text("", ids="[7]"), _text("", "length", ids="[8]"), DONE),
        Told(tokens=4, first=0, output_first=0, last=2, finish="length", api="completions"),
    ),
    "empty": (
        (_chat(ROLE), _chat("{}", "stop"), DONE),
        Told(tokens=0, first=None, output_first=None, last=None, finish="stop"),
    ),
}
