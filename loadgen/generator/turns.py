"""One closed loop: a request becomes due when the one before it is done and its think time has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from loadgen.generator.exchange import Exchange
from profiles.schedule import PlannedRequest

Make = Callable[[PlannedRequest], Exchange]


class Turns:
    """The endless requests of one loop, the next of them made ahead of its time."""

    __slots__ = ("_make", "_planned", "_ready")

    def __init__(self, planned: Iterator[PlannedRequest], make: Make) -> None:
        self._planned = planned
        self._make = make
        self._ready: Exchange | None = None

    def prepare(self) -> None:
        """Make the next request, if it is not."""
        if self._ready is None:
            self._ready = self._make(next(self._planned))
            self._ready.turns = self

    def take(self) -> Exchange:
        """Return the next request, made on the spot if need be; its ``due_ns`` is the caller's to set."""
        self.prepare()
        exchange, self._ready = self._ready, None
        assert exchange is not None
        return exchange
