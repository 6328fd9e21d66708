from __future__ import annotations

import http.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.secret import LONGEST_KEY_BYTES, api_key
from profiles.sheet import RefusalError

VARIABLE = "TAILGATE_TEST_KEY"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "is not set"),
        ("", "is empty"),
        ("hunter2\n", "the end of a line"),
        ("hunter2\r\nX-Evil: 1", "the end of a line"),
        ("hunter2\t", "a control character"),
        ("hunter2\x7f", "a control character"),
        (" hunter2", "a space at its start or end"),
        ("hunter2 ", "a space at its start or end"),
        ("hunter2\u00fc", "a character beyond ASCII"),
        ("hunter2\u20ac", "a character beyond ASCII"),
        ("hunter2\udcff", "a character beyond ASCII"),
        ("hunter2" * 10_000, "70000 characters"),
    ],
)
def test_a_key_that_no_header_takes_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, said: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(RefusalError) as refused:
        api_key(VARIABLE)
    assert VARIABLE in refused.value.fault
    assert said in refused.value.fault
    assert refused.value.mend
    assert "hunter2" not in str(refused.value)


@given(st.text(alphabet=st.characters(codec="latin-1", exclude_characters="\0"), max_size=8))
def test_a_key_that_is_taken_can_be_sent(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, text)
        try:
            key = api_key(VARIABLE)
        except RefusalError:
            return
    assert key == text.strip()
    connection = http.client.HTTPConnection("127.0.0.1")
    connection.putrequest("GET", "/")
    connection.putheader("Authorization", f"Bearer {key}")


def test_the_longest_key_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "k" * LONGEST_KEY_BYTES)
    assert len(api_key(VARIABLE)) == LONGEST_KEY_BYTES
