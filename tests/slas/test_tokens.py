from dataclasses import replace
from typing import Any

import pytest

from slas.evidence import Outcome, RequestRow
from slas.tokens import token_gap
from tests.slas.runs import row


def rows(server: int, client: int | None, **fields: Any) -> list[RequestRow]:
    return [replace(row(), output_tokens=server, client_tokens=client, **fields)]


@pytest.mark.parametrize(("server", "client"), [(100, 100), (100, 99), (100, 101)])
def test_counts_that_agree_are_not_mentioned(server: int, client: int) -> None:
    assert token_gap(rows(server, client)) is None


@pytest.mark.parametrize(("server", "client"), [(100, 98), (100, 102), (64, 36), (0, 5)])
def test_a_gap_is_told_with_both_counts(server: int, client: int) -> None:
    said = token_gap(rows(server, client))
    assert said is not None
    assert f"{server} output tokens" in said
    assert f"{client} deltas" in said


def test_only_completed_requests_with_a_servers_usage_count() -> None:
    assert token_gap(rows(100, 50, usage_from="client")) is None
    assert token_gap(rows(100, 50, outcome=Outcome.BROKEN)) is None
    assert token_gap(rows(100, None)) is None
    assert token_gap([]) is None
