"""The truth log: when the server really received each request and wrote each token, to judge a client by.

A JSON line for each request that ended, in monotonic ns of this host: ``id`` (X-Request-Id, else null),
``received_ns``, ``writes_ns`` of every write that carried tokens (taken just before the write) and the
``tokens`` in each.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path


class Truth:
    """An open log; lines are on disk after each ``flush``, which costs nothing while requests run."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def record(
        self, identity: str | None, received_ns: int, writes_ns: array[int], tokens: array[int]
    ) -> None:
        """Note one request."""
        row = {
            "id": identity,
            "received_ns": received_ns,
            "writes_ns": writes_ns.tolist(),
            "tokens": tokens.tolist(),
        }
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Hand the lines to the file."""
        self._file.flush()

    def close(self) -> None:
        """Hand over and close."""
        self._file.close()
