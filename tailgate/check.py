"""Ruling on a run from disk: read the evidence, rule, write the derived files, map to an exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from profiles.sheet import find, nearest
from profiles.units import format_duration
from reports import baseline as baselines
from reports.fault import UsageError
from reports.intervals import write_intervals
from reports.manifest import utc_now
from reports.report import Report, RuledBy
from reports.rundir import RunDir, doubts, read_evidence, read_summaries, sheet_of
from reports.writer import write_all
from reports.writers import console as terminal
from slas.check import rule
from slas.measurement import histograms, measure
from slas.regression import Baseline
from slas.ruling import Ruling, Verdict
from slas.sla import Sla, read_sla
from tailgate.exits import Exit


@dataclass(frozen=True, slots=True)
class Ruled:
    """A run that was ruled on, with everything derived from it on the disk."""

    report: Report

    @property
    def exit_code(self) -> int:
        """What the process must exit with."""
        return self.report.exit_code

    @property
    def run_dir(self) -> RunDir:
        """Where the run is."""
        return self.report.run_dir

    def show(self, console: Console) -> None:
        """Print the ruling, its reasons and where the report is."""
        terminal.render(self.report, console)
        console.print(
            f"report {self.run_dir.report}", markup=False, highlight=False, soft_wrap=True
        )


def exit_code(verdict: Verdict, *, on_inconclusive: str) -> Exit:
    """Return the exit code of a verdict (DESIGN 5)."""
    match verdict.ruling:
        case Ruling.PASS | Ruling.SKIPPED:
            return Exit.PASS
        case Ruling.FAIL:
            return Exit.BROKEN_PROMISE
        case Ruling.INVALID:
            return Exit.INVALID
        case Ruling.INCONCLUSIVE:
            return Exit.PASS if on_inconclusive == "warn" else Exit.INCONCLUSIVE


def stored_baseline(name: str | None) -> Baseline | None:
    """Return the pin or run directory of that name; None if none was asked for or there is none yet.

    Raises PaperError if it is there and cannot serve.
    """
    return None if name is None else baselines.find(name)


def missing_baseline(name: str) -> str:
    """Return the notice that a baseline is not there, with the pin that may have been meant."""
    known = [pin.name for pin in baselines.pins()]
    meant = f"; {nearest(name, known)}" if known else ""
    return f"no baseline is called {name!r} yet: checks beside it will be SKIPPED{meant}"


def certainly_broken(run_dir: RunDir, *, sla: Sla, baseline: Baseline | None) -> str | None:
    """Return the name of a must that no further run could mend, judged from what is on disk; None if none is.

    Until a run is sealed the court calls only what is certain a FAIL, which is the question here.
    """
    verdict = rule(sla, read_evidence(run_dir.path), baseline)
    return next(
        (
            check.name
            for check in verdict.checks
            if check.level == "must" and check.ruling is Ruling.FAIL
        ),
        None,
    )


def rule_on(
    run_dir: RunDir,
    *,
    sla: Sla,
    ruled_by: RuledBy,
    baseline: Baseline | None,
    strict: bool,
    forced: Exit | None = None,
) -> Ruled:
    """Rule on the run and write every derived file; ``forced`` overrides the exit code of an interrupted run.

    Raises PaperError if the directory cannot be read or written.
    """
    evidence = read_evidence(run_dir.path)
    summaries = None if evidence.rows else read_summaries(run_dir.path)
    verdict = rule(sla, evidence, baseline, strict=strict, summaries=summaries)
    code = forced or exit_code(verdict, on_inconclusive=sla.on_inconclusive)
    manifest = run_dir.manifest()
    report = Report(
        verdict=verdict,
        measurements=measure(evidence) if summaries is None else summaries.measurements,
        manifest=manifest,
        evidence=evidence,
        run_dir=run_dir,
        exit_code=int(code),
        histograms=histograms(evidence) if summaries is None else summaries.histograms,
        baseline=baseline,
        ruled_by=ruled_by,
        doubts=doubts(run_dir, manifest, evidence),
    )
    if summaries is None:
        write_intervals(run_dir, evidence)
    write_all(report)
    return Ruled(report)


def check_run(
    path: Path, *, sla_name: str | None, baseline_name: str | None, strict: bool
) -> Ruled:
    """Rule again on the stored run at ``path``.

    Raises SheetError if the SLA has faults, PaperError if the run cannot be read.
    """
    run_dir = RunDir.open(path)
    sheet = sheet_of(run_dir, "sla") if sla_name is None else find(sla_name, "slas")
    sla, read = read_sla(sheet)
    return rule_on(
        run_dir,
        sla=sla,
        ruled_by=RuledBy(sla=str(read.path), sha256=read.sha256, again=utc_now()),
        baseline=stored_baseline(baseline_name),
        strict=strict,
    )


def rerender(path: Path) -> Path:
    """Write the derived files of the stored run again and return where its report is.

    Raises SheetError or PaperError as ``check_run``.
    """
    return check_run(path, sla_name=None, baseline_name=None, strict=False).run_dir.report


def show_pin(console: Console, name: str) -> None:
    """Print what the pin of that name is of, and the percentiles that it holds.

    Raises PaperError if there is none.
    """
    pins = {pin.name: pin for pin in baselines.pins()}
    if name not in pins:
        raise UsageError(
            baselines.BASELINES,
            f"it holds no pin called {name!r}",
            f"choose one of {', '.join(sorted(pins))}"
            if pins
            else "pin a run first: tailgate baseline pin RUN --name NAME",
        )
    kept = pins[name]
    subject = kept.baseline.subject
    facts = {
        "pinned": kept.pinned,
        "run": f"{kept.run_id}, started {kept.started}, {kept.ruling}",
        "engine": f"{subject.engine} {subject.engine_version or ''} {subject.model}",
        "gpus": ", ".join(subject.gpu_models) or "not watched",
        "profile": f"{kept.profile}, seed {kept.seed}, {kept.baseline.runs} run(s)",
        "schedule": subject.schedule_sha256,
        "versions": ", ".join(f"{what} {version}" for what, version in kept.versions.items()),
        "simulated": "yes" if kept.baseline.simulated else "no",
    }
    for heading, words in facts.items():
        console.print(f"{heading:<10} {words}", markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="bold")
    table.add_column("metric")
    table.add_column("tenant")
    for heading in ("n", "p50", "p99"):
        table.add_column(heading, justify="right")
    for measurement in kept.baseline.measurements:
        if measurement.run is None and measurement.phase is None and measurement.unit == "s":
            table.add_row(
                measurement.metric,
                measurement.tenant or "all",
                f"{measurement.count:,}",
                _latency(measurement.p50),
                _latency(measurement.p99),
            )
    console.print(table)


def _latency(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds * 1e9)
