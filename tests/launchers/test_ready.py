from __future__ import annotations

from pathlib import Path

from launchers.ready import SEARCHED_BYTES, Waiting, log_tail

SECOND_NS = 10**9


def test_a_wait_is_told_after_a_second_then_when_it_changes_or_gets_long() -> None:
    waiting = Waiting()
    told = [
        (second, why)
        for second, why in [
            (0.2, "a"),
            (1.0, "a"),
            (1.5, "a"),
            (2.0, "b"),
            (2.1, "b"),
            (11.9, "b"),
            (12.0, "b"),
            (12.1, "a"),
        ]
        if waiting.is_news(why, int(second * SECOND_NS))
    ]
    assert told == [(1.0, "a"), (2.0, "b"), (12.0, "b"), (12.1, "a")]


def test_the_tail_of_a_log_is_bounded_and_a_missing_log_has_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_tail(log) == ()
    log.write_bytes(b"\xff\xfe first\n" + b"x" * SEARCHED_BYTES + b"\n\n  last \xe9\n")
    assert [line.strip()[-6:] for line in log_tail(log)] == ["xxxxxx", "last \ufffd"]
