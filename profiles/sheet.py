"""A YAML sheet read with its marks: every fault in it at once, each with file:line:column and the mend.

Scalars are taken from the parser's events as text and typed by the few forms below, so that what YAML 1.1 would
silently turn into something else (``1:30``, ``on``, ``010``, dates, ``<<``) is a fault and never a value.

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

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from profiles import units
from profiles.units import UnitError

LARGEST_SHEET_BYTES = 256 * 1024
DEEPEST = 24
_SHOWN_FAULTS = 100
_SHOWN_LETTERS = 80
Room = Literal["profiles", "slas", "launchers"]
FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A place in a file; lines and columns count from 1, and line 0 means the file as a whole."""

    path: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong in a sheet: where, in which field, what, and what to write instead."""

    spot: Spot
    field: str
    fault: str
    mend: str

    def __str__(self) -> str:
        where = f"{self.spot}: {self.field}" if self.field else str(self.spot)
        return f"{where}: {self.fault}\n  mend: {self.mend}"


class SheetError(Exception):
    """A sheet that cannot be used; ``faults`` holds everything wrong with it, in the file's order."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(
            sorted(faults, key=lambda f: (str(f.spot.path), f.spot.line, f.spot.column))
        )
        super().__init__(self.faults)

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:_SHOWN_FAULTS]]
        if len(self.faults) > _SHOWN_FAULTS:
            lines.append(f"and {len(self.faults) - _SHOWN_FAULTS} more faults")
        return "\n".join(lines)


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
# the tree of a file


@dataclass(slots=True)
class _Node:
    line: int
    column: int
    kind: Literal["scalar", "mapping", "list", "faulty"]
    text: str = ""
    quoted: bool = False
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    children: dict[str | int, _Node] = field(default_factory=dict)

    def __str__(self) -> str:
        match self.kind:
            case "scalar":
                bare = not self.quoted and isinstance(_plain(self), bool | int | float)
                return self.text if bare else shown(self.text)
            case "mapping":
                return "a mapping"
            case "list":
                return "a list"
            case "faulty":
                return "a value at fault"


@dataclass(frozen=True, slots=True)
class _Stop(Exception):  # noqa: N818 - not an error of its own: it carries one fault out of a recursion
    line: int
    column: int
    fault: str
    mend: str


def shown(value: object) -> str:
    """Return a value as messages show it: a text in quotes, cut where it grows too long.

    >>> shown("on"), shown(8)
    ("'on'", '8')
    """
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN_LETTERS else value[:_SHOWN_LETTERS] + "...")
    text = repr(value)
    return text if len(text) <= _SHOWN_LETTERS else text[:_SHOWN_LETTERS] + "..."


def field_name(path: FieldPath) -> str:
    """Return a path as it is shown: ``tenants.chat.rate``, ``must[1]``."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            plain = part.isprintable() and 0 < len(part) <= _SHOWN_LETTERS
            word = part if plain else shown(part)
            name += f".{word}" if name else word
    return name


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+", re.ASCII)
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9oxb_][0-9a-fA-F_]*", re.ASCII)
_MOST_DIGITS = 18
_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = ("half a surrogate pair is no character", "write the character itself")


def _place(event: yaml.Event) -> tuple[int, int]:
    """Return an event's line and column, both from 1."""
    mark = event.start_mark
    assert mark is not None, "the parser marks every event"
    return mark.line + 1, mark.column + 1


def _surprise(text: str, resolver: yaml.SafeLoader) -> tuple[str, str] | None:
    """Return (fault, mend) when YAML readers would not agree on what a plain scalar is."""
    if text in ("true", "false"):
        return None
    if _WHOLE.fullmatch(text) or _DECIMAL.fullmatch(text):
        if len(text) > _MOST_DIGITS:
            return f"{shown(text)} has more than {_MOST_DIGITS} digits", "write a shorter number"
        return None
    if _EXPONENT.fullmatch(text):
        return (
            f"{shown(text)} is a number to some YAML readers and a text to others",
            "write the number out, such as 1000, or quote it",
        )
    if _LEADING_ZERO.fullmatch(text):
        return (
            f"{shown(text)} is octal, hexadecimal or decimal, depending on the YAML reader",
            "write a plain decimal number, or quote it",
        )
    if text in ("y", "Y", "n", "N"):
        return (
            f"{shown(text)} is a truth value to some YAML readers",
            "write true or false, or quote it",
        )
    resolved: str = resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    tag = resolved.rpartition(":")[2]
    match tag:
        case "null":
            return "no value given", "give a value or delete the line"
        case "bool":
            return (
                f"{shown(text)} is a truth value to some YAML readers",
                "write true or false, or quote it",
            )
        case "int" | "float" if ":" in text:
            return (
                f"{shown(text)} is a number in base 60 to some YAML readers",
                "write a duration with its unit, such as 90s, or quote it",
            )
        case "int" | "float":
            return (
                f"{shown(text)} is not a plain number",
                "write it in digits, such as 1000 or 0.5",
            )
        case "timestamp":
            return f"{shown(text)} is a date to some YAML readers", "quote it"
        case "merge":
            return "merge keys are not read", "write the keys out"
        case "value":
            return f"{text!r} has a meaning of its own in YAML", "quote it"
        case _:
            return None


class _Tree:
    """Builds the nodes of one document from the parser's events and collects what is wrong on the way."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.faults: list[Fault] = []
        self.faulty: set[FieldPath] = set()
        self.faulty_keys: set[FieldPath] = set()
        self.objected: set[FieldPath] = set()
        self._loader = yaml.SafeLoader(text)
        self._events = self._read_events()

    def _read_events(self) -> Iterator[yaml.Event]:
        while self._loader.check_event():
            yield self._loader.get_event()  # type: ignore[no-untyped-call]

    def _add(self, line: int, column: int, path: FieldPath, fault: str, mend: str) -> None:
        spot = Spot(path=self.path, line=line, column=column)
        self.faults.append(Fault(spot=spot, field=field_name(path), fault=fault, mend=mend))

    def build(self) -> _Node | None:
        """Return the root of the only document; None when the file cannot be followed to its end."""
        root: _Node | None = None
        try:
            for event in self._events:
                if isinstance(event, yaml.StreamStartEvent | yaml.StreamEndEvent):
                    continue
                if isinstance(event, yaml.DocumentStartEvent):
                    if root is not None:
                        raise _Stop(
                            *_place(event),
                            "a second document begins here",
                            "keep one document a file",
                        )
                    continue
                if isinstance(event, yaml.DocumentEndEvent):
                    continue
                root = self._node(event, ())
        except _Stop as stop:
            self._add(stop.line, stop.column, (), stop.fault, stop.mend)
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            said = (error.problem or error.context or "not YAML")[:_SHOWN_LETTERS]
            self._add(line, column, (), f"not YAML: {said}", _yaml_mend(said))
            return None
        except (ValueError, OverflowError):
            # the scanner trips over escapes and directives whose number is beyond Python's
            line, column = self._loader.line + 1, self._loader.column + 1
            said = "not YAML: an escape or a directive with too large a number"
            self._add(line, column, (), said, _yaml_mend(""))
            return None
        if root is None:
            self._add(1, 1, (), "the file is empty", "start from a sheet of `tailgate catalogue`")
        return root

    def _node(self, event: yaml.Event, path: FieldPath) -> _Node:
        line, column = _place(event)
        if len(path) > DEEPEST:
            raise _Stop(line, column, f"nested more than {DEEPEST} deep", "write a flatter sheet")
        if isinstance(event, yaml.AliasEvent):
            self.refuse(line, column, path, "aliases are not read", "write the value out")
            return _Node(line, column, "faulty")
        assert isinstance(
            event, yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent
        )
        if event.anchor is not None:
            self.refuse(
                line, column, path, f"anchors are not read: {shown(event.anchor)}", "remove it"
            )
        if event.tag is not None:
            self.refuse(line, column, path, f"tags are not read: {shown(event.tag)}", "remove it")
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, line, column, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = _Node(line, column, "list")
            for index, item in enumerate(self._until(yaml.SequenceEndEvent)):
                node.children[index] = self._node(item, (*path, index))
        else:
            node = self._mapping(line, column, path)
        if event.anchor is not None or event.tag is not None:
            node.kind = "faulty"
        return node

    def refuse(self, line: int, column: int, path: FieldPath, fault: str, mend: str) -> None:
        self._add(line, column, path, fault, mend)
        self.faulty.add(path)

    def object(self, line: int, column: int, path: FieldPath, fault: str, mend: str) -> None:
        """Add a fault of a field whose parts may have faults of their own."""
        self._add(line, column, path, fault, mend)
        self.objected.add(path)

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event

    def _scalar(self, event: yaml.ScalarEvent, line: int, column: int, path: FieldPath) -> _Node:
        node = _Node(line, column, "scalar", text=event.value, quoted=event.style is not None)
        wrong = None if node.quoted else _surprise(node.text, self._loader)
        if _SURROGATE.search(node.text):
            wrong = _HALF
        if wrong is not None:
            self.refuse(line, column, path, *wrong)
            node.kind = "faulty"
        return node

    def _mapping(self, line: int, column: int, path: FieldPath) -> _Node:
        node = _Node(line, column, "mapping")
        events = self._until(yaml.MappingEndEvent)
        for event in events:
            key_line, key_column = _place(event)
            if not isinstance(event, yaml.ScalarEvent):
                self._add(key_line, key_column, path, "a key must be a word", "write one word")
                # the odd key and its value are walked over without a word, so that the rest is still read
                silent = len(self.faults)
                try:
                    self._node(event, (*path, "?"))
                    self._node(next(events), (*path, "?"))
                finally:
                    del self.faults[silent:]
                continue
            key = event.value
            wrong = None
            if event.style is None and not (_WHOLE.fullmatch(key) and len(key) <= _MOST_DIGITS):
                wrong = _surprise(key, self._loader)
                if key in ("true", "false"):
                    wrong = f"the key {key!r} is a truth value to YAML readers", "quote it"
                elif key == "":
                    wrong = "a key is missing before ':'", "write one"
            if _SURROGATE.search(key):
                wrong = _HALF
            if event.anchor is not None or event.tag is not None:
                wrong = "anchors and tags are not read", "remove it"
            value = self._node(next(events), (*path, key))
            if wrong is not None:
                self._add(key_line, key_column, (*path, key), *wrong)
                # what stands under it has faults of its own, and a repeated word for the key says no more
                self.faulty_keys.add((*path, key))
            if wrong is not None and (key in ("", "<<", *node.children) or wrong == _HALF):
                continue
            if key in node.children:
                first = node.keys[key][0]
                self._add(
                    key_line,
                    key_column,
                    (*path, key),
                    f"duplicate key, first given in line {first}",
                    "keep one of them",
                )
            else:
                node.children[key] = value
                node.keys[key] = (key_line, key_column)
        return node


def _yaml_mend(said: str) -> str:
    if "\\t" in said or "\t" in said:
        return "indent with spaces, not tabs"
    if "cannot start any token" in said or "alphabetic or numeric" in said:
        return "put the text in quotes"
    if "mapping values are not allowed" in said:
        return "put the text in quotes, or mend the indentation"
    if "<block end>" in said:
        return "mend the indentation of this line"
    if "special characters" in said:
        return "remove the control character"
    return "mend the YAML at this place"


def _plain(node: _Node) -> Any:
    """Return a node's data as JSON knows it; a faulty node is None and its own fault already stands."""
    match node.kind:
        case "mapping":
            return {str(key): _plain(child) for key, child in node.children.items()}
        case "list":
            return [_plain(child) for child in node.children.values()]
        case "faulty":
            return None
        case "scalar":
            if node.quoted:
                return node.text
            if node.text in ("true", "false"):
                return node.text == "true"
            if _WHOLE.fullmatch(node.text):
                return int(node.text)
            if _DECIMAL.fullmatch(node.text):
                return float(node.text)
            return node.text


# ---------------------------------------------------------------------------------------------------------
# a sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet(Generic[T]):
    """A sheet that was read: its exact bytes, its value and where each field of it stands."""

    path: Path
    data: bytes
    value: T
    root: _Node = field(repr=False, compare=False)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def spot(self, *path: str | int) -> Spot:
        """Return where a field stands, or the nearest field around it that the file has."""
        line, column, _ = _locate(self.root, path)
        return Spot(path=self.path, line=line, column=column)

    def fault(self, path: FieldPath, fault: str, mend: str) -> Fault:
        """Return a fault of the field at ``path``."""
        return Fault(spot=self.spot(*path), field=field_name(path), fault=fault, mend=mend)


def _locate(root: _Node, path: FieldPath) -> tuple[int, int, _Node]:
    """Return line, column and node of the deepest part of ``path`` that the file has.

    A scalar stands where its value is, a mapping or list where its key is: the value is lines below.
    """
    node, line, column = root, root.line, root.column
    for part in path:
        child = node.children.get(part)
        if child is None:
            break
        line, column = child.line, child.column
        if isinstance(part, str) and child.kind in ("mapping", "list"):
            line, column = node.keys[part]
        node = child
    return line, column, node


def read(path: Path, model: type[M], across: Across | None = None) -> Sheet[M]:
    """Read a YAML sheet as a ``model``.

    ``across`` looks at the data as written, valid or not, for what no single field shows. Raises SheetError
    with every fault in the file: unreadable, not YAML, not the model.
    """
    data = _bytes_of(path)
    tree = _Tree(path, _text_of(path, data))
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
    plain = _plain(root)
    for at, said, mend in across(plain) if across is not None else ():
        line, column, _ = _locate(root, at)
        tree.object(line, column, at, said, mend)
    try:
        value = model.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        raise SheetError([*tree.faults, *_faults(tree, root, model, error)]) from None
    if tree.faults:
        raise SheetError(tree.faults)
    return Sheet(path=path, data=data, value=value, root=root)


def _whole_file(path: Path, fault: str, mend: str) -> SheetError:
    spot = Spot(path=path, line=0, column=0)
    return SheetError([Fault(spot=spot, field="", fault=fault, mend=mend)])


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_SHEET_BYTES + 1)
    except FileNotFoundError:
        raise _whole_file(path, "no such file", "check the path") from None
    except IsADirectoryError:
        raise _whole_file(path, "a directory, not a sheet", "name a YAML file in it") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise _whole_file(path, f"cannot be read: {said}", "check the path and its mode") from None
    if len(data) > LARGEST_SHEET_BYTES:
        limit = units.format_bytes(LARGEST_SHEET_BYTES)
        raise _whole_file(path, f"larger than {limit}", "name a sheet; this looks like data")
    return data


def _text_of(path: Path, data: bytes) -> str:
    if b"\0" in data:
        raise _whole_file(path, "binary data, not a sheet", "name a YAML file in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        raise _at(path, line, column, "not UTF-8", "save the file as UTF-8") from None
    odd = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if odd is not None:
        before_odd = text[: odd.start()]
        line = before_odd.count("\n") + 1
        column = len(before_odd.rpartition("\n")[2]) + 1
        said = f"control character {odd.group()!r}"
        raise _at(path, line, column, said, "remove it") from None
    return text


def _at(path: Path, line: int, column: int, fault: str, mend: str) -> SheetError:
    spot = Spot(path=path, line=line, column=column)
    return SheetError([Fault(spot=spot, field="", fault=fault, mend=mend)])


# ---------------------------------------------------------------------------------------------------------
# pydantic's errors as faults


def _faults(
    tree: _Tree, root: _Node, model: type[BaseModel], error: ValidationError
) -> list[Fault]:
    found: dict[FieldPath, Fault] = {}
    for path, fault, mend, at_key in _explained(root, model, error, ()):
        if path in (tree.faulty_keys if at_key else tree.objected):
            continue
        if any(path[: len(bad)] == bad for bad in tree.faulty):
            continue
        line, column, _ = _locate(root, path)
        if at_key and path:
            _, _, parent = _locate(root, path[:-1])
            line, column = parent.keys.get(str(path[-1]), (line, column))
        if path in found:
            # two members of a union refused one value: one fault, both reasons
            said = found[path].fault
            fault = said if fault in said else f"{said}; or {fault}"
        spot = Spot(path=tree.path, line=line, column=column)
        found[path] = Fault(spot=spot, field=field_name(path), fault=fault, mend=mend)
    return list(found.values())


def _explained(
    root: _Node, model: type[BaseModel], error: ValidationError, prefix: FieldPath
) -> Iterator[tuple[FieldPath, str, str, bool]]:
    """Yield (path in the file, fault, mend, whether the key is at fault) for each of pydantic's errors."""
    for detail in error.errors(include_url=False):
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
            _, _, node = _locate(root, path)
            yield path, *_words(detail, node), at_key


def _in_file(root: _Node, prefix: FieldPath, detail: ErrorDetails) -> FieldPath:
    """Return pydantic's location without the names of union members and validators in it."""
    _, _, node = _locate(root, prefix)
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


def _words(detail: ErrorDetails, node: _Node) -> tuple[str, str]:
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
        raise _whole_file(
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
