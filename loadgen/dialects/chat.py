"""OpenAI chat completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loadgen.dialects import openai
from loadgen.event import Event


class Chat:
    """Asks with the few fields that vLLM, TensorRT-LLM and SGLang all accept.

    ``ignore_eos`` makes the output as long as planned. It is no field of OpenAI's own: a server that refuses
    unknown fields and does not know it answers 400, and the run says so.
    """

    path = "/v1/chat/completions"
    output_keys: tuple[str, ...] = ("content", "refusal")
    reasoning_keys: tuple[str, ...] = ("reasoning_content", "reasoning")

    def body(self, *, model: str, prompt: str, output_tokens: int) -> bytes:
        """Return the body: one user message, greedy, streamed with usage."""
        return json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": output_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "ignore_eos": True,
            },
            separators=(",", ":"),
        ).encode()

    def read(self, data: bytes) -> Event:
        """Return what one event says; reasoning is ``reasoning_content`` or ``reasoning``."""
        if data.startswith(openai.DONE):
            return openai.END
        return _event(openai.load(data), "delta")

    def read_whole(self, body: bytes) -> Event:
        """Return what a reply says that was not streamed."""
        return _event(openai.load(body), "message")

    def refusal(self, body: bytes) -> str:
        """Return the server's own words."""
        return openai.refusal(body)


def _event(value: Mapping[str, Any], holder: str) -> Event:
    tokens = 0
    output = False
    finish = None
    for choice in openai.choices(value):
        delta = choice.get(holder)
        if isinstance(delta, dict):
            if delta.get("content") or delta.get("tool_calls") or delta.get("refusal"):
                tokens += 1
                output = True
            elif delta.get("reasoning_content") or delta.get("reasoning"):
                tokens += 1
        finish = openai.finish(choice) or finish
    usage = openai.usage(value)
    return Event(
        tokens=tokens,
        output=output,
        finish=finish,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        doubt=usage.doubt,
        error=openai.fault(value),
    )
