"""Traffic that is either busy or silent: an interrupted Poisson process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from profiles.process import CHUNK, Arrival, Stretch
from profiles.sheet import Duration, Share

# cycles are drawn this many at a time at most, so that a stretch stays short where requests are many
_CYCLES = 256


class OnOff(Arrival):
    """Poisson at rate/busy while on, silent while off; both dwells exponential, ``dwell`` the mean of on.

    ``busy`` is the share of time in which it is on, so off lasts dwell x (1 - busy) / busy on average. The state at
    the start is drawn with that share. With on-rate l, r1 = 1/on dwell and r2 = 1/off dwell the gaps have
    CV^2 = 1 + 2 l r1 / (r1 + r2)^2, and counts in bins of b seconds the index of dispersion
    1 + A (1 - (1 - e^-sb) / (sb)), s = r1 + r2, A = 2 l r1 / s^2 (Kuczura 1973; Fischer and Meier-Hellstern 1993).
    """

    has_states: ClassVar[bool] = True
    model: Literal["on_off"] = "on_off"
    busy: Share = Field(gt=0, lt=1, description="share of time in which requests come")
    dwell: Duration = Field(ge=1_000_000, description="mean length of a busy spell")

    def draws(self, rate_hz: float, until_s: float) -> float:
        """Return the expected arrivals and spells."""
        return (rate_hz + self.busy * 1e9 / self.dwell) * until_s

    def stretches(
        self, rng: np.random.Generator, rate_hz: float, until_s: float
    ) -> Iterator[Stretch]:
        """Yield the arrivals and the spells in which it is on.

        Arrivals are Poisson on the axis of time spent on and are then moved by the silence before them. States
        and gaps have streams of their own: another rate leaves the spells where they are.
        """
        states, gaps = rng.spawn(2)
        on_rate_hz = rate_hz / self.busy
        on_s = self.dwell / 1e9
        off_s = on_s * (1 - self.busy) / self.busy
        cycles = int(max(1, min(_CYCLES, CHUNK / (on_rate_hz * on_s))))
        starts_on = states.random() < self.busy
        start_s = 0.0
        ahead_s = np.array([gaps.standard_exponential() / on_rate_hz])
        first = True
        while start_s < until_s:
            dwells = states.standard_exponential((cycles, 2))
            silent_s = dwells[:, 0] * off_s
            busy_s = dwells[:, 1] * on_s
            if first and starts_on:
                silent_s[0] = 0
            first = False
            # spell i covers [busy_before_s[i], busy_until_s[i]) on the axis of time spent on
            busy_until_s = np.cumsum(busy_s)
            busy_before_s = busy_until_s - busy_s
            spells_s = start_s + np.cumsum(silent_s) + busy_before_s
            batches = [ahead_s]
            while batches[-1][-1] < busy_until_s[-1]:
                batches.append(
                    batches[-1][-1] + np.cumsum(gaps.standard_exponential(CHUNK) / on_rate_hz)
                )
            on_axis_s = np.concatenate(batches)
            within = int(np.searchsorted(on_axis_s, busy_until_s[-1]))
            ahead_s = on_axis_s[within:] - busy_until_s[-1]
            spell = np.searchsorted(busy_until_s, on_axis_s[:within], side="right")
            yield Stretch(
                times_s=on_axis_s[:within] + (spells_s - busy_before_s)[spell],
                bursts_s=tuple(zip(spells_s.tolist(), (spells_s + busy_s).tolist(), strict=True)),
            )
            start_s = float(spells_s[-1] + busy_s[-1])
