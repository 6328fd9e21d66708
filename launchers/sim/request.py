"""A request body, read and refused as vLLM 0.33 would: shapes from its wire samples and captures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from launchers.sim.preset import Preset
from launchers.sim.text import Reply, Vocabulary, chat_words

Kind = Literal["chat", "completions"]


class RequestError(Exception):
    """The request is refused: ``status``, and the body that says so in vLLM's shape."""

    def __init__(self, status: int, kind: str, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = json.dumps(
            error(message, kind, parameter, status), separators=(",", ":")
        ).encode()


def error(message: str, kind: str, parameter: str | None, code: int) -> dict[str, Any]:
    """vLLM's error object, as a body or as an event in the middle of a stream."""
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one accepted request asks for. ``finish`` is why it will end after ``output_tokens``."""

    kind: Kind
    model: str
    words: tuple[str, ...]
    reply: Reply
    output_tokens: int
    finish: Literal["length", "stop"]
    stop: str | None
    stream: bool
    include_usage: bool
    usage_everywhere: bool
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads the bodies that come to one server."""

    preset: Preset
    models: tuple[str, ...]
    seed: int
    vocabulary: Vocabulary

    def read(self, kind: Kind, data: bytes) -> Asked:
        """The request in ``data``. Raises RequestError with 400 or 404."""
        body = _object(data)
        model = self._model(body)
        words = tuple(_chat(body) if kind == "chat" else _prompt(body))
        context = self.preset.limits.context_tokens
        if len(words) >= context:
            raise RequestError(
                400,
                "BadRequestError",
                f"This model's maximum context length is {context} tokens. However, your prompt contains"
                f" {len(words)} input tokens, which exceeds this limit even without any output tokens."
                " Please reduce the length of the input prompt."
                f" (parameter=input_tokens, value={len(words)})",
                "input_tokens",
            )
        stream = _flag(body, "stream")
        options = body.get("stream_options")
        if options is not None and not isinstance(options, dict):
            raise _invalid(
                "dict_type", "stream_options", "Input should be a valid dictionary", options
            )
        if options is not None and not stream:
            raise _value("Stream options can only be defined when `stream=True`.", "stream_options")
        reply = Reply(self.vocabulary, words, self.seed)
        output_tokens, finish, stop = self._length(kind, body, reply, context - len(words))
        return Asked(
            kind=kind,
            model=model,
            words=words,
            reply=reply,
            output_tokens=output_tokens,
            finish=finish,
            stop=stop,
            stream=stream,
            include_usage=_flag(options or {}, "include_usage"),
            usage_everywhere=_flag(options or {}, "continuous_usage_stats")
            and _flag(options or {}, "include_usage"),
            priority=_count(body, "priority") or 0,
        )

    def _model(self, body: dict[str, Any]) -> str:
        model = body.get("model", self.models[0])
        if model not in self.models:
            raise RequestError(
                404,
                "NotFoundError",
                f"The model `{model}` does not exist. Valid aliases: {', '.join(self.models)}.",
                "model",
            )
        return str(model)

    def _length(
        self, kind: Kind, body: dict[str, Any], reply: Reply, room_tokens: int
    ) -> tuple[int, Literal["length", "stop"], str | None]:
        """How many tokens come out, why it ends there, and on which stop string if on one."""
        name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        most = _count(body, name)
        if most is None:
            most = room_tokens if kind == "chat" else 16
        elif most < 1:
            raise _value(f"{name} must be at least 1, got {most}.", name, most)
        elif most > self.preset.limits.context_tokens:
            raise _value(
                f"{name}={most} cannot be greater than max_model_len="
                f"{self.preset.limits.context_tokens}. Please request fewer output tokens.",
                name,
                most,
            )
        least = _count(body, "min_tokens") or 0
        if least > most:
            raise _value(
                f"min_tokens must be less than or equal to max_tokens={most}, got {least}.",
                "min_tokens",
                least,
            )
        for count in ("n", "best_of"):
            if (_count(body, count) or 1) != 1:
                raise _value(f"the simulated engine serves {count}=1 only.", count)
        most = min(most, room_tokens)
        tokens, finish = most, "length"
        natural = max(reply.natural_tokens(), least)
        if not _flag(body, "ignore_eos") and natural < most:
            tokens, finish = natural, "stop"
        stops = body.get("stop")
        if stops:
            found = _first_stop(reply, tokens, least, [stops] if isinstance(stops, str) else stops)
            if found is not None:
                return found[0], "stop", found[1]
        return tokens, "stop" if finish == "stop" else "length", None


def _first_stop(reply: Reply, tokens: int, least: int, stops: list[Any]) -> tuple[int, str] | None:
    """The token after which the first stop string is complete, if one comes up within ``tokens``."""
    text = ""
    for at in range(tokens):
        text += reply.word(at)
        if at + 1 >= least:
            for stop in stops:
                if isinstance(stop, str) and stop and stop in text:
                    return at + 1, stop
    return None


def _object(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as fault:
        at = getattr(fault, "pos", 0)
        raise RequestError(
            400,
            "Bad Request",
            "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body."
            f"{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>',"
            f" 'ctx': {{'error': '{getattr(fault, 'msg', 'Invalid UTF-8')}'}}}}",
            f"body.{at}",
        ) from None
    if not isinstance(body, dict):
        raise RequestError(
            400,
            "Bad Request",
            "1 validation error:\n  {'type': 'model_attributes_type', 'loc': 'body',"
            " 'msg': 'Input should be a valid dictionary or object to extract fields from'}",
            "body",
        )
    return body


def _invalid(kind: str, field: str, message: str, value: object) -> RequestError:
    return RequestError(
        400,
        "Bad Request",
        f"1 validation error:\n  {{'type': '{kind}', 'loc': 'body.{field}', 'msg': '{message}',"
        f" 'input': {value!r}}}",
        f"body.{field}",
    )


def _value(message: str, parameter: str, value: object = None) -> RequestError:
    shown = f"parameter={parameter}" if value is None else f"parameter={parameter}, value={value}"
    return RequestError(400, "BadRequestError", f"{message} ({shown})", parameter)


def _missing(field: str, body: dict[str, Any]) -> RequestError:
    return RequestError(
        400,
        "Bad Request",
        f"1 validation error:\n  {{'type': 'missing', 'loc': 'body.{field}', 'msg': 'Field required',"
        f" 'input': '<dict of {len(body)} items>'}}",
        f"body.{field}",
    )


def _flag(body: dict[str, Any], field: str) -> bool:
    value = body.get(field)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _invalid("bool_type", field, "Input should be a valid boolean", value)
    return value


def _count(body: dict[str, Any], field: str) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(
            "int_parsing",
            field,
            "Input should be a valid integer, unable to parse string as an integer",
            value,
        )
    return value


def _chat(body: dict[str, Any]) -> list[str]:
    messages = body.get("messages")
    if messages is None:
        raise _missing("messages", body)
    if not isinstance(messages, list):
        raise _invalid("list_type", "messages", "Input should be a valid list", messages)
    if not messages:
        raise RequestError(
            400,
            "BadRequestError",
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
        )
    pairs: list[tuple[str, str]] = []
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _missing(f"messages.{at}.role", message if isinstance(message, dict) else {})
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            content = " ".join(part for part in parts if isinstance(part, str))
        if content is not None and not isinstance(content, str):
            raise _invalid(
                "string_type", f"messages.{at}.content", "Input should be a valid string", content
            )
        pairs.append((message["role"], content or ""))
    return chat_words(pairs)


def _prompt(body: dict[str, Any]) -> list[str]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt.strip():
        return prompt.split()
    if prompt and isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return [f"<{token}>" for token in prompt]
    if isinstance(prompt, list) and len(prompt) > 1:
        raise _value("the simulated engine serves one prompt a request.", "prompt")
    raise _value("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
