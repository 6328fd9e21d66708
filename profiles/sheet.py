"""A YAML sheet read as a model: every fault in it at once, each with file:line:column and the mend.

``tree`` reads the YAML; the faults of the model, with the paths and words of pydantic, are told in ours here.

    SheetError            exit code 2, holds every Fault
    UnitError, RefusalError    raised inside validators; each becomes one Fault
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from profiles import units
from profiles.tree import (
    SHOWN_FAULTS,
    Fault,
    FieldPath,
    Node,
    SheetError,
    Spot,
    Tree,
    bytes_of,
    field_name,
    locate,
    plain,
    shown,
    text_of,
    whole_file,
)
from profiles.units import UnitError

# what a room needs to read a sheet of its own, whichever of the two modules owns it
__all__ = [
    "Across",
    "Duration",
    "Fault",
    "FieldPath",
    "Money",
    "Rate",
    "RefusalError",
    "Room",
    "Share",
    "Sheet",
    "SheetError",
    "Size",
    "Spot",
    "Strict",
    "catalogue",
    "field_name",
    "find",
    "json_schema",
    "nearest",
    "read",
    "shown",
    "validate",
]

Room = Literal["profiles", "slas", "launchers"]


class RefusalError(ValueError):
    """A value that a validator refuses; ``path`` leads from the validated value to the part at fault."""

    def __init__(self, fault: str, mend: str, path: FieldPath = ()) -> None:
        super().__init__(f"{fault}; {mend}")
        self.fault = fault
        self.mend = mend
        self.path = path


class _InnerError(ValueError):
    """The faults of a model that a validator chose by hand (``validate``)."""

    def __init__(self, model: type[BaseModel], error: ValidationError) -> None:
        super().__init__(str(error))
        self.model = model
        self.error = error


class Strict(BaseModel):
    """What every sheet model is: frozen, no unknown keys, no value turned into another type.

    ``later`` names keys that the design knows and this version does not: refused as such, not as misspelt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
    later: ClassVar[frozenset[str]] = frozenset()


M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Across = Callable[[Any], Iterator[tuple[FieldPath, str, str]]]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the mend for an unknown word: the nearest known one, else all of them.

    >>> nearest("posson", ["constant", "poisson"])
    "did you mean 'poisson'?"
    """
    choices = list(known)
    near = difflib.get_close_matches(word, choices, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return "use one of " + ", ".join(choices) if choices else "remove it"


def validate(model: type[M], value: object) -> M:
    """Return ``value`` (as read from YAML) as a ``model``; for validators that choose a model by hand.

    Raises a ValueError that ``read`` unfolds into the model's own faults, with their own paths.
    """
    try:
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise _InnerError(model, error) from error


# ---------------------------------------------------------------------------------------------------------
# quantities


def _quantity(parse: Callable[[str], T], what: str, examples: str) -> Callable[[object], T]:
    def read_quantity(value: object) -> T:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return parse(str(value))
        raise UnitError(f"expected a {what}", f"write one such as {examples}")

    return read_quantity


def _schema(kind: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "string", "pattern": units.PATTERNS[kind], "examples": list(examples)}
    )


Duration = Annotated[
    int,
    BeforeValidator(_quantity(units.duration_ns, "duration", "250ms, 1.5s or 2m")),
    _schema("duration", "250ms", "1.5s", "2m"),
]
Size = Annotated[
    int,
    BeforeValidator(_quantity(units.size_bytes, "size", "80GiB or 512MiB")),
    _schema("size", "80GiB", "512MiB"),
]
Share = Annotated[
    float,
    BeforeValidator(_quantity(units.share, "share", "5% or 0.1%")),
    _schema("share", "5%", "0.1%"),
]
Rate = Annotated[
    float,
    BeforeValidator(_quantity(units.rate_hz, "rate", "12/s, 30/min or 100/h")),
    _schema("rate", "12/s", "30/min"),
]
Money = Annotated[
    float,
    BeforeValidator(_quantity(units.money_usd, "price", "$0.12")),
    _schema("money", "$0.12"),
]

# ---------------------------------------------------------------------------------------------------------
# a sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Generic[T]):
    """A sheet that was read: its exact bytes, its value and where each field of it stands."""

    path: Path
    data: bytes
    value: T
    root: Node = field(repr=False, compare=False)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def spot(self, *path: str | int) -> Spot:
        """Return where a field stands, or the nearest field around it that the file has."""
        line, column, _ = locate(self.root, path)
        return Spot(path=self.path, line=line, column=column)

    def fault(self, path: FieldPath, fault: str, mend: str) -> Fault:
        """Return a fault of the field at ``path``."""
        return Fault(spot=self.spot(*path), field=field_name(path), fault=fault, mend=mend)


def read(path: Path, model: type[M], across: Across | None = None) -> Sheet[M]:
    """Read a YAML sheet as a ``model``.

    ``across`` looks at the data as written, valid or not, for what no single field shows. Raises SheetError
    with every fault in the file: unreadable, not YAML, not the model.
    """
    data = bytes_of(path)
    tree = Tree(path, text_of(path, data))
    root = tree.build()
    if root is None:
        raise SheetError(tree.faults)
    if root.kind != "mapping":
        if tree.faults:
            raise SheetError(tree.faults)
        spot = Spot(path=path, line=root.line, column=root.column)
        fault = Fault(
            spot=spot,
            field="",
            fault=f"expected keys with values, got {root}",
            mend="write `key: value` lines",
        )
        raise SheetError([fault])
    written = plain(root)
    for at, said, mend in across(written) if across is not None else ():
        line, column, _ = locate(root, at)
        tree.object(line, column, at, said, mend)
    try:
        value = model.model_validate_json(json.dumps(written))
    except ValidationError as error:
        found = _faults(tree, root, model, error)
        raise SheetError([*tree.faults, *found], more=_surplus(error)) from None
    if tree.faults:
        raise SheetError(tree.faults)
    return Sheet(path=path, data=data, value=value, root=root)


# ---------------------------------------------------------------------------------------------------------
# pydantic's errors as faults


def _faults(tree: Tree, root: Node, model: type[BaseModel], error: ValidationError) -> list[Fault]:
    found: dict[FieldPath, Fault] = {}
    for path, fault, mend, at_key in _explained(root, model, error, ()):
        if path in (tree.faulty_keys if at_key else tree.objected):
            continue
        if any(path[:length] in tree.faulty for length in range(len(path) + 1)):
            continue
        line, column, _ = locate(root, path)
        if at_key and path:
            _, _, parent = locate(root, path[:-1])
            line, column = parent.keys.get(str(path[-1]), (line, column))
        if path in found:
            # two members of a union refused one value: one fault, both reasons
            said = found[path].fault
            fault = said if fault in said else f"{said}; or {fault}"
        spot = Spot(path=tree.path, line=line, column=column)
        found[path] = Fault(spot=spot, field=field_name(path), fault=fault, mend=mend)
    return list(found.values())


def _explained(
    root: Node, model: type[BaseModel], error: ValidationError, prefix: FieldPath
) -> Iterator[tuple[FieldPath, str, str, bool]]:
    """Yield (path in the file, fault, mend, whether the key is at fault) for the first of pydantic's errors.

    No more of them than are shown: the nearest word is dear, and a sheet can hold thousands of unknown ones.
    """
    for detail in error.errors(include_url=False)[:SHOWN_FAULTS]:
        kind = detail["type"]
        path = (*prefix, *_in_file(root, prefix, detail))
        at_key = kind == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, _InnerError):
            yield from _explained(root, cause.model, cause.error, path)
        elif isinstance(cause, RefusalError):
            yield (*path, *cause.path), cause.fault, cause.mend, at_key
        elif isinstance(cause, UnitError):
            yield path, cause.fault, cause.mend, at_key
        elif kind == "extra_forbidden":
            yield path, *_unknown_key(model, detail["loc"]), at_key
        else:
            _, _, node = locate(root, path)
            yield path, *_words(detail, node), at_key


def _surplus(error: ValidationError) -> int:
    """Return how many errors ``_explained`` leaves out."""
    surplus = max(0, error.error_count() - SHOWN_FAULTS)
    for detail in error.errors(include_url=False)[:SHOWN_FAULTS]:
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, _InnerError):
            surplus += _surplus(cause.error)
    return surplus


def _in_file(root: Node, prefix: FieldPath, detail: ErrorDetails) -> FieldPath:
    """Return pydantic's location without the names of union members and validators in it."""
    _, _, node = locate(root, prefix)
    loc = detail["loc"]
    path: list[str | int] = []
    for index, part in enumerate(loc):
        child = node.children.get(part)
        if child is not None:
            node = child
        elif not (detail["type"] == "missing" and index == len(loc) - 1):
            continue
        path.append(part)
    return tuple(path)


def _unknown_key(model: type[BaseModel], loc: FieldPath) -> tuple[str, str]:
    key = str(loc[-1])
    owners = _models_at({model}, loc[:-1])
    if any(key in owner.later for owner in owners if issubclass(owner, Strict)):
        return f"{shown(key)} is not yet supported", "remove it"
    known = [info.alias or name for owner in owners for name, info in owner.model_fields.items()]
    return f"unknown key {shown(key)}", nearest(key, known)


def _models_at(models: set[type[BaseModel]], loc: FieldPath) -> set[type[BaseModel]]:
    """Return the models that may stand at a location below ``models``."""
    kinds: list[Any] = list(models)
    for part in loc:
        below: list[Any] = []
        for kind in _members(kinds):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                below += [
                    info.annotation
                    for name, info in kind.model_fields.items()
                    if part in (name, info.alias)
                ]
            elif get_origin(kind) is not None:
                below += [arg for arg in get_args(kind)[-2:] if arg is not Ellipsis]
        # a part that is no field is the name of a union member: stay where we are
        kinds = below or kinds
    return {
        kind for kind in _members(kinds) if isinstance(kind, type) and issubclass(kind, BaseModel)
    }


def _members(kinds: list[Any]) -> Iterator[Any]:
    for kind in kinds:
        origin = get_origin(kind)
        if origin is Annotated:
            yield from _members([get_args(kind)[0]])
        elif origin in (Union, UnionType):
            yield from _members(list(get_args(kind)))
        else:
            yield kind


_EXPECTED: Mapping[str, tuple[str, str]] = {
    "int_type": ("a whole number", "write digits without quotes, such as 8"),
    "int_from_float": ("a whole number", "write digits without a point, such as 8"),
    "float_type": ("a number", "write digits without quotes, such as 1.5"),
    "bool_type": ("true or false", "write true or false, without quotes"),
    "string_type": ("a text", "put it in quotes"),
    "dict_type": ("keys with values", "write {key: value}"),
    "model_type": ("keys with values", "write {key: value}"),
    "list_type": ("a list", "write [a, b]"),
    "tuple_type": ("a list", "write [a, b]"),
    "set_type": ("a list", "write [a, b]"),
    "frozen_set_type": ("a list", "write [a, b]"),
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _words(detail: ErrorDetails, node: Node) -> tuple[str, str]:
    """Return (fault, mend) in our words for an error of pydantic's own."""
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "missing":
        return "required and not given", f"add `{detail['loc'][-1]}: ...`"
    if kind in _EXPECTED:
        expected, mend = _EXPECTED[kind]
        return f"expected {expected}, got {node}", mend
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        if isinstance(bound, float) and bound.is_integer():
            bound = int(bound)
        return f"must be {words} {bound}, got {node}", "write such a value"
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"])
        choices = re.findall(r"'([^']*)'", expected)
        mend = nearest(node.text, choices) if choices else f"write {expected}"
        return f"unknown value {node}, expected {expected}", mend
    if kind == "too_long":
        return f"more than {context['max_length']} of them", "give fewer"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty", "give at least one"
    if kind == "string_pattern_mismatch":
        said = detail["loc"][-2] if detail["loc"][-1] == "[key]" else node.text
        return (
            f"{shown(said)} does not match {context['pattern']}",
            "use only those characters",
        )
    return f"{detail['msg']}, got {node}", "write what the schema asks for (`tailgate schema`)"


# ---------------------------------------------------------------------------------------------------------
# catalogues and schemas


def catalogue(room: Room) -> dict[str, str]:
    """Return the sheets that come with a room: name to its one line (the file's first comment)."""
    return {
        name: path.read_text("utf-8").partition("\n")[0].lstrip("# ").rstrip()
        for name, path in sorted(_shipped(room).items())
    }


def _shipped(room: Room) -> dict[str, Path]:
    folder = Path(str(resources.files(room).joinpath("catalogue")))
    return {path.stem: path for path in folder.glob("*.yaml")}


def find(name: str, room: Room) -> Path:
    """Return the file that a name on the command line means: a catalogue's sheet or a path.

    A name without a slash and without .yaml or .yml is a catalogue's. Raises SheetError when there is none.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    shipped = _shipped(room)
    if name not in shipped:
        raise whole_file(
            Path(name),
            f"no sheet of this name in the catalogue of {room}",
            f"{nearest(name, sorted(shipped))} (a file of your own: ./{name}.yaml)",
        )
    return shipped[name]


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a sheet's JSON Schema (draft 2020-12); quantities are strings with a pattern."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **{key: _without_null(value) for key, value in schema.items()},
    }


def _without_null(schema: Any) -> Any:
    """Return a schema without the null that pydantic allows for what may be left out: no sheet has one."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    choices = kept.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del kept["anyOf"]
        kept |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    return kept
