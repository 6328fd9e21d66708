"""What every OpenAI-style reply shares: usage, errors and the end mark.

Shapes as sent by vLLM, TensorRT-LLM, SGLang and ``transformers serve``; keys may be absent or null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import from_json

from loadgen.event import Event

DONE = b"[DONE]"
END = Event(end=True)
WORDS = 200
_SURROGATE = re.compile(rb"\\u[dD]")


class Usage(NamedTuple):
    """The server's counts of tokens; ``doubt`` says why there are none although it sent some."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    doubt: str | None = None


def load(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the data. Raises ValueError if it holds none.

    Bytes that are no UTF-8 are replaced, as the event stream specification says; the quick parser refuses
    those and lone surrogates, which do not make a stream broken.
    """
    try:
        value = from_json(data)
    except ValueError:
        value = _load_odd(data)
    if not isinstance(value, dict):
        raise ValueError(f"no JSON object: {data[:60]!r}")
    return value


def _load_odd(data: bytes) -> object:
    """Return what is in data that the quick parser refused for its letters alone; None if it is no JSON."""
    text = data.decode("utf-8", "replace")
    if "\ufffd" not in text and _SURROGATE.search(data) is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def usage(value: Mapping[str, Any]) -> Usage:
    """Return the counts of an event or a reply; a usage of another shape is none, and in doubt.

    >>> usage({"usage": {"prompt_tokens": 3, "completion_tokens": "7"}}).doubt
    'completion_tokens is no whole number'
    """
    found = value.get("usage")
    if found is None:
        return Usage()
    if not isinstance(found, dict):
        return Usage(doubt="usage is no object")
    prompt, completion = found.get("prompt_tokens"), found.get("completion_tokens")
    for key, count in (("prompt_tokens", prompt), ("completion_tokens", completion)):
        if count is not None and type(count) is not int:
            return Usage(doubt=f"{key} is no whole number")
    return Usage(prompt_tokens=prompt, completion_tokens=completion)


def finish(choice: Mapping[str, Any]) -> str | None:
    """Return a choice's finish reason, at most 200 characters; None if it is absent, null or empty.

    Raises ValueError if it is no text.
    """
    reason = choice.get("finish_reason")
    if reason is not None and not isinstance(reason, str):
        raise ValueError("finish reason is no text")
    return reason[:WORDS] if reason else None


def choices(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the choices of an event or a reply that are objects."""
    found = value.get("choices")
    return (
        [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []
    )


def fault(value: Mapping[str, Any]) -> str | None:
    """Return the error that an object carries, wrapped or flat, in at most 200 characters; None if none.

    >>> fault({"error": {"message": "The request queue is full.", "code": 503}})
    'The request queue is full.'
    >>> fault({"object": "error", "message": "too long", "code": 400})
    'too long'
    >>> fault({"error": None, "choices": []}) is None
    True
    """
    error = value.get("error")
    if error is None and value.get("object") == "error":
        error = value
    if error is None:
        return None
    words = error.get("message") if isinstance(error, dict) else error
    return _words(words if isinstance(words, str) else error)


def refusal(body: bytes) -> str:
    r"""Return an error reply's own words, at most 200 characters, whatever its shape.

    >>> refusal(b'{"detail":"Not Found"}')
    'Not Found'
    >>> refusal(b'LLM is unavailable.\n')
    'LLM is unavailable.'
    """
    try:
        value = load(body)
    except ValueError:
        return " ".join(body.decode("utf-8", "replace").split())[:WORDS]
    found = fault(value)
    if found is None:
        found = _words(value.get("detail", value.get("message", value)))
    return found


def _words(value: object) -> str:
    """Return a text as it is and anything else as JSON, at most 200 characters."""
    if isinstance(value, str):
        return value[:WORDS]
    try:
        return json.dumps(value)[:WORDS]
    except (ValueError, RecursionError):
        return "words that are nested too deeply"
