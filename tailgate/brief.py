"""What a run was asked to do: the command line and the sheets, read and found without fault."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from launchers.spec import EngineSheet, EngineSpec, attach, read_engine, watched_by_dcgm
from loadgen import dialect as dialects
from profiles.profile import Profile, ProfileSheet, read_profile
from profiles.schedule import burst_intervals
from profiles.sheet import Fault, RefusalError, Sheet, SheetError, find, nearest
from slas.sla import Sla, SlaSheet, read_sla, sla_faults


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


T = TypeVar("T")


def brief(request: Request) -> Brief:
    """Read every sheet and weigh them against each other; nothing is started.

    Raises SheetError with the faults of all of them.
    """
    faults: list[Fault] = []
    more = 0

    def reading(read: Callable[[], T]) -> T | None:
        nonlocal more
        try:
            return read()
        except SheetError as error:
            faults.extend(error.faults)
            more += error.more
            return None

    profile = reading(lambda: read_profile(find(request.profile, "profiles")))
    sla = reading(lambda: read_sla(find(request.sla, "slas")))
    engine = reading(lambda: _engine(request))
    if profile is None or sla is None or engine is None:
        raise SheetError(tuple(faults), more=more)
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
