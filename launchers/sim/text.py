"""Tokens and words: a token is a word, on the way in and on the way out.

The rule, so that lengths asked for are lengths got: the tokens of a text are its whitespace-separated words.
A chat adds three a message (role, separator, end) and one for the answer's role, as chat templates do.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from math import gcd

_PLAIN = """
the of and to in is that for it with as was on be at by this have from or one had not but what
all were when we there can an your which their said if do will each about how up out them then
she many some so these would other into has more her two like him see time could no make than
first been its who now people my made over did down only way find use may water long little very
after words called just where most know get through back much before go good new write our used
me man too any day same right look think also around another came come work three word must
because does part even place well
"""

# what breaks careless readers: several bytes a character, separators that are not line ends, quotes, escapes
_UNICODE = [
    "naïve",
    "Größe",
    "東京",
    "привет",
    "🚀",
    "👩\u200d👩\u200d👧",
    "a\u2028b",
    "c\u2029d",
    "\\n",
    '"quoted"',
    "é́",
    "مرحبا",
    "½",
    "ﬁ",
    "𝔘",
    "data:",
    "[DONE]x",
]


class Vocabulary:
    """Words and their JSON-escaped bytes, each with the space that stands before it."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(dict.fromkeys(words))
        # a stride that shares no factor with their number visits all words before it repeats one
        self.strides = tuple(
            stride for stride in range(1, len(self.words)) if gcd(stride, len(self.words)) == 1
        )
        self.escaped = tuple(
            json.dumps(" " + word, ensure_ascii=False).encode()[1:-1] for word in self.words
        )


PLAIN = Vocabulary(_PLAIN.split())
UNICODE = Vocabulary(_UNICODE)


def chat_words(messages: Iterable[tuple[str, str]]) -> list[str]:
    """The prompt tokens of (role, content) messages.

    >>> chat_words([("user", "Hello there")])
    ['<|user|>', '<|text|>', 'Hello', 'there', '<|end|>', '<|assistant|>']
    """
    words: list[str] = []
    for role, content in messages:
        words.append(f"<|{role}|>")
        words.append("<|text|>")
        words.extend(content.split())
        words.append("<|end|>")
    words.append("<|assistant|>")
    return words


class Reply:
    """The words of one answer: an endless walk through a vocabulary, the same for the same prompt and seed."""

    __slots__ = ("_vocabulary", "start", "stride")

    def __init__(self, vocabulary: Vocabulary, words: Sequence[str], seed: int) -> None:
        mark = zlib.crc32(" ".join(words[-64:]).encode(), seed & 0xFFFFFFFF)
        self._vocabulary = vocabulary
        self.start = mark % len(vocabulary.words)
        self.stride = vocabulary.strides[(mark >> 16) % len(vocabulary.strides)]

    def word(self, at: int) -> str:
        """Word ``at`` with its leading space, except the first."""
        words = self._vocabulary.words
        word = words[(self.start + at * self.stride) % len(words)]
        return " " + word if at else word

    def escaped(self, at: int) -> bytes:
        """The same, escaped for the inside of a JSON string."""
        escaped = self._vocabulary.escaped
        word = escaped[(self.start + at * self.stride) % len(escaped)]
        return word if at else word[1:]

    def text(self, tokens: int) -> str:
        """The first ``tokens`` words as they read together."""
        return "".join(map(self.word, range(tokens)))

    def natural_tokens(self) -> int:
        """Where the answer would end by itself: 64 to 575 tokens."""
        return 64 + (self.start * 131 + self.stride * 7919) % 512
