from __future__ import annotations

import pytest

from tailgate.run import idle_doubt


@pytest.mark.parametrize(
    ("idle", "words"),
    [
        (True, None),
        (False, "the engine was not idle within 30.0 s after run 3"),
        (
            None,
            "no metric shows whether the engine was idle after run 3; run 4 began after a wait of 2.00 s",
        ),
    ],
)
def test_what_is_said_of_an_engine_between_two_runs(idle: bool | None, words: str | None) -> None:
    assert idle_doubt(idle, 3) == words
