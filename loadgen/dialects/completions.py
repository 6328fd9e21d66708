"""OpenAI completions: ``POST /v1/completions``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loadgen.dialects import openai
from loadgen.event import Event


class Completions:
    """Asks with the few fields that vLLM, TensorRT-LLM and SGLang all accept; see ``chat`` for ``ignore_eos``."""

    path = "/v1/completions"
    output_keys: tuple[str, ...] = ("text",)
    reasoning_keys: tuple[str, ...] = ()

    def body(self, *, model: str, prompt: str, output_tokens: int) -> bytes:
        """Return the body: one prompt, greedy, streamed with usage."""
        return json.dumps(
            {
                "model": model,
                "prompt": prompt,
                "max_tokens": output_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "ignore_eos": True,
            },
            separators=(",", ":"),
        ).encode()

    def read(self, data: bytes) -> Event:
        """Return what one event says; text may be empty where token ids are not (no detokenising)."""
        if data.startswith(openai.DONE):
            return openai.END
        return _event(openai.load(data))

    def read_whole(self, body: bytes) -> Event:
        """Return what a reply says that was not streamed."""
        return _event(openai.load(body))

    def refusal(self, body: bytes) -> str:
        """Return the server's own words."""
        return openai.refusal(body)


def _event(value: Mapping[str, Any]) -> Event:
    tokens = 0
    finish = None
    for choice in openai.choices(value):
        ids = choice.get("token_ids")
        if choice.get("text"):
            tokens += 1
        elif isinstance(ids, list):
            tokens += len(ids)
        finish = openai.finish(choice) or finish
    usage = openai.usage(value)
    return Event(
        tokens=tokens,
        output=tokens > 0,
        finish=finish,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        doubt=usage.doubt,
        error=openai.fault(value),
    )
