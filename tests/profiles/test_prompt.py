from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profiles.prompt import WORDS, prompt_text


def text(*, salt: str = "7f3a", ordinal: int = 0, tokens: int = 300, tenant: str = "chat") -> str:
    return prompt_text(salt=salt, seed=7, tenant=tenant, ordinal=ordinal, tokens=tokens)


@given(tokens=st.integers(1, 60_000), ordinal=st.integers(0, 10**9))
def test_a_prompt_starts_with_its_salt_and_is_about_as_long_as_planned(
    tokens: int, ordinal: int
) -> None:
    salt, *words = text(tokens=tokens, ordinal=ordinal).split(" ")
    assert salt == "7f3a"
    assert len(words) == max(0, tokens - 2)
    assert set(words) <= set(WORDS)


def test_the_same_request_has_the_same_prompt() -> None:
    assert text() == text()
    assert prompt_text(salt="", seed=7, tenant="chat", ordinal=0, tokens=300).startswith(
        text().split(" ")[1]
    )


def test_prompts_part_ways_at_once_so_that_no_prefix_cache_helps() -> None:
    starts = {
        " ".join(text(tenant=tenant, ordinal=ordinal).split(" ")[1:7])
        for tenant in ("chat", "code")
        for ordinal in range(5_000)
    }
    assert len(starts) == 10_000
    assert text(salt="7f3a")[0] != text(salt="81bc")[0]
