"""Requests made ahead of their time, so that nothing but a write is left to do when they are due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Final

from loadgen.generator.exchange import Exchange
from profiles.schedule import PlannedRequest

HORIZON_NS: Final = 2_000_000_000
MOST_REQUESTS: Final = 4096
MOST_BYTES: Final = 64 << 20


class Lookahead:
    """The open-loop part of a schedule, as exchanges in due order.

    At most two seconds, 4,096 requests or 64 MiB are made ahead. If the loop falls behind, the next request is
    made on the spot: late, and shown as late, but never left out.
    """

    def __init__(
        self, planned: Iterator[PlannedRequest], make: Callable[[PlannedRequest], Exchange]
    ) -> None:
        self._planned = planned
        self._make = make
        self._ready: deque[Exchange] = deque()
        self._bytes = 0
        self.exhausted = False

    def fill(self, now_ns: int, until_ns: int) -> bool:
        """Make requests until the clock reads ``until_ns``; return true if there is more to make now."""
        while not self.exhausted:
            if self._ready and (
                self._ready[-1].due_ns > now_ns + HORIZON_NS
                or len(self._ready) >= MOST_REQUESTS
                or self._bytes >= MOST_BYTES
            ):
                return False
            if monotonic_ns() >= until_ns:
                return True
            self._make_next()
        return False

    def _make_next(self) -> None:
        planned = next(self._planned, None)
        if planned is None:
            self.exhausted = True
            return
        exchange = self._make(planned)
        self._bytes += len(exchange.request)
        self._ready.append(exchange)

    def next_due_ns(self) -> int | None:
        """Return when the next request is due, on the monotonic clock; None if there is none left."""
        if not self._ready and not self.exhausted:
            self._make_next()
        return self._ready[0].due_ns if self._ready else None

    def pop(self) -> Exchange:
        """Return the next request; ``next_due_ns`` has said that there is one."""
        exchange = self._ready.popleft()
        self._bytes -= len(exchange.request)
        return exchange

    def due_within(self, until_ns: int, most: int) -> int:
        """Return how many requests are due until then, counting no further than ``most``."""
        found = 0
        for exchange in self._ready:
            if exchange.due_ns > until_ns or found >= most:
                break
            found += 1
        return found

    def give_up(self) -> Iterator[PlannedRequest]:
        """Forget what is ready and return the rest of the schedule, unmade, for counting."""
        self._ready.clear()
        self._bytes = 0
        self.exhausted = True
        return self._planned
