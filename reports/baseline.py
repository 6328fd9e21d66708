"""Pins: a whole run as one small file, made to live in git and to be compared with for years."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from reports.fault import FormatError, UsageError
from reports.hlog import decode, encode, key_of, tag_of
from reports.manifest import Manifest, utc_now
from reports.replacing import write_atomic
from reports.rundir import RunDir, read_summaries, subject_of
from reports.shape import COUNT, FLAG, LIST, OBJECT, SEED, TEXT, Shape
from reports.summary import measurements_from
from slas.evidence import Subject
from slas.histogram import Histogram
from slas.measurement import HistogramKey, Summaries
from slas.regression import Baseline
from slas.ruling import Ruling

FORMAT = 1
BASELINES = Path("baselines")
_SHAPE = Shape(
    {
        **dict.fromkeys(("pinned", "run_id", "started", "ruling", "tailgate", "profile"), TEXT),
        "seed": SEED,
        "runs": COUNT,
        "simulated": FLAG,
        "subject": OBJECT,
        "versions": OBJECT,
        "measurements": LIST,
        "histograms": OBJECT,
    }
)
_SUBJECT = Shape(
    {
        "engine": TEXT,
        "engine_version": TEXT.or_null(),
        "model": TEXT,
        "gpu_models": LIST,
        "schedule_sha256": TEXT,
    }
)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What a pin says of itself: the run it was made of, and what was tested with which versions.

    ``versions`` names packages, the engine and the GPU drivers; they are shown and need not be equal.
    """

    name: str
    path: Path
    pinned: str
    run_id: str
    started: str
    ruling: str
    tailgate: str
    profile: str
    seed: int
    versions: Mapping[str, str]
    baseline: Baseline


def pin(
    run_dir: Path, name: str, baselines_dir: Path = BASELINES, *, replace: bool = False
) -> Path:
    """Write the run at ``run_dir`` to ``<baselines_dir>/<name>.json`` and return that path.

    A pin of the same run is written again; one of another run only with ``replace``. Raises UsageError if the name
    is none or is taken, or the run is quick, not sealed, INVALID or was never ruled on.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            baselines_dir / f"{name}.json",
            f"{name!r} is no name for a pin",
            "use lower-case letters, digits, '.', '_' and '-', such as main or v0.33-h100",
        )
    run = RunDir.open(run_dir)
    manifest = run.manifest()
    ruling = _usable(run, manifest)
    summaries = read_summaries(run.path)
    path = baselines_dir / f"{name}.json"
    if path.exists() and not replace:
        _may_be_rewritten(path, manifest.run_id)
    baselines_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(path, _to_json(manifest, ruling, summaries))
    return path


def find(name: str, baselines_dir: Path = BASELINES) -> Baseline | None:
    """Return the baseline that ``name`` means: a run directory, a pin's file, or a pin's name; None if no pin has it yet.

    Raises UsageError if it is a path where nothing is, or a run that cannot serve; FormatError if it is damaged.
    """
    path = Path(name)
    if path.is_dir():
        return of_run(path)
    if path.is_file():
        return read_pin(path).baseline
    if "/" in name or path.suffix == ".json":
        raise UsageError(
            path, "no such run directory or pin", "give a run directory, or the name of a pin"
        )
    stored = baselines_dir / f"{name}.json"
    return read_pin(stored).baseline if stored.is_file() else None


def of_run(run_dir: Path) -> Baseline:
    """Return a stored run as a baseline.

    Raises UsageError if it is quick, not sealed, INVALID or was never ruled on.
    """
    run = RunDir.open(run_dir)
    manifest = run.manifest()
    _usable(run, manifest)
    summaries = read_summaries(run.path)
    return Baseline(
        name=str(run_dir),
        subject=subject_of(manifest),
        runs=len(manifest.runs),
        measurements=summaries.measurements,
        histograms={key: h for key, h in summaries.histograms.items() if _kept(key)},
        quick=manifest.quick,
        whole=True,
        simulated=manifest.simulated,
    )


def pins(baselines_dir: Path = BASELINES) -> tuple[Pin, ...]:
    """Return all pins by name. Raises FormatError if one is damaged."""
    return tuple(read_pin(path) for path in sorted(baselines_dir.glob("*.json")))


def read_pin(path: Path) -> Pin:
    """Return the pin at path. Raises FormatError if it is damaged or of a newer format."""
    try:
        stored = from_json(path.read_bytes())
        written = stored.get("format") if isinstance(stored, dict) else None
        if type(written) is not int or written < 1:
            raise ValueError("it has no format")
        if written > FORMAT:
            raise FormatError(
                path,
                f"format: {written} is newer than this tailgate, which reads up to {FORMAT}",
                "use the tailgate that pinned it, or a newer one",
            )
        return _from_json(path, stored)
    except OSError as cause:
        raise FormatError.unreadable(path, cause) from cause
    except ValueError as fault:
        raise FormatError(
            path, f"not a pin: {fault}", "restore it from git, or pin a run again with --replace"
        ) from fault


def _may_be_rewritten(path: Path, run_id: str) -> None:
    """Raise UsageError if the file at path is not a pin of that run."""
    mend = "choose another --name, or write over it with --replace"
    try:
        pinned = read_pin(path)
    except FormatError as fault:
        raise UsageError(path, f"it is there and is {fault.fault}", mend) from fault
    if pinned.run_id != run_id:
        raise UsageError(path, f"it pins another run, {pinned.run_id}, since {pinned.pinned}", mend)


def _usable(run: RunDir, manifest: Manifest) -> Ruling:
    """Return the ruling of a run that may be a baseline; raise UsageError for any other."""
    if manifest.quick:
        raise UsageError(
            run.path, "a --quick run is no baseline", "run again without --quick and pin that"
        )
    if manifest.state != "sealed":
        why = manifest.cut or "it was never sealed"
        raise UsageError(
            run.path, f"the run is not whole: {why}", "run again to its end and pin that"
        )
    if not run.verdict.is_file() or not run.measurements.is_file():
        raise UsageError(
            run.path,
            "the run was never ruled on",
            f"rule on it first: tailgate check {run.path}",
        )
    try:
        ruling = Ruling(from_json(run.verdict.read_bytes())["ruling"])
    except OSError as cause:
        raise FormatError.unreadable(run.verdict, cause) from cause
    except (ValueError, KeyError, TypeError) as fault:
        raise FormatError(
            run.verdict, f"not a verdict: {fault!r}", f"derive it again: tailgate check {run.path}"
        ) from fault
    if ruling is Ruling.INVALID:
        raise UsageError(
            run.path,
            "an INVALID run is no baseline: the instrument was not fit, or the run not whole",
            "mend what verdict.json says under health, run again and pin that",
        )
    return ruling


def _kept(key: HistogramKey) -> bool:
    metric, _, phase, _ = key
    return phase != "warmup" and metric != "loop_lag"


def _to_json(manifest: Manifest, ruling: Ruling, summaries: Summaries) -> bytes:
    """Return the pin as JSON with a line for every measurement and histogram, so that diffs can be read."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "pinned": utc_now(),
        "run_id": manifest.run_id,
        "started": manifest.started,
        "ruling": ruling,
        "tailgate": manifest.tailgate,
        "profile": manifest.plan.profile,
        "seed": manifest.seed,
        "runs": len(manifest.runs),
        "simulated": manifest.simulated,
        "subject": asdict(subject_of(manifest)),
        "versions": _versions(manifest),
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    measurements = [
        f"    {json.dumps(measurement.to_json(), allow_nan=False)}"
        for measurement in summaries.measurements
    ]
    lines.append('  "measurements": [\n' + ",\n".join(measurements) + "\n  ]")
    histograms = sorted(
        f"    {json.dumps(tag_of(key))}: {json.dumps(encode(histogram.sparse()))}"
        for key, histogram in summaries.histograms.items()
        if _kept(key)
    )
    lines.append('  "histograms": {\n' + ",\n".join(histograms) + "\n  }")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _versions(manifest: Manifest) -> dict[str, str]:
    versions = dict(manifest.versions)
    versions["engine"] = manifest.engine.version or "unknown"
    drivers = sorted({gpu.driver for gpu in manifest.gpus if gpu.driver is not None})
    if drivers:
        versions["gpu driver"] = ", ".join(drivers)
    return versions


def _from_json(path: Path, stored: Mapping[str, Any]) -> Pin:
    head = _SHAPE.read(stored)
    subject = _SUBJECT.read(head["subject"])
    for model in subject["gpu_models"]:
        if not isinstance(model, str):
            raise ValueError(f"gpu_models holds {model!r}, no text")
    for what, version in head["versions"].items():
        if not isinstance(version, str):
            raise ValueError(f"versions.{what} is {version!r}, no text")
    histograms: dict[HistogramKey, Histogram] = {}
    for tag, text in head["histograms"].items():
        if not isinstance(text, str):
            raise ValueError(f"histograms.{tag} is {text!r}, no text")
        histogram = Histogram()
        histogram.add_sparse(decode(text))
        histograms[key_of(tag)] = histogram
    return Pin(
        name=path.stem,
        path=path,
        pinned=head["pinned"],
        run_id=head["run_id"],
        started=head["started"],
        ruling=head["ruling"],
        tailgate=head["tailgate"],
        profile=head["profile"],
        seed=head["seed"],
        versions=head["versions"],
        baseline=Baseline(
            name=path.stem,
            subject=Subject(**{**subject, "gpu_models": tuple(subject["gpu_models"])}),
            runs=head["runs"],
            measurements=measurements_from(head["measurements"]),
            histograms=histograms,
            simulated=head["simulated"],
        ),
    )
