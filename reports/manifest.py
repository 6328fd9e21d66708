"""The manifest of a run: what was run, on what, when, and whether it was whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json as parse

from reports.fault import FormatError
from reports.shape import MOST

# what a file may say; code that makes a manifest is held to the types alone
Stamp = Annotated[int, Field(ge=-MOST, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Some = Annotated[int, Field(ge=1, le=MOST)]
RateHz = Annotated[float, Field(ge=0, allow_inf_nan=False)]

State = Literal["open", "sealed", "cut"]
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine of the run and the instant at which its two clocks were read together."""

    name: str
    role: str
    cpu: str
    cores: Some
    kernel: str
    python: str
    epoch_wall_ns: Stamp
    epoch_monotonic_ns: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One watched GPU; None where its source does not say."""

    node: str
    gpu: Count
    name: str | None
    uuid: str | None
    total_bytes: Count | None
    driver: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The engine that was tested. ``argv`` holds no secret."""

    kind: str
    name: str
    version: str | None
    model: str
    url: str
    argv: tuple[str, ...]
    ready_ns: Stamp | None
    stopped_ns: Stamp | None
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What watched the memory and the engine's metrics, and how often: shorter spikes may be missed."""

    memory: str | None
    every_ns: Some | None
    engine_metrics: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The traffic as planned: lengths of the phases and the total timeout in ns, rates in 1/s, bursts in ns.

    ``rates_hz`` has the open-loop tenants, ``concurrency`` the closed-loop ones; ``bursts`` half-open
    intervals from the start of the warm-up.
    """

    profile: str
    warmup_ns: Count
    duration_ns: Some
    drain_ns: Count
    total_timeout_ns: Some
    tenants: Annotated[tuple[str, ...], Field(min_length=1)]
    rates_hz: Mapping[str, RateHz]
    concurrency: Mapping[str, Some]
    constant_rate: bool
    bursts: Mapping[str, tuple[tuple[Stamp, Stamp], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One of the R runs: its span on the controller's monotonic clock and its planned open-loop counts."""

    run: Count
    start_ns: Stamp
    end_ns: Stamp
    planned: Mapping[str, Count]
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``manifest.json``: written when a run opens, rewritten atomically as it goes on.

    ``invalid`` lists our own faults, ``cut`` says why the run ended early, ``aborted`` which check ended it.
    """

    format: int
    run_id: str
    state: State
    tailgate: str
    argv: tuple[str, ...]
    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]
    gpus: tuple[Gpu, ...]
    seed: int
    level_percent: Some
    quick: bool
    schedule_sha256: str
    sheets_sha256: Mapping[str, str]
    engine: EngineFacts
    telemetry: Telemetry
    plan: Plan
    runs: tuple[RunFacts, ...]
    simulated: bool
    started: str
    ended: str | None
    invalid: tuple[str, ...]
    warnings: tuple[str, ...]
    cut: str | None
    aborted: str | None
    versions: Mapping[str, str]


_CODEC = TypeAdapter(Manifest)


def to_json(manifest: Manifest) -> bytes:
    """Return the manifest as indented JSON with a newline at its end."""
    return _CODEC.dump_json(manifest, indent=2) + b"\n"


def from_json(stored: bytes, path: Path) -> Manifest:
    """Return the manifest that the bytes of the file at path hold.

    Fields that this tailgate does not know are left aside, as a later writer of the same format may add some.
    Raises FormatError if they hold none, or one of a newer format.
    """
    try:
        header = parse(stored)
    except ValueError as fault:
        raise FormatError(
            path, f"not JSON: {fault}", "restore the file, or measure again"
        ) from fault
    written = header.get("format") if isinstance(header, dict) else None
    if type(written) is not int or written < 1:
        raise FormatError(path, "format: not a manifest of tailgate", "give a run directory")
    if written > FORMAT:
        raise FormatError(
            path,
            f"format: {written} is newer than this tailgate, which reads up to {FORMAT}",
            "read the run with the tailgate that wrote it, or a newer one",
        )
    mend = "restore the file, or measure again"
    try:
        manifest = _CODEC.validate_json(stored, strict=True)
    except ValidationError as fault:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
            for error in fault.errors(include_url=False, include_input=False)
        )
        raise FormatError(path, wrong, mend) from fault
    if wrong := "; ".join(_disagreements(manifest)):
        raise FormatError(path, wrong, mend)
    return manifest


def _disagreements(manifest: Manifest) -> Iterator[str]:
    """Yield in words where one field contradicts another."""
    plan = manifest.plan
    if len(set(plan.tenants)) < len(plan.tenants):
        yield "plan.tenants: one is named twice"
    named = {
        "plan.rates_hz": plan.rates_hz,
        "plan.concurrency": plan.concurrency,
        "plan.bursts": plan.bursts,
        **{f"runs.{at}.planned": run.planned for at, run in enumerate(manifest.runs)},
    }
    for field, by_tenant in named.items():
        if strange := sorted(by_tenant.keys() - set(plan.tenants)):
            yield f"{field}: {strange[0]!r} is none of plan.tenants"
    if len({run.run for run in manifest.runs}) < len(manifest.runs):
        yield "runs: one is there twice"
    if (manifest.telemetry.memory is None) != (manifest.telemetry.every_ns is None):
        yield "telemetry: memory and every_ns are null together or not at all"


def utc_now() -> str:
    """Return the wall time as ISO 8601 in UTC, to the second: ``2026-11-30T17:41:05Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
