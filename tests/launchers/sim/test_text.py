from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.sim.text import PLAIN, UNICODE, Reply, Vocabulary


def test_a_reply_depends_on_prompt_and_seed_alone() -> None:
    one = Reply(PLAIN, ["hello", "there"], 1)
    assert one.text(50) == Reply(PLAIN, ["hello", "there"], 1).text(50)
    assert one.text(50) != Reply(PLAIN, ["hello", "you"], 1).text(50)
    assert one.text(50) != Reply(PLAIN, ["hello", "there"], 2).text(50)
    assert 64 <= one.natural_tokens() < 576


@given(st.lists(st.text(max_size=5), max_size=3), st.integers(0, 10**9), st.integers(1, 400))
def test_a_token_is_a_word(words: list[str], seed: int, tokens: int) -> None:
    assert len(Reply(PLAIN, words, seed).text(tokens).split()) == tokens


@pytest.mark.parametrize("vocabulary", [PLAIN, UNICODE])
@given(st.integers(0, 1000), st.integers(0, 10**6))
def test_the_escaped_words_are_the_words(vocabulary: Vocabulary, at: int, seed: int) -> None:
    reply = Reply(vocabulary, [], seed)
    assert json.loads(b'"' + reply.escaped(at) + b'"') == reply.word(at)


def test_a_reply_is_not_one_word_over_and_over() -> None:
    assert min(len(set(Reply(PLAIN, [str(at)], 0).text(60).split())) for at in range(300)) > 30
