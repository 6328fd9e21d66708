"""The manifest as a run goes on: opened with what is planned, changed with what happens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiles.schedule import burst_intervals, schedule_sha256
from reports.manifest import FORMAT, EngineFacts, Manifest, Plan, Telemetry, utc_now
from reports.rundir import RunDir
from tailgate.brief import Brief, Request
from tailgate.host import this_host, versions


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


def opening(sheets: Brief, request: Request, run_id: str) -> Manifest:
    """Return the manifest of a run that has not begun: everything that is known from its sheets."""
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
