"""Pauses of the generators' event loops, and which requests each of them can have made to look slow.

A loop that stands still sends late, which the rows show (due to sent), and reads late, which they do not: whatever
came in meanwhile is stamped when the pause is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiles.units import NS_PER, format_duration
from slas.columns import Columns, Ints
from slas.evidence import Evidence, HealthSample

_NS_PER_S = NS_PER["s"]
# what a loop takes in passing is no pause
_SHORTEST_NS = NS_PER["ms"]
# what a pause held back reaches the engine at once; at a load of 90 % it has worked that off after ten times as long
AFTERMATH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The longest stand of one lane in one second; ``at_ns`` is that second's end, from the start of the warm-up."""

    run: int
    lane: str
    at_ns: int
    lag_ns: int

    @property
    def first_ns(self) -> int:
        """When the first request that it can have touched may have been done."""
        return self.at_ns - _NS_PER_S - self.lag_ns

    @property
    def last_ns(self) -> int:
        """When the last request that it can have touched may have been due."""
        return self.at_ns + AFTERMATH * self.lag_ns


def pauses_of(evidence: Evidence, from_ns: int) -> tuple[Pause, ...]:
    """Return the longest pause of every lane and second that can have touched a request due at ``from_ns`` or later."""
    found = (
        _pause(sample)
        for sample in evidence.health
        if sample.loop_lag_ns and max(sample.loop_lag_ns) >= _SHORTEST_NS
    )
    return tuple(pause for pause in found if pause.last_ns > from_ns)


def _pause(sample: HealthSample) -> Pause:
    return Pause(
        run=sample.run, lane=sample.lane, at_ns=sample.at_ns, lag_ns=max(sample.loop_lag_ns)
    )


def longest(pauses: Sequence[Pause]) -> Pause | None:
    """Return the longest of them, the first of equals; None if there is none."""
    return max(pauses, key=lambda pause: pause.lag_ns, default=None)


def reach_ns(columns: Columns, pauses: Sequence[Pause]) -> Ints:
    """Return, for each request, the longest pause that can have touched it, in ns; 0 if none can.

    Lanes are not told apart: what one of them sends at once after a pause, the engine makes the others wait for.
    """
    reach = np.zeros(columns.size, dtype=np.int64)
    for index, run in enumerate(columns.runs):
        mine = [pause for pause in pauses if pause.run == run]
        rows = np.flatnonzero(columns.run == index)
        if mine and rows.size:
            reach[rows] = _highest(
                _by_second(mine),
                columns.due_ns[rows] // _NS_PER_S,
                columns.done_ns[rows] // _NS_PER_S,
            )
    return reach


def _by_second(pauses: Sequence[Pause]) -> Ints:
    last_s = max(pause.last_ns // _NS_PER_S for pause in pauses)
    # the last second is untouched, and stands for all that follow
    seconds = np.zeros(last_s + 2, dtype=np.int64)
    for pause in pauses:
        touched = slice(max(pause.first_ns // _NS_PER_S, 0), pause.last_ns // _NS_PER_S + 1)
        seconds[touched] = np.maximum(seconds[touched], pause.lag_ns)
    return seconds


def _highest(seconds: Ints, first: Ints, last: Ints) -> Ints:
    """Return the highest of ``seconds[first..last]`` for each pair, by a table of maxima over powers of two.

    Beyond its end, ``seconds`` goes on as it ends.
    """
    first = np.clip(first, 0, seconds.size - 1)
    last = np.clip(last, first, seconds.size - 1)
    table = [seconds]
    while 2 ** len(table) <= seconds.size:
        half = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-half], table[-1][half:]))
    found = np.zeros(first.size, dtype=np.int64)
    power = np.floor(np.log2(last - first + 1)).astype(np.int64)
    for exponent, maxima in enumerate(table):
        here = power == exponent
        ends = last[here] - 2**exponent + 1
        found[here] = np.maximum(maxima[first[here]], maxima[ends])
    return found


def pause_text(pause: Pause, evidence: Evidence) -> str:
    """Return "a pause of 340 ms of generator local-0 at second 30 of the measured window"."""
    when = moment_text(pause.run, pause.at_ns, evidence)
    return f"a pause of {format_duration(pause.lag_ns)} of generator {pause.lane} {when}"


def moment_text(run: int, at_ns: int, evidence: Evidence) -> str:
    """Return "at second 30 of the measured window" for a stamp from the start of a run's warm-up."""
    second = (at_ns - evidence.window.warmup_ns) / _NS_PER_S
    whose = f" of run {run}" if len(evidence.runs) > 1 else ""
    if second >= 0:
        return f"at second {second:.0f} of the measured window{whose}"
    return f"{-second:.0f} s before the measured window{whose}"
