"""A YAML file as a tree that knows where each value stands, and what is wrong with it as YAML.

Scalars are taken from the parser's events as text and typed by the few forms below, so that what YAML 1.1 would
silently turn into something else (``1:30``, ``on``, ``010``, dates, ``<<``) is a fault and never a value.

    Tree          built from a file's text: nodes, and the faults met on the way
    SheetError    exit code 2, holds every Fault
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from profiles import units

LARGEST_SHEET_BYTES = 256 * 1024
DEEPEST = 24
SHOWN_FAULTS = 100
_SHOWN_LETTERS = 80
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
    """A sheet that cannot be used; ``faults`` holds what is wrong with it, in the file's order.

    ``more`` counts the faults beside them that nobody put into words, since there were so many.
    """

    exit_code = 2

    def __init__(self, faults: Iterable[Fault], more: int = 0) -> None:
        self.more = more
        self.faults = tuple(
            sorted(faults, key=lambda f: (str(f.spot.path), f.spot.line, f.spot.column))
        )
        super().__init__(self.faults)

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:SHOWN_FAULTS]]
        more = len(self.faults) - len(lines) + self.more
        if more:
            lines.append(f"and {more} more faults")
        return "\n".join(lines)


@dataclass(slots=True)
class Node:
    """A value of the file; ``keys`` says where a mapping's keys stand, lines and columns from 1."""

    line: int
    column: int
    kind: Literal["scalar", "mapping", "list", "faulty"]
    text: str = ""
    quoted: bool = False
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    children: dict[str | int, Node] = field(default_factory=dict)

    def __str__(self) -> str:
        match self.kind:
            case "scalar":
                bare = not self.quoted and isinstance(plain(self), bool | int | float)
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
            short = part.isprintable() and 0 < len(part) <= _SHOWN_LETTERS
            word = part if short else shown(part)
            name += f".{word}" if name else word
    return name


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+", re.ASCII)
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9oxb_][0-9a-fA-F_]*", re.ASCII)
_MOST_DIGITS = 18
_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = ("half a surrogate pair is no character", "write the character itself")
# an escape can write it, and no path, argument or variable can hold it
_NUL = ("a NUL character stands for nothing in a sheet", "remove it")


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


def _no_text(text: str) -> tuple[str, str] | None:
    """Return (fault, mend) when a text, as an escape can write it, is none that could be used anywhere."""
    if _SURROGATE.search(text):
        return _HALF
    return _NUL if "\0" in text else None


class Tree:
    """Builds the nodes of one document from the parser's events and collects what is wrong on the way.

    ``faulty`` are the paths whose values are lost, ``faulty_keys`` those whose last word is wrong, ``objected`` those
    that have a fault although their parts may be sound.
    """

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

    def build(self) -> Node | None:
        """Return the root of the only document; None when the file cannot be followed to its end."""
        root: Node | None = None
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

    def _node(self, event: yaml.Event, path: FieldPath) -> Node:
        line, column = _place(event)
        if len(path) > DEEPEST:
            raise _Stop(line, column, f"nested more than {DEEPEST} deep", "write a flatter sheet")
        if isinstance(event, yaml.AliasEvent):
            self.refuse(line, column, path, "aliases are not read", "write the value out")
            return Node(line, column, "faulty")
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
            node = Node(line, column, "list")
            for index, item in enumerate(self._until(yaml.SequenceEndEvent)):
                node.children[index] = self._node(item, (*path, index))
        else:
            node = self._mapping(line, column, path)
        if event.anchor is not None or event.tag is not None:
            node.kind = "faulty"
        return node

    def refuse(self, line: int, column: int, path: FieldPath, fault: str, mend: str) -> None:
        """Add a fault of a value that is lost by it."""
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

    def _scalar(self, event: yaml.ScalarEvent, line: int, column: int, path: FieldPath) -> Node:
        node = Node(line, column, "scalar", text=event.value, quoted=event.style is not None)
        wrong = None if node.quoted else _surprise(node.text, self._loader)
        wrong = _no_text(node.text) or wrong
        if wrong is not None:
            self.refuse(line, column, path, *wrong)
            node.kind = "faulty"
        return node

    def _mapping(self, line: int, column: int, path: FieldPath) -> Node:
        node = Node(line, column, "mapping")
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
            unwritable = _no_text(key)
            wrong = unwritable or wrong
            if event.anchor is not None or event.tag is not None:
                wrong = "anchors and tags are not read", "remove it"
            value = self._node(next(events), (*path, key))
            if wrong is not None:
                self._add(key_line, key_column, (*path, key), *wrong)
                # what stands under it has faults of its own, and a repeated word for the key says no more
                self.faulty_keys.add((*path, key))
            if wrong is not None and (unwritable or key in ("", "<<") or key in node.children):
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


def plain(node: Node) -> Any:
    """Return a node's data as JSON knows it; a faulty node is None and its own fault already stands."""
    match node.kind:
        case "mapping":
            return {str(key): plain(child) for key, child in node.children.items()}
        case "list":
            return [plain(child) for child in node.children.values()]
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


def locate(root: Node, path: FieldPath) -> tuple[int, int, Node]:
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


def whole_file(path: Path, fault: str, mend: str) -> SheetError:
    """Return the error of a file that is at fault as a whole."""
    spot = Spot(path=path, line=0, column=0)
    return SheetError([Fault(spot=spot, field="", fault=fault, mend=mend)])


def bytes_of(path: Path) -> bytes:
    """Return a file's bytes, at most ``LARGEST_SHEET_BYTES``.

    Raises SheetError if it cannot be read or is larger.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_SHEET_BYTES + 1)
    except FileNotFoundError:
        raise whole_file(path, "no such file", "check the path") from None
    except IsADirectoryError:
        raise whole_file(path, "a directory, not a sheet", "name a YAML file in it") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise whole_file(path, f"cannot be read: {said}", "check the path and its mode") from None
    if len(data) > LARGEST_SHEET_BYTES:
        limit = units.format_bytes(LARGEST_SHEET_BYTES)
        raise whole_file(path, f"larger than {limit}", "name a sheet; this looks like data")
    return data


def text_of(path: Path, data: bytes) -> str:
    """Return the text in a file's bytes, without a byte order mark.

    Raises SheetError with the place of the first byte or character that no sheet may hold.
    """
    if b"\0" in data:
        raise whole_file(path, "binary data, not a sheet", "name a YAML file in UTF-8")
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
