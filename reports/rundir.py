"""The directory of one run: where its files are, how they are written, and how it is read back."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic_core import from_json

from reports import manifest as manifests
from reports.fault import FormatError, UsageError, WriteError
from reports.hlog import key_of, read_hlog
from reports.manifest import Manifest, utc_now
from reports.replacing import sync, write_atomic
from reports.rows import RowReader
from reports.samples import ENGINE, HEALTH, MEMORY, S, SampleKind, SampleReader
from reports.summary import measurements_from
from slas.evidence import Evidence, RequestRow, RunSpan, Subject, Window
from slas.histogram import Histogram
from slas.measurement import HistogramKey, Measurement, Summaries

RUNS = Path("runs")


def new_run_id() -> str:
    """Return the name of a new run, ``<UTC>-<4 hex>``; its processes carry it too, so no two runs share one."""
    return f"{utc_now().replace(':', '-')}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class RunDir:
    """One run's directory. Raw files are appended to by their own writers, the rest is rewritten atomically."""

    path: Path

    @classmethod
    def create(cls, out: Path | None = None) -> RunDir:
        """Make a new directory: ``runs/<UTC>-<4 hex>`` of the working directory, or ``out``.

        Raises UsageError if ``out`` is a file or a directory with something in it, WriteError if it cannot be made.
        """
        if out is None:
            path = RUNS / new_run_id()
        else:
            path = out
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UsageError(
                    path,
                    "it is not a new or empty directory",
                    "give --out another directory, or remove what is in it",
                )
        try:
            path.mkdir(parents=True, exist_ok=out is not None)
            run = cls(path.absolute())
            for folder in (run.sheets, run.requests, run.intervals, run.memory, run.engine):
                folder.mkdir()
            run.health.mkdir()
        except OSError as cause:
            raise WriteError(path, cause, lost=0) from cause
        return run

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """Return the run at path, which must have a manifest.

        Raises UsageError if there is none.
        """
        run = cls(path.absolute())
        if not run.manifest_file.is_file():
            raise UsageError(
                path,
                "not a run directory: it has no manifest.json",
                "give a directory that `tailgate run` wrote, such as runs/<time>-<id>",
            )
        return run

    @property
    def manifest_file(self) -> Path:
        """``manifest.json``."""
        return self.path / "manifest.json"

    @property
    def sheets(self) -> Path:
        """The folder with the exact bytes of the sheets."""
        return self.path / "sheets"

    @property
    def requests(self) -> Path:
        """The folder of request rows."""
        return self.path / "requests"

    @property
    def intervals(self) -> Path:
        """The folder of .hlog files."""
        return self.path / "intervals"

    @property
    def memory(self) -> Path:
        """The folder of memory samples, a file a node."""
        return self.path / "memory"

    @property
    def engine(self) -> Path:
        """The folder of what the engine said."""
        return self.path / "engine"

    @property
    def health(self) -> Path:
        """The folder of the generators' health samples."""
        return self.path / "health"

    @property
    def engine_metrics(self) -> Path:
        """The engine's own metrics."""
        return self.engine / "metrics.jsonl.gz"

    @property
    def engine_log(self) -> Path:
        """What the engine printed."""
        return self.engine / "stdout.log"

    @property
    def measurements(self) -> Path:
        """``measurements.json``."""
        return self.path / "measurements.json"

    @property
    def verdict(self) -> Path:
        """``verdict.json``."""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        """``report.html``."""
        return self.path / "report.html"

    def rows_of(self, worker: str, lane: int) -> Path:
        """Return where the rows of one lane of one worker go."""
        return self.requests / f"{worker}-{lane}.jsonl.gz"

    def health_of(self, worker: str, lane: int) -> Path:
        """Return where the health samples of one lane of one worker go."""
        return self.health / f"{worker}-{lane}.jsonl.gz"

    def memory_of(self, node: str) -> Path:
        """Return where the memory samples of one node go."""
        return self.memory / f"{node}.jsonl.gz"

    def write_atomic(self, name: str, data: bytes) -> None:
        """Replace the file of that relative name: a reader sees the old bytes or the new, never a part.

        Raises WriteError if it cannot be written; the old file then stands.
        """
        write_atomic(self.path / name, data)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace ``manifest.json``."""
        self.write_atomic("manifest.json", manifests.to_json(manifest))

    def manifest(self) -> Manifest:
        """Return the manifest.

        Raises FormatError if it is damaged or of a newer format, UsageError if it is not there.
        """
        try:
            stored = self.manifest_file.read_bytes()
        except FileNotFoundError as cause:
            raise UsageError(
                self.path, "it has no manifest.json", "give a run directory"
            ) from cause
        except OSError as cause:
            raise FormatError.unreadable(self.manifest_file, cause) from cause
        return manifests.from_json(stored, self.manifest_file)

    def seal(self) -> Manifest:
        """Bring every raw file to the disk and mark the run sealed, or cut if its manifest says why.

        Raises WriteError if a file cannot be brought to the disk; the run then stays open.
        """
        for file in sorted(self.path.rglob("*")):
            if file.is_file():
                sync(file)
        whole = self.manifest()
        sealed = replace(
            whole,
            state="sealed" if whole.cut is None else "cut",
            ended=utc_now() if whole.ended is None else whole.ended,
        )
        self.write_manifest(sealed)
        return sealed


def read_evidence(path: Path) -> Evidence:
    """Return everything that the run directory at path holds, ready to be ruled on.

    Torn tails are read up to their last whole line. In a sealed run they are our fault and make it INVALID;
    a run that was never sealed is cut.
    Raises UsageError or FormatError if the directory is no run, is damaged, or is of a newer format.
    """
    run = RunDir.open(path)
    manifest = run.manifest()
    rows, torn_rows = _rows(run)
    memory, torn_memory = _samples(run.memory.glob("*.jsonl.gz"), MEMORY)
    engine, torn_engine = _samples(run.engine.glob("metrics*.jsonl.gz"), ENGINE)
    health, torn_health = _samples(run.health.glob("*.jsonl.gz"), HEALTH)
    torn = torn_rows + torn_memory + torn_engine + torn_health
    sealed = manifest.state == "sealed"
    cut = manifest.cut
    if cut is None and not sealed:
        cut = "the run was never sealed: tailgate was killed, or is still running"
    invalid = manifest.invalid
    if torn and sealed:
        invalid = (*invalid, f"{torn} pieces of the sealed run's raw files are damaged")
    plan = manifest.plan
    return Evidence(
        subject=subject_of(manifest),
        window=Window(
            warmup_ns=plan.warmup_ns,
            duration_ns=plan.duration_ns,
            drain_ns=plan.drain_ns,
            total_timeout_ns=plan.total_timeout_ns,
        ),
        tenants=plan.tenants,
        closed_loop=frozenset(plan.concurrency),
        bursts=plan.bursts,
        runs=tuple(
            RunSpan(
                run=span.run,
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                planned=span.planned,
                finished=span.finished,
            )
            for span in manifest.runs
        ),
        rows=rows,
        memory=memory,
        memory_source=manifest.telemetry.memory,
        memory_every_ns=manifest.telemetry.every_ns,
        engine=engine,
        health=health,
        ready_ns=manifest.engine.ready_ns,
        stopped_ns=manifest.engine.stopped_ns,
        simulated=manifest.simulated,
        quick=manifest.quick,
        sealed=sealed,
        cut=cut,
        engine_fault=manifest.engine.fault,
        aborted=manifest.aborted,
        constant_rate=plan.constant_rate,
        invalid=invalid,
        rows_missing=sealed and not rows and _planned_some(manifest),
    )


def _planned_some(manifest: Manifest) -> bool:
    return any(any(run.planned.values()) or manifest.plan.concurrency for run in manifest.runs)


def sheet_of(run: RunDir, name: Literal["profile", "sla", "engine"]) -> Path:
    """Return the sheet of that name that the run was started with, byte for byte.

    Raises UsageError if it is gone or is another one now.
    """
    path = run.sheets / f"{name}.yaml"
    change = _change(path, run.manifest().sheets_sha256.get(name))
    if change is not None:
        mend = "restore it from where the run was started"
        if name == "sla":
            mend += ", or name one: tailgate check RUN --sla FILE"
        raise UsageError(path, change, mend)
    return path


def doubts(run: RunDir, manifest: Manifest, evidence: Evidence) -> tuple[str, ...]:
    """Return in words what is gone or changed of a run without weighing on its rulings, but should be known."""
    said = []
    if evidence.rows_missing:
        said.append("ruled from histograms alone: the rows are gone")
    for name in ("profile", "engine"):
        if name in manifest.sheets_sha256:
            change = _change(run.sheets / f"{name}.yaml", manifest.sheets_sha256[name])
            if change is not None:
                said.append(f"sheets/{name}.yaml: {change}")
    return tuple(said)


def _change(path: Path, sha256: str | None) -> str | None:
    """Return in words what is wrong with a stored sheet; None if its bytes are those of that hash."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "the sheet that the run was started with is gone"
    except OSError as cause:
        return f"the sheet that the run was started with cannot be read: {cause.strerror}"
    return None if found == sha256 else "it is not the one that the run was started with"


def read_summaries(path: Path) -> Summaries:
    """Return what intervals/ and measurements.json of the run at path hold: enough for point rulings.

    Raises UsageError or FormatError if the directory is no run or one of these files is damaged.
    """
    run = RunDir.open(path)
    histograms: dict[HistogramKey, Histogram] = {}
    for file in sorted(run.intervals.glob("*.hlog")):
        for tag, histogram in read_hlog(file).items():
            try:
                key = key_of(tag)
            except ValueError as fault:
                raise FormatError(
                    file, str(fault), "remove the file: it is not of this run"
                ) from fault
            if key in histograms:
                histograms[key].add(histogram)
            else:
                histograms[key] = histogram
    return Summaries(histograms=histograms, measurements=_measurements(run))


def _measurements(run: RunDir) -> tuple[Measurement, ...]:
    if not run.measurements.exists():
        return ()
    try:
        return measurements_from(from_json(run.measurements.read_bytes()))
    except OSError as cause:
        raise FormatError.unreadable(run.measurements, cause) from cause
    except ValueError as fault:
        raise FormatError(
            run.measurements,
            f"not a list of measurements: {fault}",
            "delete it and derive it again with `tailgate check RUN`",
        ) from fault


def subject_of(manifest: Manifest) -> Subject:
    """Return what two runs must share to be compared; a GPU whose name is unknown is ``unknown``."""
    return Subject(
        engine=manifest.engine.kind,
        engine_version=manifest.engine.version,
        model=manifest.engine.model,
        gpu_models=tuple(sorted(gpu.name or "unknown" for gpu in manifest.gpus)),
        schedule_sha256=manifest.schedule_sha256,
    )


def _rows(run: RunDir) -> tuple[tuple[RequestRow, ...], int]:
    rows: list[RequestRow] = []
    torn = 0
    for file in sorted(run.requests.glob("*.jsonl.gz")):
        reader = RowReader(file)
        rows.extend(reader)
        torn += reader.torn
    return tuple(rows), torn


def _samples(files: Iterable[Path], kind: SampleKind[S]) -> tuple[tuple[S, ...], int]:
    samples: list[S] = []
    torn = 0
    for file in sorted(files):
        reader = SampleReader(file, kind)
        samples.extend(reader)
        torn += reader.torn
    return tuple(samples), torn
