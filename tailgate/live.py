"""The run as it goes: what the generators' last words of each second add up to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live as RichLive
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadgen.frames import Progress
from profiles.units import format_duration
from slas.histogram import Histogram

SECOND_NS = 1_000_000_000
PLAIN_EVERY_NS = 5 * SECOND_NS


@dataclass(slots=True)
class TenantTally:
    """One tenant's counts in the current run and its TTFT so far."""

    sent: int = 0
    completed: int = 0
    failed: int = 0
    ttft: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Tally:
    """The sums of one run: every generator's seconds, added up."""

    tenants: dict[str, TenantTally]
    in_flight: dict[int, int] = field(default_factory=dict)
    lateness_max_ns: int = 0

    def add(self, progress: Progress) -> None:
        """Add one generator's second."""
        self.in_flight[progress.lane] = progress.in_flight
        self.lateness_max_ns = max(self.lateness_max_ns, progress.lateness_max_ns)
        for name, second in progress.tenants.items():
            tenant = self.tenants.setdefault(name, TenantTally())
            tenant.sent += second.sent
            tenant.completed += second.completed
            tenant.failed += second.failed
            tenant.ttft.add_sparse(second.ttft)

    @property
    def sent(self) -> int:
        """Requests sent so far."""
        return sum(tenant.sent for tenant in self.tenants.values())

    @property
    def failed(self) -> int:
        """Requests that failed so far."""
        return sum(tenant.failed for tenant in self.tenants.values())


class Screen:
    """What a person sees while a run goes: a bar on a terminal, plain lines in a log."""

    def __init__(self, console: Console, *, tenants: tuple[str, ...], runs: int) -> None:
        self._console = console
        self._names = tenants
        self._runs = runs
        self._plain_due_ns = 0
        self._live: RichLive | None = None
        self.tally = Tally(tenants={name: TenantTally() for name in tenants})

    def say(self, words: str) -> None:
        """Print one line above the bar."""
        say(self._console, words)

    def begin(self) -> None:
        """Start a run's tally and, on a terminal, its bar."""
        self.tally = Tally(tenants={name: TenantTally() for name in self._names})
        self._plain_due_ns = 0
        if self._console.is_terminal and self._live is None:
            self._live = RichLive(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def end(self) -> None:
        """Take the bar away; may be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, *, run: int, elapsed_ns: int, total_ns: int, phase: str) -> None:
        """Redraw the bar, or print a plain line when one is due."""
        if self._live is not None:
            self._live.update(self._table(run, elapsed_ns, total_ns, phase))
        elif time.monotonic_ns() >= self._plain_due_ns:
            self._plain_due_ns = time.monotonic_ns() + PLAIN_EVERY_NS
            self.say(self._line(run, elapsed_ns, total_ns, phase))

    def _p99(self, name: str) -> str:
        tenant = self.tally.tenants.get(name)
        p99_us = tenant.ttft.percentile_us(0.99) if tenant and tenant.ttft.total else None
        return "-" if p99_us is None else format_duration(p99_us * 1_000)

    def _line(self, run: int, elapsed_ns: int, total_ns: int, phase: str) -> str:
        tally = self.tally
        p99s = ", ".join(f"{name} {self._p99(name)}" for name in self._names)
        return (
            f"run {run}/{self._runs} {phase:<8} {_clock(elapsed_ns)}/{_clock(total_ns)}"
            f"  sent {tally.sent:,}  in flight {sum(tally.in_flight.values()):,}"
            f"  failed {tally.failed:,}  ttft p99: {p99s}"
        )

    def _table(self, run: int, elapsed_ns: int, total_ns: int, phase: str) -> Table:
        tally = self.tally
        head = Table.grid(padding=(0, 1))
        head.add_row(
            Text(f"run {run}/{self._runs}", style="bold"),
            Text(f"{phase:<8}", style="cyan"),
            ProgressBar(total=total_ns, completed=min(elapsed_ns, total_ns), width=24),
            Text(f"{_clock(elapsed_ns)}/{_clock(total_ns)}"),
            Text(f"sent {tally.sent:>7,}"),
            Text(f"in flight {sum(tally.in_flight.values()):>6,}"),
            Text(f"failed {tally.failed:,}", style="bold red" if tally.failed else ""),
        )
        tenants = Table.grid(padding=(0, 2))
        for name in self._names:
            tenant = tally.tenants[name]
            tenants.add_row(
                Text(f"  {name}"),
                Text(f"sent {tenant.sent:>7,}", style="dim"),
                Text(f"ttft p99 {self._p99(name):>8}"),
                Text(f"failed {tenant.failed:,}", style="red") if tenant.failed else Text(""),
            )
        both = Table.grid()
        both.add_row(head)
        both.add_row(tenants)
        return both


def say(console: Console, words: str) -> None:
    """Print words as they are: no markup, no colour, no wrapping of paths."""
    console.print(words, markup=False, highlight=False, soft_wrap=True)


def _clock(ns: int) -> str:
    """Return minutes and seconds.

    >>> _clock(75_400_000_000)
    '01:15'
    """
    minutes, seconds = divmod(max(ns, 0) // SECOND_NS, 60)
    return f"{minutes:02}:{seconds:02}"
