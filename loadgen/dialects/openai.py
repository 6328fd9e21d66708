"""What every OpenAI-style reply shares: usage, errors and the end mark.

Shapes as sent by vLLM, TensorRT-LLM, SGLang and ``transformers serve``; keys may be absent or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from loadgen.event import Event

DONE = b"[DONE]"
END = Event(end=True)
WORDS = 200


def load(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the data. Raises ValueError if it holds none.

    Bytes that are no UTF-8 are replaced, as the event stream specification says; the quick parser refuses
    those and lone surrogates, which do not make a stream broken.
    """
    try:
        value = from_json(data)
    except ValueError:
        value = json.loads(data.decode("utf-8", "replace"))
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {data[:60]!r}")
    return value


def count(usage: object, key: str) -> int | None:
    """Return a count of a usage object; None if it is absent, null or no whole number."""
    value = usage.get(key) if isinstance(usage, dict) else None
    return value if type(value) is int else None


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
    if not isinstance(words, str):
        words = json.dumps(error)
    return words[:WORDS]


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
        detail = value.get("detail", value.get("message", value))
        found = detail if isinstance(detail, str) else json.dumps(detail)
    return found[:WORDS]
