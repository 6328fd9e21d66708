"""The order of a run: sheets, run directory, engine, traffic, seal, ruling."""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

from rich.console import Console

from launchers.engine import LaunchError
from launchers.launch import SETTLE_NS, Running, launch
from launchers.spec import EngineSheet, EngineSpec, attach, read_engine, watched_by_dcgm
from loadgen import dialect as dialects
from loadgen.frames import Final, Job, Lost, Progress, Stop
from profiles.profile import Profile, ProfileSheet, read_profile
from profiles.schedule import burst_intervals, planned_counts, schedule_sha256
from profiles.sheet import Fault, RefusalError, Sheet, SheetError, find, nearest
from profiles.units import format_duration
from reports.manifest import (
    FORMAT,
    EngineFacts,
    Manifest,
    Plan,
    RunFacts,
    Telemetry,
    utc_now,
)
from reports.report import RuledBy
from reports.rundir import RunDir, new_run_id
from slas.abort import LiveSecond, TenantSecond, Watch
from slas.regression import Baseline
from slas.sla import Sla, SlaSheet, read_sla, sla_faults
from tailgate.check import certainly_broken, missing_baseline, rule_on, stored_baseline
from tailgate.exits import Exit
from tailgate.host import this_host, versions
from tailgate.live import Screen, say
from tailgate.traffic import Traffic, TrafficError

SECOND_NS = 1_000_000_000
LEAD_NS = 1_500_000_000
IDLE_WITHIN_NS = 30 * SECOND_NS
LATE_FINAL_NS = 20 * SECOND_NS
LOST_DRAIN_NS = 5 * SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asked for on the command line; None where a sheet or a default decides."""

    engine: str | None
    url: str | None
    model: str | None
    profile: str
    sla: str
    runs: int | None
    seed: int | None
    load_percent: int
    baseline: str | None
    quick: bool
    strict: bool
    out: Path | None
    generators: int
    dcgm_url: str | None
    api_key_env: str | None
    for_locust: int | None
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """The sheets of a run, read and found without fault, as they will be played."""

    profile: Profile
    profile_sheet: Sheet[ProfileSheet]
    sla: Sla
    sla_sheet: Sheet[SlaSheet]
    engine: EngineSpec
    engine_sheet: Sheet[EngineSheet] | None
    seed: int


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM came at a time when there is nothing to drain."""

    def __init__(self, signum: int) -> None:
        self.exit = Exit.INTERRUPTED if signum == signal.SIGINT else Exit.TERMINATED
        super().__init__(signal.Signals(signum).name)


class Interruption:
    """SIGINT and SIGTERM as a fact to look at while traffic flows, and an exception before and after.

    A second signal while traffic drains is an exception too: the person does not want to wait.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._draining_allowed = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[signum] = signal.signal(signum, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Within, the first signal is only noted in ``signum``."""
        self._draining_allowed = True
        try:
            yield
        finally:
            self._draining_allowed = False

    @property
    def exit(self) -> Exit | None:
        """The exit code that the signal asks for, or None if none came."""
        return None if self.signum is None else Interrupted(self.signum).exit

    def _came(self, signum: int, _frame: FrameType | None) -> None:
        first = self.signum is None
        self.signum = signum
        if not (first and self._draining_allowed):
            raise Interrupted(signum)


T = TypeVar("T")


def brief(request: Request) -> Brief:
    """Read every sheet and weigh them against each other; nothing is started.

    Raises SheetError with the faults of all of them.
    """
    faults: list[Fault] = []

    def reading(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except SheetError as error:
            faults.extend(error.faults)
            return None

    profile = reading(lambda: read_profile(find(request.profile, "profiles")))
    sla = reading(lambda: read_sla(find(request.sla, "slas")))
    engine = reading(lambda: _engine(request))
    if profile is None or sla is None or engine is None:
        raise SheetError(tuple(faults))
    played = profile[0].quick() if request.quick else profile[0]
    ruled = sla[0]
    if request.quick:
        ruled = replace(ruled, runs=1, confidence=None)
    elif request.runs is not None:
        ruled = replace(ruled, runs=request.runs)
    seed = played.seed if request.seed is None else request.seed
    spec = engine[0]
    faults.extend(unknown_apis(*profile))
    faults.extend(
        sla_faults(
            ruled,
            sla[1],
            tenants=tuple(tenant.name for tenant in played.tenants),
            bursting=frozenset(
                tenant
                for tenant, spans in burst_intervals(played, seed, request.load_percent).items()
                if spans
            ),
            memory_source=None if spec.telemetry.memory == "none" else spec.telemetry.memory,
            memory_every_ns=spec.telemetry.every_ns,
            engine_metrics=True,
            warmup_ns=played.warmup_ns,
            total_timeout_ns=played.timeouts.total_ns,
        )
    )
    if faults:
        raise SheetError(tuple(faults))
    return Brief(
        profile=played,
        profile_sheet=profile[1],
        sla=ruled,
        sla_sheet=sla[1],
        engine=spec,
        engine_sheet=engine[1],
        seed=seed,
    )


def unknown_apis(profile: Profile, sheet: Sheet[ProfileSheet]) -> Iterator[Fault]:
    """Yield a fault for each tenant that asks for a dialect nobody speaks."""
    known = dialects.names()
    for tenant in profile.tenants:
        if tenant.api not in known:
            yield sheet.fault(
                ("tenants", tenant.name, "api"),
                f"unknown API {tenant.api!r}",
                nearest(tenant.api, known),
            )


def _engine(request: Request) -> tuple[EngineSpec, Sheet[EngineSheet] | None]:
    spec: EngineSpec
    sheet: Sheet[EngineSheet] | None = None
    if request.engine is not None:
        spec, sheet = read_engine(find(request.engine, "launchers"))
    else:
        with _naming("--url"):
            spec = attach(request.url or "", request.model or "")
    if request.dcgm_url is not None:
        with _naming("--dcgm"):
            spec = watched_by_dcgm(spec, request.dcgm_url)
    return spec, sheet


@contextlib.contextmanager
def _naming(option: str) -> Iterator[None]:
    """Let a refused value be told with the option that it came by."""
    try:
        yield
    except RefusalError as refusal:
        raise RefusalError(f"{option}: {refusal.fault}", refusal.mend) from refusal


class Ledger:
    """The manifest as the run goes: every change is on disk before the next step."""

    def __init__(self, run_dir: RunDir, manifest: Manifest) -> None:
        self._run_dir = run_dir
        self.manifest = manifest
        run_dir.write_manifest(manifest)

    def change(self, **fields: Any) -> None:
        """Replace fields of the manifest."""
        self.manifest = replace(self.manifest, **fields)
        self._run_dir.write_manifest(self.manifest)

    def change_engine(self, **fields: Any) -> None:
        """Replace fields of the manifest's engine."""
        self.change(engine=replace(self.manifest.engine, **fields))

    def warn(self, words: str) -> None:
        """Add a warning; a repeated one is kept once."""
        self.change(warnings=tuple(dict.fromkeys((*self.manifest.warnings, words))))

    def invalid(self, *reasons: str) -> None:
        """Add reasons that are our own fault; a repeated one is kept once."""
        self.change(invalid=tuple(dict.fromkeys((*self.manifest.invalid, *reasons))))


def run(request: Request, console: Console) -> int:
    """Play a run from its sheets to its exit code.

    Raises SheetError, UsageError and LaunchError before or when the engine starts; after that every way out
    is a ruling that is written down.
    """
    sheets = brief(request)
    baseline = stored_baseline(request.baseline)
    if request.baseline is not None and baseline is None:
        say(console, missing_baseline(request.baseline))
    run_dir = RunDir.create(request.out)
    # a directory's own name may be anybody's; processes are found, and ended, by this id
    run_id = run_dir.path.name if request.out is None else new_run_id()
    _store_sheets(run_dir, sheets)
    ledger = Ledger(run_dir, _opening(sheets, request, run_id))
    traffic: Traffic | None = None
    forced: Exit | None = None
    code = int(Exit.BUG)
    try:
        with Interruption() as interruption:
            try:
                traffic = _traffic(request, run_dir, run_id)
                _perform(sheets, request, run_dir, ledger, traffic, interruption, console, baseline)
            except Interrupted as stop:
                ledger.change(cut=f"interrupted by {stop}")
                forced = stop.exit
            except LaunchError as error:
                ledger.change_engine(fault=error.cause)
                ledger.change(cut="the engine did not become ready", state="cut", ended=utc_now())
                code = int(Exit.NOT_READY)
                if run_dir.engine_log.exists():
                    say(console, f"engine log {run_dir.engine_log}")
                raise
            except TrafficError as lost:
                ledger.invalid(str(lost))
            except OSError as fault:
                ledger.invalid(f"this host could not go on: {fault}")
            # what was measured is written up, whoever is impatient: it takes a second or two
            with interruption.noted():
                forced = forced or interruption.exit
                run_dir.seal()
                ruled = rule_on(
                    run_dir,
                    sla=sheets.sla,
                    ruled_by=RuledBy(
                        sla=str(sheets.sla_sheet.path), sha256=sheets.sla_sheet.sha256
                    ),
                    baseline=baseline,
                    strict=request.strict,
                    forced=forced,
                )
                ruled.show(console)
                code = int(interruption.exit or ruled.exit_code)
    finally:
        if traffic is not None:
            traffic.quit(code)
    return code


def _traffic(request: Request, run_dir: RunDir, run_id: str) -> Traffic:
    if request.for_locust is not None:
        return Traffic.adopt(request.for_locust)
    return Traffic.start(
        lanes=request.generators,
        log=run_dir.path / "locust.log",
        environment={"TAILGATE_RUN_ID": run_id},
    )


def _perform(
    sheets: Brief,
    request: Request,
    run_dir: RunDir,
    ledger: Ledger,
    traffic: Traffic,
    interruption: Interruption,
    console: Console,
    baseline: Baseline | None,
) -> None:
    """Launch the engine, play every run at it, and stop it whatever happens."""
    screen = Screen(
        console,
        tenants=tuple(tenant.name for tenant in sheets.profile.tenants),
        runs=sheets.sla.runs,
    )
    screen.say(f"run directory {run_dir.path}")
    running = launch(
        sheets.engine,
        run_dir,
        run_id=ledger.manifest.run_id,
        api_key_env=request.api_key_env,
        on_wait=screen.say,
    )
    try:
        ledger.change_engine(
            url=running.url,
            argv=running.argv,
            version=running.version,
            ready_ns=running.ready_ns,
        )
        ledger.change(
            gpus=running.gpus,
            simulated=running.simulated,
            telemetry=replace(ledger.manifest.telemetry, engine_metrics=running.engine_metrics),
        )
        for warning in running.warnings:
            ledger.warn(warning)
            screen.say(f"warning: {warning}")
        traffic.await_hello(request.generators)
        for number in range(1, sheets.sla.runs + 1):
            if number > 1:
                doubt = idle_doubt(running.wait_idle(IDLE_WITHIN_NS), number - 1)
                if doubt is not None:
                    ledger.warn(doubt)
            session = Session(sheets, request, run_dir, running, traffic, screen, interruption)
            try:
                session.play(number)
            finally:
                screen.end()
                session.write_down(ledger)
            if session.over:
                break
            if number < sheets.sla.runs:
                broken = certainly_broken(run_dir, sla=sheets.sla, baseline=baseline)
                if broken is not None:
                    screen.say(f"no further run: {broken} is broken whatever they would show")
                    ledger.change(aborted=broken)
                    break
    except BaseException:
        # generators that did not end by themselves write their last rows now: before the engine is taken from
        # them, and before the run is sealed
        if request.for_locust is None:
            traffic.quit(int(Exit.INVALID))
        raise
    finally:
        fault = running.poll()
        stopped_ns = time.monotonic_ns()
        running.stop()
        ledger.invalid(*running.invalid)
        for warning in running.warnings:
            ledger.warn(warning)
        ledger.change_engine(stopped_ns=stopped_ns)
        if fault is not None:
            ledger.change_engine(fault=fault)


def idle_doubt(idle: bool | None, run: int) -> str | None:
    """Return the warning for what ``wait_idle`` answered after ``run``, None if the engine was seen idle.

    >>> idle_doubt(False, 1)
    'the engine was not idle within 30.0 s after run 1'
    >>> idle_doubt(None, 1)
    'no metric shows whether the engine was idle after run 1; run 2 began after a wait of 2.00 s'
    """
    if idle is None:
        wait = format_duration(SETTLE_NS)
        return (
            f"no metric shows whether the engine was idle after run {run}; "
            f"run {run + 1} began after a wait of {wait}"
        )
    within = format_duration(IDLE_WITHIN_NS)
    return None if idle else f"the engine was not idle within {within} after run {run}"


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


def _store_sheets(run_dir: RunDir, sheets: Brief) -> None:
    run_dir.write_atomic("sheets/profile.yaml", sheets.profile_sheet.data)
    run_dir.write_atomic("sheets/sla.yaml", sheets.sla_sheet.data)
    if sheets.engine_sheet is not None:
        run_dir.write_atomic("sheets/engine.yaml", sheets.engine_sheet.data)


def _opening(sheets: Brief, request: Request, run_id: str) -> Manifest:
    profile, spec, level = sheets.profile, sheets.engine, request.load_percent
    hashes = {"profile": sheets.profile_sheet.sha256, "sla": sheets.sla_sheet.sha256}
    if sheets.engine_sheet is not None:
        hashes["engine"] = sheets.engine_sheet.sha256
    shown = versions()
    return Manifest(
        format=FORMAT,
        run_id=run_id,
        state="open",
        tailgate=shown["tailgate"],
        argv=request.argv,
        hosts=(this_host("controller"),),
        gpus=(),
        seed=sheets.seed,
        level_percent=level,
        quick=request.quick,
        schedule_sha256=schedule_sha256(profile, sheets.seed, level),
        sheets_sha256=hashes,
        engine=EngineFacts(
            kind=spec.engine,
            name=spec.name,
            version=spec.engine_version,
            model=spec.served_as,
            url=spec.url or "",
            argv=(),
            ready_ns=None,
            stopped_ns=None,
            fault=None,
        ),
        telemetry=Telemetry(
            memory=None if spec.telemetry.memory == "none" else spec.telemetry.memory,
            every_ns=None if spec.telemetry.memory == "none" else spec.telemetry.every_ns,
            engine_metrics=True,
        ),
        plan=Plan(
            profile=profile.name,
            warmup_ns=profile.warmup_ns,
            duration_ns=profile.duration_ns,
            drain_ns=profile.drain_ns,
            total_timeout_ns=profile.timeouts.total_ns,
            tenants=tuple(tenant.name for tenant in profile.tenants),
            rates_hz={
                tenant.name: tenant.rate_hz * level / 100
                for tenant in profile.tenants
                if tenant.rate_hz is not None
            },
            concurrency={
                tenant.name: -(-tenant.concurrency * level // 100)
                for tenant in profile.tenants
                if tenant.concurrency is not None
            },
            constant_rate=profile.constant_rate,
            bursts=burst_intervals(profile, sheets.seed, level),
        ),
        runs=(),
        simulated=spec.engine == "sim",
        started=utc_now(),
        ended=None,
        invalid=(),
        warnings=(),
        cut=None,
        aborted=None,
        versions=shown,
    )
