"""The scheduler in real time: every step ends at the instant that the model says, and its tokens go out then."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from launchers.sim.metrics import Metrics
from launchers.sim.scheduler import Generation, Scheduler, Step
from launchers.sim.stream import Owner

# beyond this, steps that are made up for would come out as one burst that no engine shows
_LAG_MOST_NS = 1_000_000_000
_NS_IN_S = 1_000_000_000

log = logging.getLogger("tailgate.sim")


class Wake(Protocol):
    """An alarm that can be set to one instant at a time."""

    def set(self, at_ns: int) -> None:
        """Ring at this instant instead of any set before."""
        ...

    def close(self) -> None:
        """Never ring again."""
        ...


class Engine:
    """Takes requests as they come and steps the scheduler, on absolute instants, so that nothing drifts.

    A late wake-up delays that step's tokens only: the next step still starts when this one should have ended,
    and takes in just what had arrived by then. ``wake`` makes the alarm, ``clock`` is in ns.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        metrics: Metrics,
        *,
        wake: Callable[[Callable[[], None]], Wake],
        clock: Callable[[], int],
    ) -> None:
        self.scheduler = scheduler
        self.metrics = metrics
        self._clock = clock
        self._alarm = wake(self._ring)
        self._arrived: deque[Generation] = deque()
        self._step: Step | None = None
        self._recent: deque[tuple[int, int]] = deque()  # (end, length) of the last second's steps

    def submit(self, generation: Generation) -> None:
        """Queue a request; an idle engine starts on it at the instant it can be scheduled."""
        self._arrived.append(generation)
        self.metrics.queued = len(self._arrived)
        if self._step is None:
            self._next(generation.arrived_ns)

    def abort(self, generation: Generation) -> None:
        """Drop a request that nobody waits for any more."""
        if generation.gone:
            return
        self.metrics.finished["abort"] += 1
        if generation in self._arrived:
            self._arrived.remove(generation)
            self.metrics.queued = len(self._arrived)
            generation.gone = True
        else:
            self.scheduler.abort(generation)

    @property
    def waiting(self) -> int:
        """Requests that no step has taken in yet."""
        return len(self._arrived) + len(self.scheduler.waiting)

    def busy_share(self, now_ns: int) -> float:
        """How much of the last second was spent in steps."""
        since_ns = now_ns - _NS_IN_S
        while self._recent and self._recent[0][0] < since_ns:
            self._recent.popleft()
        return min(1.0, sum(length for _, length in self._recent) / _NS_IN_S)

    def settle(self) -> None:
        """Let an idle engine's memory policy see the time pass."""
        if self._step is None:
            self.scheduler.kv.settle(self._clock())

    def _next(self, start_ns: int) -> None:
        scheduler, arrived = self.scheduler, self._arrived
        if arrived:
            if not scheduler.running and not scheduler.waiting:
                start_ns = max(start_ns, arrived[0].arrived_ns)
            while arrived and arrived[0].arrived_ns <= start_ns:
                scheduler.add(arrived.popleft())
            self.metrics.queued = len(arrived)
        self._step = scheduler.begin(start_ns)
        if self._step is not None:
            self._alarm.set(self._step.end_ns)

    def _ring(self) -> None:
        step = self._step
        if step is None:
            return
        now_ns = self._clock()
        if now_ns < step.end_ns:
            self._alarm.set(step.end_ns)
            return
        got = self.scheduler.finish(step)
        self.metrics.step(step, got)
        start_ns = step.end_ns
        lag_ns = now_ns - start_ns
        if lag_ns > self.metrics.lag_worst_ns:
            self.metrics.lag_worst_ns = lag_ns
        if lag_ns > _LAG_MOST_NS:
            self.metrics.resyncs += 1
            log.warning(
                "simulation is %d ms behind: this machine is too busy for it", lag_ns // 10**6
            )
            start_ns = now_ns
        self._recent.append((step.end_ns, step.end_ns - step.start_ns))
        if len(self._recent) > 1 and self._recent[0][0] < step.end_ns - _NS_IN_S:
            self._recent.popleft()
        # before the tokens go out, since writing them may lose connections and so abort requests
        self._next(start_ns)
        for generation in got:
            last = generation.gone
            if last and generation.produced == generation.output_tokens:
                self.metrics.finish(generation)
            cast("Owner", generation.owner).token(last=last)

    def close(self) -> None:
        """Stop stepping."""
        self._step = None
        self._alarm.close()
