"""Two counts of one answer: the server's usage and the deltas that the client saw."""

from __future__ import annotations

from collections.abc import Iterable

from slas.evidence import Outcome, Phase, RequestRow

_TOLERATED = 0.01
"""Below this share two counts agree: a withheld stop token is one of a hundred."""


def token_gap(rows: Iterable[RequestRow]) -> str | None:
    """Return a sentence on the gap between both counts over the completed requests of the measured window.

    None if they agree, or if the server gave no usage; rows from before the client's count was kept are left aside.
    A server may send several tokens in one delta (speculative decoding, merging under load): its gaps are then
    between deltas, not between tokens.
    """
    server = client = 0
    for row in rows:
        if (
            row.phase is Phase.MEASURE
            and row.outcome is Outcome.COMPLETED
            and row.usage_from == "server"
            and row.client_tokens is not None
        ):
            server += row.output_tokens
            client += row.client_tokens
    if abs(server - client) <= _TOLERATED * server:
        return None
    return (
        f"the server's usage counts {server:,} output tokens where the client saw {client:,} deltas"
        f" ({client / max(server, 1):.2f} a token): itl and stall are gaps between deltas"
    )
