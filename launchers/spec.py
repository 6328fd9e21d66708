"""The engine sheet, and the engine that it asks for as a value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from launchers.address import web_address
from launchers.command import FromEnv, OptionValue
from launchers.engine import LATER, Engine, engines
from launchers.objection import Objection
from launchers.place import LATER as LATER_PLACES
from launchers.place import places
from profiles.sheet import (
    Duration,
    FieldPath,
    RefusalError,
    Sheet,
    Size,
    Strict,
    nearest,
    read,
    shown,
    validate,
)

MINUTE_NS = 60_000_000_000
EVERY_NS = 1_000_000_000
EVERY_MIN_NS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the engine runs; ``kind`` is a name that ``launchers.place`` knows."""

    kind: str = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How many ways the model is split; the product is the number of GPUs."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The engine's memory budget; None leaves a choice to the engine."""

    gpu_fraction: float | None = None
    kv_dtype: str | None = None
    offload_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Tokens of a request, requests of a batch, tokens of a step; None leaves a choice to the engine."""

    context: int | None = None
    sequences: int | None = None
    batched_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Switches of the engine; None leaves a choice to the engine."""

    prefix_cache: bool | None = None
    chunked_prefill: bool | None = None
    scheduling: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What watches GPU memory and how often.

    ``dcgm_url`` is None with ``memory`` "dcgm" when the engine serves the page itself. ``gpus`` are the numbers of
    the engine's GPUs as the source counts them, empty if the sheet does not name them.
    """

    memory: str
    dcgm_url: str | None
    every_ns: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An engine to start or attach to. Secrets are named, never held.

    ``model`` is what the engine loads, ``served_as`` what requests call it; ``gpus`` is 0 when it uses none or
    does not say; ``port`` None lets the place pick one; ``ready_within_ns`` counts from the process's start.
    """

    name: str
    engine: str
    model: str
    served_as: str
    engine_version: str | None = None
    gpus: int = 1
    place: Place = field(default_factory=Place)
    port: int | None = None
    preset: str | None = None
    argv: tuple[str, ...] = ()
    url: str | None = None
    executable: str | None = None
    parallel: Parallel = field(default_factory=Parallel)
    memory: Memory = field(default_factory=Memory)
    limits: Limits = field(default_factory=Limits)
    features: Features = field(default_factory=Features)
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    env: Mapping[str, str | FromEnv] = field(default_factory=dict)
    ready_within_ns: int = 30 * MINUTE_NS
    telemetry: Telemetry


class FromEnvSheet(Strict):
    """A secret: the name of the variable that holds it."""

    from_env: Annotated[str, Field(min_length=1)]


class DcgmSheet(Strict):
    """The address of a DCGM exporter's page."""

    dcgm: str


def _env_value(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return FromEnv(name=validate(FromEnvSheet, value).from_env)
    raise RefusalError(f"a variable's value is a text, got {value!r}", "put it in quotes")


def _memory_source(value: object) -> object:
    if isinstance(value, Mapping):
        sheet = validate(DcgmSheet, value)
        web_address(sheet.dcgm)
        return sheet
    if value == "dcgm":
        raise RefusalError(
            "dcgm needs the address of its page", "write {dcgm: http://host:9400/metrics}"
        )
    if value == "amdsmi":
        raise RefusalError("amdsmi is not yet supported", "write nvml, {dcgm: URL} or none")
    if value not in ("nvml", "none"):
        raise RefusalError(f"unknown memory source {value!r}", "write nvml, {dcgm: URL} or none")
    return value


EnvValue = Annotated[Any, BeforeValidator(_env_value, json_schema_input_type=str | FromEnvSheet)]
MemorySource = Annotated[
    Any,
    BeforeValidator(_memory_source, json_schema_input_type=Literal["nvml", "none"] | DcgmSheet),
]
Count = Annotated[int, Field(ge=1)]


class PlaceSheet(Strict):
    """``place``."""

    kind: str = "local"


class ParallelSheet(Strict):
    """``parallel``: ways of splitting the model, as counts."""

    tensor: Count = 1
    pipeline: Count = 1
    data: Count = 1


class MemorySheet(Strict):
    """``memory``: the budget on the GPU, the type of the KV cache, and how much of it may go to the host."""

    gpu_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_dtype: str | None = None
    offload: Size | None = None


class LimitsSheet(Strict):
    """``limits``: tokens a request, requests a batch, tokens a step."""

    context: Count | None = None
    sequences: Count | None = None
    batched_tokens: Count | None = None


class FeaturesSheet(Strict):
    """``features``: switches that are left to the engine unless they are written."""

    prefix_cache: bool | None = None
    chunked_prefill: bool | None = None
    scheduling: str | None = None


class TelemetrySheet(Strict):
    """``telemetry``: the memory source (nvml, {dcgm: URL} or none), the sampling interval, the GPUs to watch."""

    memory: MemorySource | None = None
    every: Duration | None = None
    gpus: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None


class EngineSheet(Strict):
    """An engine sheet as written; ``version`` and ``engine`` are required, the rest depends on the engine."""

    later = frozenset({"price", "effort"})

    version: Literal[1]
    engine: str
    engine_version: str | None = None
    model: str | None = None
    served_as: str | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    place: PlaceSheet = PlaceSheet()
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    replicas: Count = 1
    preset: str | None = None
    argv: tuple[str, ...] = ()
    url: str | None = None
    executable: str | None = None
    parallel: ParallelSheet = ParallelSheet()
    memory: MemorySheet = MemorySheet()
    limits: LimitsSheet = LimitsSheet()
    features: FeaturesSheet = FeaturesSheet()
    options: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, EnvValue] = Field(default_factory=dict)
    ready_within: Duration | None = None
    telemetry: TelemetrySheet = TelemetrySheet()


# read by every kind that is started, or by every kind at all
_STARTED_KEYS = frozenset({"place", "port", "env", "replicas"})
_COMMON_KEYS = frozenset(
    {
        *("version", "engine", "engine_version", "model", "served_as", "gpus"),
        *("ready_within", "telemetry"),
    }
)

_SECRET_WORDS = frozenset(
    {"token", "secret", "password", "passwd", "key", "credential", "credentials"}
)


def read_engine(path: Path) -> tuple[EngineSpec, Sheet[EngineSheet]]:
    """Read an engine sheet.

    Raises SheetError with every fault, among them what the engine kind itself finds wrong.
    """
    sheet = read(path, EngineSheet, across=partial(_across, path))
    return _spec(path, sheet.value, engines()[sheet.value.engine].memory), sheet


def attach(url: str, model: str) -> EngineSpec:
    """Return the spec of a server that already runs at ``url`` (its root or its ``/v1``).

    Raises RefusalError (a ValueError) if the URL is no http or https address.
    """
    return EngineSpec(
        name="attach",
        engine="attach",
        model=model,
        served_as=model,
        url=web_address(url),
        ready_within_ns=0,
        telemetry=Telemetry(memory="none", dcgm_url=None, every_ns=EVERY_NS),
    )


def watched_by_dcgm(spec: EngineSpec, url: str) -> EngineSpec:
    """Return the spec with its GPU memory read from the DCGM page at ``url``.

    Raises RefusalError (a ValueError) if the URL is no http or https address.
    """
    telemetry = replace(spec.telemetry, memory="dcgm", dcgm_url=web_address(url))
    return replace(spec, telemetry=telemetry)


def _spec(path: Path, written: EngineSheet, memory_source: str) -> EngineSpec:
    parallel = Parallel(
        tensor=written.parallel.tensor,
        pipeline=written.parallel.pipeline,
        data=written.parallel.data,
    )
    # a kind that must be told its model has objected by the time that this stand-in could be used
    model = written.model or written.served_as or "tailgate-sim"
    source: str | DcgmSheet | None = written.telemetry.memory
    if source is None:
        # an engine told to use no GPU has none to watch
        source = "none" if written.gpus == 0 else memory_source
    every_ns = written.telemetry.every
    ready_within = written.ready_within
    if ready_within is None:
        ready_within = 0 if written.engine == "attach" else 30 * MINUTE_NS
    return EngineSpec(
        name=path.stem,
        engine=written.engine,
        model=model,
        served_as=written.served_as or model,
        engine_version=written.engine_version,
        gpus=_gpus(written, parallel),
        place=Place(kind=written.place.kind),
        port=written.port,
        preset=written.preset,
        argv=written.argv,
        url=written.url,
        executable=_beside(path, written.executable),
        parallel=parallel,
        memory=Memory(
            gpu_fraction=written.memory.gpu_fraction,
            kv_dtype=written.memory.kv_dtype,
            offload_bytes=written.memory.offload,
        ),
        limits=Limits(
            context=written.limits.context,
            sequences=written.limits.sequences,
            batched_tokens=written.limits.batched_tokens,
        ),
        features=Features(
            prefix_cache=written.features.prefix_cache,
            chunked_prefill=written.features.chunked_prefill,
            scheduling=written.features.scheduling,
        ),
        options=dict(written.options),
        env=dict(written.env),
        ready_within_ns=ready_within,
        telemetry=Telemetry(
            memory="dcgm" if isinstance(source, DcgmSheet) else source,
            dcgm_url=source.dcgm if isinstance(source, DcgmSheet) else None,
            every_ns=EVERY_NS if every_ns is None else every_ns,
            gpus=written.telemetry.gpus or (),
        ),
    )


def _gpus(written: EngineSheet, parallel: Parallel) -> int:
    if written.gpus is not None:
        return written.gpus
    if written.engine in ("command", "attach"):
        return 0
    return parallel.tensor * parallel.pipeline * parallel.data


def _beside(path: Path, executable: str | None) -> str | None:
    """Return a program's path as seen from the sheet; a bare name is left to PATH."""
    if executable is None or "/" not in executable:
        return executable
    return str((path.parent / Path(os.path.expanduser(executable))).absolute())


def _across(path: Path, data: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield what no field shows by itself: as much of it as can be known of a sheet with other faults."""
    name, kinds = data.get("engine"), engines()
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is not None:
        yield from _unread(str(name), kind, data)
    elif isinstance(name, str):
        yield ("engine",), *_unknown(name, tuple(kinds))
    try:
        written = validate(EngineSheet, data)
    except ValueError:
        return  # its fields have faults of their own
    objections = [*_not_yet(written), *_common(written)]
    if kind is not None:
        spec = _spec(path, written, kind.memory)
        objections += (*_telemetry(written, spec.gpus), *kind.objections(spec))
    for objection in objections:
        yield objection.field, objection.fault, objection.mend


def _unknown(name: str, known: tuple[str, ...]) -> tuple[str, str]:
    if name in LATER:
        return f"{name} is not yet supported", f"write one of {', '.join(known)}"
    return f"no engine is called {name!r}", nearest(name, known)


def _unread(
    name: str, kind: type[Engine], data: Mapping[str, Any]
) -> Iterator[tuple[FieldPath, str, str]]:
    readable = _COMMON_KEYS | kind.keys | (_STARTED_KEYS if kind.started else frozenset())
    for key in EngineSheet.model_fields:
        if key in data and key not in readable:
            fault = f"the engine {name} does not read {key}"
            mend = "remove it: what is written and not read would look as if it had been tested"
            yield (key,), fault, mend


def _not_yet(written: EngineSheet) -> Iterator[Objection]:
    if written.replicas != 1:
        yield Objection(
            field=("replicas",),
            fault="more than one replica is not yet supported",
            mend="write replicas: 1, or put a router in front and attach to it",
        )
    kind, known = written.place.kind, places()
    if kind in LATER_PLACES:
        yield Objection(
            field=("place", "kind"),
            fault=f"the place {kind} is not yet supported",
            mend="write kind: local, or start the engine there and attach to its URL",
        )
    elif kind not in known:
        yield Objection(
            field=("place", "kind"),
            fault=f"no place is called {kind!r}",
            mend=nearest(kind, known),
        )


def _common(written: EngineSheet) -> Iterator[Objection]:
    if written.engine != "sim" and written.model is None and written.served_as is None:
        yield Objection(
            field=("model",),
            fault="requests must name a model",
            mend="write model: NAME, and served_as: if requests call it otherwise",
        )
    for name, value in written.env.items():
        if not name or "=" in name:
            yield Objection(
                field=("env", name),
                fault=f"{shown(name)} is no name of a variable",
                mend="write its name without =, and its value after the colon",
            )
        elif isinstance(value, FromEnv):
            if value.name not in os.environ:
                yield Objection(
                    field=("env", name),
                    fault=f"the variable {value.name} is not set",
                    mend=f"export {value.name}=... before you call tailgate",
                )
        elif _secret(name):
            yield Objection(
                field=("env", name),
                fault=f"{name} looks like a secret written in plain text",
                mend=f"write {name}: {{from_env: {name}}} and export it",
            )
    for name, value in written.options.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            yield Objection(
                field=("options", name),
                fault=f"{name!r} is no flag",
                mend="write the flag's name without its leading dashes",
            )
        elif _secret(name) and isinstance(value, str | list):
            yield Objection(
                field=("options", name),
                fault=f"a secret in --{name} would be readable in the process list",
                mend="give it to the engine in env: {NAME: {from_env: NAME}}",
            )
    if written.url is not None:
        try:
            web_address(written.url)
        except RefusalError as refusal:
            yield Objection(field=("url",), fault=refusal.fault, mend=refusal.mend)


def _telemetry(written: EngineSheet, used: int) -> Iterator[Objection]:
    every_ns, gpus = written.telemetry.every, written.telemetry.gpus
    if every_ns is not None and every_ns < EVERY_MIN_NS:
        yield Objection(
            field=("telemetry", "every"),
            fault="an interval under 10 ms would disturb what it watches",
            mend="write every: 1s, or 100ms where the GPUs can bear it",
        )
    if gpus is None:
        return
    for position, gpu in enumerate(gpus):
        if gpu in gpus[:position]:
            yield Objection(
                field=("telemetry", "gpus", position),
                fault=f"GPU {gpu} is named twice",
                mend="keep one",
            )
    if written.telemetry.memory == "none":
        yield Objection(
            field=("telemetry", "gpus"),
            fault="no GPU is watched with memory: none",
            mend="remove it, or write memory: nvml or {dcgm: URL}",
        )
    elif used not in (0, len(gpus)):
        yield Objection(
            field=("telemetry", "gpus"),
            fault=f"{len(gpus)} of the engine's GPUs are named, and it uses {used}",
            mend="name each of them, or correct gpus: or parallel:",
        )


def _secret(name: str) -> bool:
    """Say whether a name is that of a secret: one of its words is token, key, password and the like.

    >>> _secret("HF_TOKEN"), _secret("api-key"), _secret("TOKENIZERS_PARALLELISM")
    (True, True, False)
    """
    return not _SECRET_WORDS.isdisjoint(re.split(r"[_.-]", name.lower()))
