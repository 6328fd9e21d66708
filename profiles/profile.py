"""A profile: the tenants, the phases of a run and the surges upon them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from profiles.amount import draws, excess, total
from profiles.sheet import (
    Duration,
    Fault,
    FieldPath,
    Sheet,
    SheetError,
    Spot,
    Strict,
    field_name,
    nearest,
    read,
    shown,
    validate,
)
from profiles.surge import Surge, Tempo
from profiles.tenant import Name, Tenant, TenantSheet, tenant_faults
from profiles.trace import MOST_NS, Trace, TraceSheet, survey, trace_file
from profiles.tracerow import TraceError
from profiles.units import UnitError, duration_ns, format_duration

SECOND_NS = 1_000_000_000
QUICK_WARMUP_NS = 5 * SECOND_NS
QUICK_DURATION_NS = 20 * SECOND_NS
DURATION = "60s"
# every tenant's clock is made of every surge: more of both would be minutes of arithmetic before a run
MOST_SURGES = 100
MOST_TENANTS = 1000
_LONGEST_PHASE_NS = 30 * 24 * 3600 * SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a request may take: to connect, to its first token, between tokens and in all."""

    connect_ns: int
    first_token_ns: int
    idle_ns: int
    total_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The traffic of a run. The measured window is [warm-up, warm-up + duration); surges count from its start.

    ``warnings`` are for the reader: what the profile makes of its traces.
    """

    name: str
    seed: int
    warmup_ns: int
    duration_ns: int
    drain_ns: int
    timeouts: Timeouts
    max_in_flight: int | None
    surges: tuple[Surge, ...]
    tenants: tuple[Tenant, ...]
    warnings: tuple[str, ...] = ()

    @property
    def constant_rate(self) -> bool:
        """Whether the planned rate is the same throughout: no surge, no trace, no model with states."""
        return not self.surges and all(
            tenant.trace is None and (tenant.arrival is None or not tenant.arrival.has_states)
            for tenant in self.tenants
        )

    def quick(self) -> Profile:
        """Return the short form: at most 5 s of warm-up and the first 20 s of the measured window."""
        return replace(
            self,
            warmup_ns=min(self.warmup_ns, QUICK_WARMUP_NS),
            duration_ns=min(self.duration_ns, QUICK_DURATION_NS),
        )

    def tempo(self, tenant: Tenant) -> Tempo:
        """Return the clock of a tenant under the surges."""
        mine = (surge for surge in self.surges if tenant.name in surge.tenants)
        return Tempo(mine, self.duration_ns)


def _phase(ns: int) -> int:
    if ns > _LONGEST_PHASE_NS:
        raise UnitError("longer than 30 days", "write a shorter duration")
    return ns


def _more_than_zero(ns: int) -> int:
    if ns == 0:
        raise UnitError("must be more than 0", "write a duration such as 10s")
    return ns


Phase = Annotated[Duration, AfterValidator(_phase)]
Length = Annotated[Phase, AfterValidator(_more_than_zero)]


class TimeoutsSheet(Strict):
    """How long a request may take."""

    connect: Length = Field(default="5s", validate_default=True)
    first_token: Length = Field(default="30s", validate_default=True)
    idle: Length = Field(
        default="30s", validate_default=True, description="longest wait between tokens"
    )
    total: Length = Field(default="300s", validate_default=True)


class SurgeSheet(Strict):
    """A burst that hits several tenants at once; all open-loop tenants if none are named."""

    at: Phase = Field(description="from the start of the measured window")
    for_: Length = Field(alias="for")
    factor: float = Field(gt=0, le=10_000, description="what the tenants' rates are multiplied by")
    tenants: Annotated[tuple[str, ...], Field(min_length=1)] | None = None


class ProfileSheet(Strict):
    """A profile as a sheet says it."""

    version: Literal[1]
    seed: int = Field(default=0, ge=0)
    warmup: Phase = Field(default="10s", validate_default=True)
    duration: Length = Field(
        default=DURATION, validate_default=True, description="the measured window"
    )
    drain: Phase = Field(
        default="30s",
        validate_default=True,
        description="how long open requests may finish after the window",
    )
    timeouts: TimeoutsSheet = Field(default_factory=TimeoutsSheet)
    max_in_flight: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="none by default; a run that reaches it is INVALID"
    )
    surges: Annotated[tuple[SurgeSheet, ...], Field(max_length=MOST_SURGES)] = ()
    tenants: Annotated[dict[Name, TenantSheet], Field(min_length=1, max_length=MOST_TENANTS)]


def read_profile(path: Path) -> tuple[Profile, Sheet[ProfileSheet]]:
    """Read a profile and look through its traces.

    Raises SheetError with every fault in the sheet, a trace that is not there among them, or with the first one in
    each trace and with what is more than can be planned.
    """
    seen: list[dict[str, Any]] = []

    def across(data: dict[str, Any]) -> Iterator[tuple[FieldPath, str, str]]:
        seen.append(data)
        yield from _across(path.parent, data)

    try:
        sheet = read(path, ProfileSheet, across=across)
    except SheetError as error:
        faults = [*error.faults, *_bad_rows(path.parent, *seen)]
        raise SheetError(faults, more=error.more) from None
    written = sheet.value
    open_loops = tuple(name for name, one in written.tenants.items() if one.concurrency is None)
    surges = tuple(
        Surge(
            at_ns=surge.at,
            for_ns=surge.for_,
            factor=surge.factor,
            tenants=open_loops if surge.tenants is None else surge.tenants,
        )
        for surge in written.surges
    )
    unplayable: list[Fault] = []
    planned: dict[str, float] = {}
    warnings: list[str] = []
    tenants: list[Tenant] = []
    for name, one in written.tenants.items():
        mine = (surge for surge in surges if name in surge.tenants)
        tempo = Tempo(mine, written.duration)
        if not tempo.length_ns < MOST_NS:
            fault = f"together they hurry {shown(name)} more than can be planned"
            unplayable.append(sheet.fault(("surges",), fault, "lower `factor`, or part them"))
            continue
        try:
            tenant, said = _tenant(name, one, path.parent, tempo)
        except TraceError as error:
            unplayable.append(_trace_fault(sheet, name, one, error))
            continue
        tenants.append(tenant)
        too_much = excess(tenant, written.warmup, written.duration, tempo.length_ns)
        if too_much is not None:
            field, *words = too_much
            unplayable.append(sheet.fault(("tenants", name, field), *words))
        planned[name] = draws(tenant, written.warmup, tempo.length_ns)
        warnings += (f"tenant {name}: {words}" for words in said)
    too_many = total(planned)
    if too_many is not None and not unplayable:
        mend = "lower rates or concurrency, or shorten `warmup` and `duration`"
        unplayable.append(sheet.fault(("tenants",), too_many, mend))
    if unplayable:
        raise SheetError(unplayable)
    profile = Profile(
        name=path.stem,
        seed=written.seed,
        warmup_ns=written.warmup,
        duration_ns=written.duration,
        drain_ns=written.drain,
        timeouts=Timeouts(
            connect_ns=written.timeouts.connect,
            first_token_ns=written.timeouts.first_token,
            idle_ns=written.timeouts.idle,
            total_ns=written.timeouts.total,
        ),
        max_in_flight=written.max_in_flight,
        surges=surges,
        tenants=tuple(tenants),
        warnings=tuple(warnings),
    )
    return profile, sheet


def _tenant(
    name: str, one: TenantSheet, folder: Path, tempo: Tempo
) -> tuple[Tenant, tuple[str, ...]]:
    trace: Trace | None = None
    said: tuple[str, ...] = ()
    prompt_tokens, output_tokens = one.prompt_tokens.value(), one.output_tokens.value()
    if one.trace is not None:
        trace, said = survey(one.trace, folder, int(tempo.length_ns))
        prompt_tokens, output_tokens = trace.prompt_tokens, trace.output_tokens
    tenant = Tenant(
        name=name,
        rate_hz=one.rate,
        concurrency=one.concurrency,
        arrival=one.arrivals if one.rate is not None else None,
        trace=trace,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        api=one.api,
    )
    return tenant, said


def _bad_rows(folder: Path, data: Mapping[str, Any] | None = None) -> Iterator[Fault]:
    """Yield the first bad row of each trace that can be read although the sheet around it cannot."""
    tenants = (data or {}).get("tenants")
    for name, tenant in (tenants if isinstance(tenants, dict) else {}).items():
        written = tenant.get("trace") if isinstance(tenant, dict) else None
        try:
            trace = validate(TraceSheet, written)
            survey(trace, folder, duration_ns(DURATION))
        except TraceError as error:
            if error.line:
                yield Fault(
                    spot=Spot(path=folder / trace.file, line=error.line, column=1),
                    field=field_name(("tenants", name, "trace", "file")),
                    fault=error.fault,
                    mend=error.mend,
                )
        except ValueError:
            continue  # no trace, or one with faults of its own


def _trace_fault(
    sheet: Sheet[ProfileSheet], name: str, one: TenantSheet, error: TraceError
) -> Fault:
    field: FieldPath = ("tenants", name, "trace", "file")
    fault = sheet.fault(field, error.fault, error.mend)
    if error.line == 0:
        return fault
    assert one.trace is not None
    file = sheet.path.parent / one.trace.file
    return replace(fault, spot=Spot(path=file, line=error.line, column=1))


def _across(folder: Path, data: Any) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield what no field shows by itself, from the sheet as written, whatever else is wrong with it."""
    tenants, surges = data.get("tenants"), data.get("surges")
    tenants = tenants if isinstance(tenants, dict) else None
    for name, tenant in (tenants or {}).items():
        if isinstance(tenant, dict):
            for at, fault, mend in tenant_faults(tenant):
                yield ("tenants", name, *at), fault, mend
            yield from _absent_trace(folder, name, tenant)
    for index, surge in enumerate(surges if isinstance(surges, list) else ()):
        if isinstance(surge, dict):
            yield from _late_surge(index, surge, data.get("duration", DURATION))
            if tenants is not None:
                yield from _surged(index, surge, tenants)


def _absent_trace(
    folder: Path, name: str, tenant: Mapping[str, Any]
) -> Iterator[tuple[FieldPath, str, str]]:
    trace = tenant.get("trace")
    file = trace.get("file") if isinstance(trace, dict) else None
    if isinstance(file, str) and file:
        try:
            trace_file(folder, file)
        except TraceError as error:
            yield ("tenants", name, "trace", "file"), error.fault, error.mend


def _late_surge(
    index: int, surge: Mapping[str, Any], duration: Any
) -> Iterator[tuple[FieldPath, str, str]]:
    try:
        at_ns, for_ns, window_ns = (
            duration_ns(str(text)) for text in (surge.get("at"), surge.get("for"), duration)
        )
    except UnitError:
        return  # a fault of its own
    if window_ns and at_ns + for_ns > window_ns:
        end = format_duration(at_ns + for_ns)
        yield (
            ("surges", index, "at"),
            f"ends at {end}, after the measured window of {format_duration(window_ns)}",
            "`at` counts from the end of the warm-up; begin it earlier or lengthen `duration`",
        )


def _surged(
    index: int, surge: Mapping[str, Any], tenants: Mapping[str, Any]
) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield the tenants of a surge that are no open-loop tenants."""
    named = surge.get("tenants")
    if named is None:
        if all("concurrency" in _keys(tenant) for tenant in tenants.values()):
            mend = "a closed loop cannot surge; give a tenant a rate"
            yield ("surges", index), "no open-loop tenant to hit", mend
        return
    seen: set[str] = set()
    for position, name in enumerate(named if isinstance(named, list) else ()):
        where: FieldPath = ("surges", index, "tenants", position)
        if not isinstance(name, str):
            continue
        if name in seen:
            yield where, f"tenant {shown(name)} is named twice", "keep one"
        elif name not in tenants:
            yield where, f"unknown tenant {shown(name)}", nearest(name, tenants)
        elif "concurrency" in _keys(tenants[name]):
            mend = "name a tenant with a rate or a trace"
            yield where, f"tenant {shown(name)} is a closed loop and cannot surge", mend
        seen.add(name)


def _keys(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, dict) else ()
