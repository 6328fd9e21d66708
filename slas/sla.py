"""The sheet of promises: which must hold, which should, and on how much evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from profiles.sheet import (
    Duration,
    Fault,
    RefusalError,
    Sheet,
    SheetError,
    Spot,
    Strict,
    nearest,
    read,
    validate,
)
from profiles.units import PATTERNS, UnitError, format_duration, share
from slas.expression import Expression, ExpressionError, parse
from slas.quantity import Gauge, Latency, Ratio
from slas.ruling import Level

FEWEST_RUNS = 3
"""Runs below which a confidence cannot be had: the spread of two runs says next to nothing."""

_FEWEST_WARM_TICKS = 3
WATCHED = frozenset({"ttft", "itl", "tpot", "e2e", "error_rate"})
"""Metrics that generators count each second, so that a check of them can end a run."""


# ---------------------------------------------------------------------------------------------------------
# the sheet as pydantic reads it


def _confidence(value: object) -> float | None:
    if value in (None, "point"):
        return None
    if not isinstance(value, str):
        raise UnitError(f"{value!r} is not a confidence", "write one such as 95%, or point")
    level = share(value)
    if not 0.5 < level < 1:
        raise RefusalError(
            f"a confidence lies above 50% and below 100%, not at {value}", "write one such as 95%"
        )
    return level


class CheckSheet(Strict):
    """A check with more to say than its expression."""

    expr: str = Field(description="METRIC[.STATISTIC][{SELECTOR}] OPERATOR LIMIT")
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$")] | None = None
    abort_after: Duration | None = Field(
        default=None, description="stop the run once broken over this long"
    )
    min_samples: int | None = Field(default=None, ge=1)


def _check(value: object) -> object:
    if isinstance(value, str | CheckSheet):
        return value
    if isinstance(value, dict):
        return validate(CheckSheet, value)
    raise RefusalError(f"{value!r} is no check", "write one such as ttft.p99 <= 300ms")


_Checks = tuple[Annotated[str | CheckSheet, BeforeValidator(_check)], ...]


class SlaSheet(Strict):
    """An SLA as it is written."""

    version: Literal[1]
    runs: int = Field(default=1, ge=1, le=1000)
    confidence: Annotated[
        float | None,
        BeforeValidator(_confidence),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "pattern": PATTERNS["share"]},
                    {"const": "point"},
                ],
                "default": "point",
            }
        ),
    ] = None
    on_inconclusive: Literal["fail", "warn"] = "fail"
    must: _Checks = ()
    should: _Checks = ()

    @model_validator(mode="after")
    def _promises_something(self) -> SlaSheet:
        if not self.must and not self.should:
            raise RefusalError("an SLA needs a check", "add `must: [ttft.p99 <= 300ms]`")
        return self


class _Promises(BaseModel):
    """The checks of a sheet that is otherwise at fault: theirs are still to be found."""

    must: Any = ()
    should: Any = ()


# ---------------------------------------------------------------------------------------------------------
# the sheet as the court uses it


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise, where it stands and how it is to be kept.

    ``spot`` is the first character of the expression, ``field`` its place in the sheet (``must[0]``).
    ``abort_after_ns`` is the length of the sliding window over which a broken promise ends the run.
    """

    expression: Expression
    level: Level
    abort_after_ns: int | None
    min_samples: int | None
    name: str
    spot: Spot
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla:
    """An SLA, read. ``confidence`` None is point evidence."""

    name: str
    runs: int
    confidence: float | None
    on_inconclusive: Literal["fail", "warn"]
    checks: tuple[Check, ...]
    path: Path


def read_sla(path: Path) -> tuple[Sla, Sheet[SlaSheet]]:
    """Read an SLA sheet. Raises SheetError with every fault in it, those inside expressions included."""
    try:
        sheet = read(path, SlaSheet)
    except SheetError as error:
        raise SheetError([*error.faults, *_faults_inside(path)], more=error.more) from None
    checks: list[Check] = []
    faults: list[Fault] = []
    for level, index, item in _items(sheet.value.must, sheet.value.should):
        extra = item if isinstance(item, CheckSheet) else CheckSheet(expr=item)
        place = (level, index, "expr") if isinstance(item, CheckSheet) else (level, index)
        spot = _first_character(sheet, place, extra.expr)
        field = f"{level}[{index}]"
        try:
            expression = parse(extra.expr)
        except ExpressionError as error:
            faults.append(_inside(spot, field, error))
            continue
        check = Check(
            expression=expression,
            level=level,
            abort_after_ns=extra.abort_after,
            min_samples=extra.min_samples,
            name=extra.name or " ".join(extra.expr.split()),
            spot=spot,
            field=field,
        )
        faults.extend(_abort_faults(check))
        faults.extend(_repeats(check, checks))
        checks.append(check)
    if faults:
        raise SheetError(faults)
    sla = Sla(
        name=path.stem,
        runs=sheet.value.runs,
        confidence=sheet.value.confidence,
        on_inconclusive=sheet.value.on_inconclusive,
        checks=tuple(checks),
        path=path,
    )
    return sla, sheet


def _items(must: Any, should: Any) -> Iterator[tuple[Level, int, Any]]:
    levels: tuple[tuple[Level, Any], ...] = (("must", must), ("should", should))
    for level, items in levels:
        for index, item in enumerate(items if isinstance(items, list | tuple) else ()):
            yield level, index, item


def _faults_inside(path: Path) -> list[Fault]:
    try:
        sheet = read(path, _Promises)
    except SheetError:
        return []  # whatever keeps the file from being read at all is already reported
    faults = []
    for level, index, item in _items(sheet.value.must, sheet.value.should):
        text: object = item
        place: tuple[str | int, ...] = (level, index)
        if isinstance(item, dict):
            text, place = item.get("expr"), (level, index, "expr")
        if not isinstance(text, str):
            continue
        try:
            parse(text)
        except ExpressionError as error:
            faults.append(_inside(_first_character(sheet, place, text), f"{level}[{index}]", error))
    return faults


def _inside(spot: Spot, field: str, error: ExpressionError) -> Fault:
    spot = replace(spot, column=spot.column + error.offset)
    return Fault(spot=spot, field=field, fault=error.fault, mend=error.mend)


def _first_character(sheet: Sheet[Any], place: tuple[str | int, ...], text: str) -> Spot:
    """Return where an expression's own text begins: after a quote, where the scalar has one."""
    spot = sheet.spot(*place)
    lines = sheet.data.decode("utf-8-sig").split("\n")
    if 1 <= spot.line <= len(lines):
        rest = lines[spot.line - 1][spot.column - 1 :]
        if rest[:1] in ("'", '"') and rest[1:].startswith(text):
            return replace(spot, column=spot.column + 1)
    return spot


def _abort_faults(check: Check) -> Iterator[Fault]:
    if check.abort_after_ns is None:
        return
    expression = check.expression
    if check.level == "should":
        why = "a should never ends a run"
    elif expression.metric.name not in WATCHED:
        why = f"{expression.metric.name} cannot be watched while the run goes on"
    elif expression.phase is not None:
        why = "a phase cannot be watched while the run goes on"
    elif expression.limit.relative:
        why = "a limit beside a baseline cannot be watched while the run goes on"
    elif check.abort_after_ns < 1_000_000_000:
        why = "generators report once a second"
    else:
        return
    mend = (
        "write at least 1s"
        if why.startswith("generators")
        else f"remove abort_after, or put it on a must of {', '.join(sorted(WATCHED))}"
    )
    yield Fault(spot=check.spot, field=f"{check.field}.abort_after", fault=why, mend=mend)


def _repeats(check: Check, before: list[Check]) -> Iterator[Fault]:
    for other in before:
        if replace(check.expression, text="") == replace(other.expression, text=""):
            fault = f"the same promise as {other.field}"
        elif check.name == other.name:
            fault = f"the name {check.name!r} is already that of {other.field}"
        else:
            continue
        yield Fault(
            spot=check.spot, field=check.field, fault=fault, mend="remove one, or rename it"
        )
        return


# ---------------------------------------------------------------------------------------------------------
# the sheet against the others


def sla_faults(
    sla: Sla,
    sheet: Sheet[SlaSheet],
    *,
    tenants: Collection[str],
    memory_source: str | None,
    memory_every_ns: int | None,
    engine_metrics: bool,
    warmup_ns: int,
    total_timeout_ns: int,
    bursting: Collection[str] | None = None,
) -> list[Fault]:
    """Return what is wrong with an SLA beside the profile and the engine it is to be used with.

    ``bursting`` names the tenants that the schedule lets burst within the measured window; None if unknown.
    """
    faults: list[Fault] = []
    if sla.confidence is not None and sla.runs < FEWEST_RUNS:
        faults.append(
            sheet.fault(
                ("confidence",),
                f"a confidence needs at least {FEWEST_RUNS} runs, not {sla.runs}",
                f"write runs: 5, or give --runs {FEWEST_RUNS} or more, or remove confidence",
            )
        )
    for check in sla.checks:
        faults.extend(_tenant_faults(check, tenants, bursting))
        faults.extend(
            _source_faults(check, memory_source, memory_every_ns, engine_metrics, warmup_ns)
        )
        faults.extend(_empty_faults(check, total_timeout_ns))
        faults.extend(_unprovable_faults(check, sla.confidence))
    return faults


def _fault(check: Check, near: str, fault: str, mend: str) -> Fault:
    """Return a fault at the place in a check's expression where ``near`` stands."""
    offset = max(check.expression.text.find(near), 0)
    spot = replace(check.spot, column=check.spot.column + offset)
    return Fault(spot=spot, field=check.field, fault=fault, mend=mend)


def _tenant_faults(
    check: Check, tenants: Collection[str], bursting: Collection[str] | None
) -> Iterator[Fault]:
    expression = check.expression
    tenant = expression.tenant
    if tenant not in (None, "*") and tenant not in tenants:
        yield _fault(
            check,
            tenant,
            f"no tenant {tenant!r} in the profile",
            nearest(tenant, sorted(tenants)),
        )
    elif expression.phase == "burst" and bursting is not None and check.level == "must":
        silent = not bursting if tenant in (None, "*") else tenant not in bursting
        if silent:
            who = "no tenant" if tenant in (None, "*") else f"tenant {tenant!r} never"
            yield _fault(
                check,
                "phase",
                f"{who} bursts in this profile's measured window",
                "lengthen the duration, give the tenant bursts, or remove phase=burst",
            )


def _source_faults(
    check: Check,
    memory_source: str | None,
    memory_every_ns: int | None,
    engine_metrics: bool,
    warmup_ns: int,
) -> Iterator[Fault]:
    metric = check.expression.metric
    if not isinstance(metric, Gauge):
        return
    if metric.source == "engine":
        if not engine_metrics:
            yield _fault(
                check,
                metric.name,
                f"{metric.name} needs the engine's metrics, and this engine has none",
                "remove the check, or use an engine with a /metrics page",
            )
    elif memory_source is None:
        yield _fault(
            check,
            metric.name,
            f"{metric.name} needs to see the GPUs' memory, and nothing watches it",
            "give --dcgm URL, or telemetry in the engine sheet, or remove the check",
        )
    elif (
        metric.from_steady
        and memory_every_ns is not None
        and warmup_ns < _FEWEST_WARM_TICKS * memory_every_ns
    ):
        yield _fault(
            check,
            metric.name,
            f"a warm-up of {format_duration(warmup_ns)} is too short to see the steady state with a"
            f" sample every {format_duration(memory_every_ns)}",
            f"write warmup: {format_duration(_FEWEST_WARM_TICKS * memory_every_ns)} or more in the"
            " profile, or a shorter telemetry interval",
        )


def _empty_faults(check: Check, total_timeout_ns: int) -> Iterator[Fault]:
    """Yield a fault if the check can never fail, or never by what it names."""
    expression = check.expression
    metric, limit = expression.metric, expression.limit
    for bound in expression.bounds:
        if bound.limit_ns >= total_timeout_ns:
            yield _fault(
                check,
                bound.latency.name,
                f"{bound.latency.name} can never miss a bound that is not below the total timeout of"
                f" {format_duration(total_timeout_ns)}",
                "write a tighter bound, or a longer total timeout in the profile",
            )
    if limit.value is None:
        return
    near = expression.operator
    if not expression.upper:
        if limit.value == 0 and expression.operator == ">=":
            yield _fault(
                check, near, f"{metric.name} is never below 0: it cannot fail", "raise the limit"
            )
        return
    full = _full_at(check)
    if full is not None and (limit.value > full or (limit.value == full and not expression.strict)):
        yield _fault(
            check, near, f"{metric.name} is never above that: it cannot fail", "lower the limit"
        )
    if (
        isinstance(metric, Latency)
        and metric.clock != "instrument"
        and limit.value >= total_timeout_ns
    ):
        yield _fault(
            check,
            near,
            f"a request is given up after {format_duration(total_timeout_ns)}: no latency can break this",
            "lower the limit, or write error_rate for requests that fail",
        )


def _full_at(check: Check) -> float | None:
    metric = check.expression.metric
    if isinstance(metric, Ratio) or check.expression.limit.of_gpu:
        return 1.0
    return metric.full_at if isinstance(metric, Gauge) else None


def _unprovable_faults(check: Check, confidence: float | None) -> Iterator[Fault]:
    """Yield a fault for a share of exactly 0 or 100 %: no number of requests can prove it."""
    expression = check.expression
    if confidence is None or not isinstance(expression.metric, Ratio):
        return
    edge = 0.0 if expression.upper else 1.0
    if expression.limit.value == edge:
        yield _fault(
            check,
            expression.operator,
            f"no number of requests can prove a share of exactly {edge:.0%} with confidence",
            "allow a little, such as 0.1% (or 99.9%), or remove confidence",
        )
