from __future__ import annotations

import json
from typing import Any

import pytest

from launchers.sim.preset import STATIC
from launchers.sim.request import Asked, Kind, Reader, RequestError
from launchers.sim.text import PLAIN

READER = Reader(preset=STATIC, models=("m", "alias"), seed=0, vocabulary=PLAIN)
MESSAGES = [{"role": "user", "content": "Say it  again\nplease"}]


def read(kind: Kind = "chat", **body: Any) -> Asked:
    base: dict[str, Any] = {"model": "m"}
    base |= {"messages": MESSAGES} if kind == "chat" else {"prompt": "one two three"}
    return READER.read(kind, json.dumps(base | body).encode())


def refusal(kind: Kind = "chat", **body: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(RequestError) as caught:
        read(kind, **body)
    error = json.loads(caught.value.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == caught.value.status
    return caught.value.status, error


def test_prompt_tokens_are_words_and_a_chat_adds_its_template() -> None:
    assert len(read().words) == 4 + 4
    assert len(read(messages=[*MESSAGES, *MESSAGES]).words) == 2 * (4 + 3) + 1
    assert len(read("completions").words) == 3
    assert len(read("completions", prompt=["one two"]).words) == 2
    assert len(read("completions", prompt=[7, 8, 9]).words) == 3
    assert len(read("completions", prompt=[[7, 8]]).words) == 2
    parts = [{"role": "user", "content": [{"type": "text", "text": "a b"}]}]
    assert len(read(messages=parts).words) == 2 + 4


def test_lengths_come_out_as_asked() -> None:
    asked = read(max_tokens=9, ignore_eos=True)
    assert (asked.output_tokens, asked.finish) == (9, "length")
    asked = read(max_completion_tokens=5)
    assert (asked.output_tokens, asked.finish) == (5, "length")
    asked = read(max_tokens=5000, min_tokens=5000)
    assert (asked.output_tokens, asked.finish) == (5000, "length")
    asked = read(max_tokens=5000, min_tokens=600)
    assert (asked.output_tokens, asked.finish) == (600, "stop")
    asked = read()
    assert (asked.output_tokens, asked.finish) == (asked.reply.natural_tokens(), "stop")
    assert read("completions").output_tokens == 16


def test_what_does_not_fit_the_context_is_clipped() -> None:
    prompt = " ".join(["w"] * 32_000)
    asked = read("completions", prompt=prompt, max_tokens=2_000, ignore_eos=True)
    assert asked.output_tokens == 768


def test_a_stop_string_ends_the_answer_where_it_comes_up() -> None:
    whole = read(max_tokens=30, ignore_eos=True).reply.text(30)
    stop = " ".join(whole.split()[6:8])
    asked = read(max_tokens=30, ignore_eos=True, stop=["never seen", stop])
    assert (asked.output_tokens, asked.finish, asked.stop) == (8, "stop", stop)
    assert read(max_tokens=30, ignore_eos=True, stop=stop, min_tokens=20).output_tokens >= 20
    assert read(max_tokens=30, ignore_eos=True, stop="never seen").output_tokens == 30


def test_options_of_a_stream() -> None:
    asked = read(stream=True, stream_options={"include_usage": True}, priority=-3)
    assert asked.stream
    assert asked.include_usage
    assert not asked.usage_everywhere
    assert asked.priority == -3
    everywhere = {"include_usage": True, "continuous_usage_stats": True}
    assert read(stream=True, stream_options=everywhere).usage_everywhere
    assert read(stream=True, unknown_field=1).include_usage is False


def test_an_unknown_model_is_404_and_an_alias_is_not() -> None:
    status, error = refusal(model="nope")
    assert (status, error["type"], error["param"]) == (404, "NotFoundError", "model")
    assert error["message"] == "The model `nope` does not exist. Valid aliases: m, alias."
    assert read(model="alias").model == "alias"


@pytest.mark.parametrize(
    ("kind", "body", "parameter", "words"),
    [
        ("chat", {"messages": None}, "body.messages", "Field required"),
        ("chat", {"messages": []}, None, "empty conversation"),
        ("chat", {"messages": "hi"}, "body.messages", "valid list"),
        ("chat", {"messages": [{"content": "x"}]}, "body.messages.0.role", "Field required"),
        ("chat", {"messages": [{"role": "user", "content": 3}]}, "body.messages.0.content", "str"),
        ("chat", {"max_tokens": "twelve"}, "body.max_tokens", "valid integer"),
        ("chat", {"max_tokens": 0}, "max_tokens", "at least 1, got 0"),
        ("chat", {"max_tokens": 99_999}, "max_tokens", "max_model_len=32768"),
        ("chat", {"max_tokens": 3, "min_tokens": 4}, "min_tokens", "less than or equal to"),
        ("chat", {"n": 2}, "n", "serves n=1 only"),
        ("chat", {"stream": "yes"}, "body.stream", "valid boolean"),
        ("chat", {"stream_options": {}}, "stream_options", "only be defined when `stream=True`"),
        ("chat", {"stream": True, "stream_options": 1}, "body.stream_options", "dictionary"),
        ("completions", {"prompt": ""}, "prompt", "non-empty"),
        ("completions", {"prompt": None}, "prompt", "non-empty"),
        ("completions", {"prompt": ["a", "b"]}, "prompt", "one prompt"),
        (
            "completions",
            {"prompt": [0] * 32_768},
            "input_tokens",
            "maximum context length is 32768",
        ),
    ],
)
def test_bad_requests_are_refused_as_vllm_does(
    kind: Kind, body: dict[str, Any], parameter: str | None, words: str
) -> None:
    status, error = refusal(kind, **body)
    assert status == 400
    assert error["param"] == parameter
    assert words in error["message"]


@pytest.mark.parametrize("data", [b'{"model": "m", "messages": [', b"", b"\xff\xfe", b"[1]"])
def test_a_body_that_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        READER.read("chat", data)
    assert caught.value.status == 400
    assert json.loads(caught.value.body)["error"]["type"] == "Bad Request"
