"""The order of a run: sheets, run directory, engine, traffic, seal, ruling."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.console import Console

from launchers.engine import LaunchError
from launchers.launch import SETTLE_NS, launch
from profiles.units import format_duration
from reports.manifest import utc_now
from reports.report import RuledBy
from reports.rundir import RunDir, new_run_id
from slas.regression import Baseline
from tailgate.brief import Brief, Request, brief
from tailgate.check import certainly_broken, missing_baseline, rule_on, stored_baseline
from tailgate.exits import Exit
from tailgate.interruption import Interrupted, Interruption
from tailgate.ledger import Ledger, opening
from tailgate.live import Screen, say
from tailgate.session import Session
from tailgate.traffic import Traffic, TrafficError

SECOND_NS = 1_000_000_000
IDLE_WITHIN_NS = 30 * SECOND_NS


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
    ledger = Ledger(run_dir, opening(sheets, request, run_id))
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


def _store_sheets(run_dir: RunDir, sheets: Brief) -> None:
    run_dir.write_atomic("sheets/profile.yaml", sheets.profile_sheet.data)
    run_dir.write_atomic("sheets/sla.yaml", sheets.sla_sheet.data)
    if sheets.engine_sheet is not None:
        run_dir.write_atomic("sheets/engine.yaml", sheets.engine_sheet.data)
