"""The bytes of a reply in vLLM 0.33's shapes: the events of a stream, and whole bodies.

An event is one HTTP chunk. All of a content event but its word is prepared once a stream, since at a token
every few microseconds that is most of the work.
"""

from __future__ import annotations

import json
from typing import Any

from launchers.sim.request import Asked

DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(payload: bytes) -> bytes:
    """``payload`` as one chunk of HTTP/1.1's chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event of compact JSON."""
    return b"data: " + compact(value) + b"\n\n"


def compact(value: object) -> bytes:
    """JSON as vLLM writes it: no spaces, characters beyond ASCII as they are."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def usage(prompt_tokens: int, output_tokens: int, reasoning_tokens: int = 0) -> dict[str, Any]:
    """The usage object; reasoning is detailed only where there was any."""
    counts: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }
    if reasoning_tokens:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return counts


class Events:
    """The events of one stream, each as the payload of a chunk."""

    def __init__(self, asked: Asked, *, identity: str, created_s: int, fingerprint: str) -> None:
        self._asked = asked
        self._fingerprint = fingerprint
        self._chat = asked.kind == "chat"
        self._head: dict[str, Any] = {
            "id": identity,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": created_s,
            "model": asked.model,
        }
        self._prompt_tokens = len(asked.words)

    def frame(self, *, reasoning: bool = False) -> tuple[bytes, bytes]:
        """What stands before and after the word in a content event that is not the last."""
        before, after = self._content("\0", None, None, reasoning).split(b"\\u0000")
        return before, after

    def role(self) -> bytes | None:
        """The first event of a chat; completions have none."""
        if not self._chat:
            return None
        value = self._head | {
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": ""},
                    "logprobs": None,
                    "finish_reason": None,
                }
            ]
        }
        if self._asked.usage_everywhere:
            value["usage"] = usage(self._prompt_tokens, 0)
        return event(value | {"prompt_token_ids": None, "prompt_text": None})

    def word(self, text: str, produced: int, *, reasoning: bool = False) -> bytes:
        """A content event, with usage so far where that was asked for."""
        return self._content(text, None, produced, reasoning)

    def last(self, text: str, produced: int, *, reasoning: bool = False) -> bytes:
        """The content event that ends the answer and says why."""
        return self._content(text, self._asked.finish, produced, reasoning)

    def usage(self, produced: int, reasoning_tokens: int = 0) -> bytes:
        """The event after the last one, when the client asked for usage."""
        counts = usage(self._prompt_tokens, produced, reasoning_tokens)
        return event(
            self._head | {"choices": [], "usage": counts, "system_fingerprint": self._fingerprint}
        )

    def _content(
        self, text: str, finish: str | None, produced: int | None, reasoning: bool
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["delta"] = {"reasoning" if reasoning else "content": text}
            choice["logprobs"] = None
            choice["finish_reason"] = finish
            if finish is not None:
                choice["stop_reason"] = self._asked.stop
            choice["token_ids"] = None
            if finish is not None:
                choice["weight_versions"] = None
        else:
            choice |= {
                "text": text,
                "logprobs": None,
                "finish_reason": finish,
                "stop_reason": self._asked.stop if finish is not None else None,
                "prompt_token_ids": None,
                "token_ids": None,
                "weight_versions": None,
            }
        value = self._head | {"choices": [choice]}
        if self._asked.usage_everywhere and produced is not None:
            value["usage"] = usage(self._prompt_tokens, produced)
        value["kv_transfer_params"] = None
        if finish is not None and not self._asked.include_usage:
            value["system_fingerprint"] = self._fingerprint
        return event(value)


def whole(
    asked: Asked, *, identity: str, created_s: int, fingerprint: str, reasoning_tokens: int
) -> bytes:
    """The body of a reply that is not streamed."""
    tokens = asked.output_tokens
    text = asked.reply.text(tokens)
    choice: dict[str, Any] = {"index": 0}
    if asked.kind == "chat":
        thought = asked.reply.text(min(reasoning_tokens, tokens)) if reasoning_tokens else None
        choice["message"] = {
            "role": "assistant",
            "content": text[len(thought or "") :].lstrip() if thought else text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": thought,
        }
    else:
        choice["text"] = text
    choice |= {
        "logprobs": None,
        "finish_reason": asked.finish,
        "stop_reason": asked.stop,
        "token_ids": None,
    }
    return compact(
        {
            "id": identity,
            "object": "chat.completion" if asked.kind == "chat" else "text_completion",
            "created": created_s,
            "model": asked.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": fingerprint,
            "usage": usage(len(asked.words), tokens, min(reasoning_tokens, tokens)),
            "kv_transfer_params": None,
        }
    )
