"""One of the R runs: its jobs are sent, its seconds come in, its lanes say their last words."""

from __future__ import annotations

import secrets
import signal
import time

from launchers.launch import Running
from loadgen.frames import Final, Job, Lost, Progress, Stop
from profiles.schedule import planned_counts
from profiles.units import format_duration
from reports.manifest import RunFacts
from reports.rundir import RunDir
from slas.abort import LiveSecond, TenantSecond, Watch
from tailgate.brief import Brief, Request
from tailgate.interruption import Interruption
from tailgate.ledger import Ledger
from tailgate.live import Screen
from tailgate.traffic import Traffic, TrafficError

SECOND_NS = 1_000_000_000
LEAD_NS = 1_500_000_000
LATE_FINAL_NS = 20 * SECOND_NS
LOST_DRAIN_NS = 5 * SECOND_NS


class Session:
    """One of the R runs: its jobs are sent, its seconds come in, its lanes say their last words."""

    def __init__(
        self,
        sheets: Brief,
        request: Request,
        run_dir: RunDir,
        running: Running,
        traffic: Traffic,
        screen: Screen,
        interruption: Interruption,
    ) -> None:
        self._sheets = sheets
        self._request = request
        self._run_dir = run_dir
        self._running = running
        self._traffic = traffic
        self._screen = screen
        self._interruption = interruption
        self._watch = Watch(sheets.sla.checks, from_ns=sheets.profile.warmup_ns)
        self._finals: dict[int, Final] = {}
        self._invalid: list[str] = []
        self._stopped = False
        self._number = 0
        self._start_ns = 0
        self._cut: str | None = None
        self._aborted: str | None = None
        self._fault: str | None = None
        self._lost = 0
        self._deadline_ns = 0

    @property
    def over(self) -> bool:
        """True if no further run must follow this one."""
        return self._stopped or bool(self._invalid) or self._fault is not None

    def play(self, number: int) -> None:
        """Play run ``number`` to the last word of its last lane.

        Raises TrafficError when the generators cannot go on, Interrupted on a second signal.
        """
        request, profile = self._request, self._sheets.profile
        self._number = number
        self._start_ns = time.monotonic_ns() + LEAD_NS
        salt = secrets.token_hex(6)
        for lane in range(request.generators):
            self._traffic.send(
                Job(
                    run=number,
                    lane=lane,
                    lanes=request.generators,
                    worker="local",
                    run_dir=str(self._run_dir.path),
                    profile_path=str(self._sheets.profile_sheet.path.absolute()),
                    seed=self._sheets.seed,
                    level_percent=request.load_percent,
                    quick=request.quick,
                    url=self._running.url,
                    model=self._running.model,
                    api_key_env=request.api_key_env,
                    salt=salt,
                    start_ns=self._start_ns,
                )
            )
        self._screen.begin()
        window_ns = profile.warmup_ns + profile.duration_ns
        self._deadline_ns = self._start_ns + window_ns + profile.drain_ns + LATE_FINAL_NS
        with self._interruption.noted():
            while len(self._finals) + self._lost < request.generators:
                for frame in self._traffic.receive(0.2):
                    self._hear(frame)
                elapsed_ns = time.monotonic_ns() - self._start_ns
                phase = (
                    "drain"
                    if self._stopped or elapsed_ns >= window_ns
                    else "measure"
                    if elapsed_ns >= profile.warmup_ns
                    else "warm-up"
                )
                self._screen.show(
                    run=number, elapsed_ns=elapsed_ns, total_ns=window_ns, phase=phase
                )
                if self._interruption.signum is not None and self._cut is None:
                    self._cut = (
                        f"interrupted by {signal.Signals(self._interruption.signum).name} "
                        f"{format_duration(max(elapsed_ns, 0))} after the start of run {number}"
                    )
                    self._stop(self._cut)
                    self._deadline_ns = time.monotonic_ns() + profile.drain_ns + LATE_FINAL_NS
                if self._fault is None and (fault := self._running.poll()) is not None:
                    self._fault = fault
                    self._stop(f"the engine is gone: {fault}")
                    self._deadline_ns = time.monotonic_ns() + profile.drain_ns + LATE_FINAL_NS
                if time.monotonic_ns() > self._deadline_ns:
                    if self._lost:
                        break
                    silent = sorted(set(range(request.generators)) - set(self._finals))
                    raise TrafficError(f"no last word from generator {silent} of run {number}")

    def write_down(self, ledger: Ledger) -> None:
        """Put what this run was into the manifest."""
        planned: dict[str, int] = {}
        for final in self._finals.values():
            for tenant, count in final.planned.items():
                planned[tenant] = planned.get(tenant, 0) + count
        lanes = self._request.generators
        expected = planned_counts(
            self._sheets.profile, self._sheets.seed, self._request.load_percent
        )
        finished = len(self._finals) == lanes and all(f.finished for f in self._finals.values())
        if finished and {t: n for t, n in planned.items() if n} != {
            t: n for t, n in expected.items() if n
        }:
            self._invalid.append(
                f"the generators planned {planned} requests, the schedule holds {expected}"
            )
        ends = [final.end_ns for final in self._finals.values()]
        span = RunFacts(
            run=self._number,
            start_ns=self._start_ns,
            end_ns=max(ends, default=time.monotonic_ns()),
            planned=expected,
            finished=finished,
        )
        ledger.change(runs=(*ledger.manifest.runs, span))
        if self._invalid:
            ledger.invalid(*self._invalid)
        if self._cut is not None:
            ledger.change(cut=self._cut)
        if self._aborted is not None:
            ledger.change(aborted=self._aborted)
        if self._fault is not None:
            ledger.change_engine(fault=self._fault)

    def _hear(self, frame: object) -> None:
        match frame:
            case Progress() if frame.run == self._number:
                self._screen.tally.add(frame)
                broken = self._watch.observe(_live_second(frame))
                if broken is not None and not self._stopped:
                    self._aborted = broken.name
                    self._stop(f"{broken.name} is broken")
            case Final() if frame.run == self._number:
                self._finals[frame.lane] = frame
                self._invalid.extend(frame.invalid)
            case Stop():
                # the locust process that we sit with was asked to end
                self._cut = self._cut or frame.why
                self._stop(frame.why)
            case Lost():
                self._invalid.append(f"{frame.worker}: {frame.why}")
                self._lost += 1
                self._deadline_ns = time.monotonic_ns() + LOST_DRAIN_NS
                self._stop("a generator is lost")
            case _:
                pass  # a late word of an earlier run, or another Hello

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._traffic.send(Stop(why=why))


def _live_second(progress: Progress) -> LiveSecond:
    return LiveSecond(
        at_ns=progress.at_ns,
        tenants={
            name: TenantSecond(
                sent=second.sent,
                completed=second.completed,
                failed=second.failed,
                ttft=second.ttft,
                itl=second.itl,
                tpot=second.tpot,
                e2e=second.e2e,
            )
            for name, second in progress.tenants.items()
        },
    )
