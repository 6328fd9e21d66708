"""What a stored object must hold: which keys, of which types, in which range. Checked for every line of a run.

The objects of one kind have few combinations of types, so each is looked at once and then known by its tuple.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

MOST: Final = 2**62
"""Beyond it a difference of two stamps has no 64-bit integer; in nanoseconds it is 146 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What one key may hold: a value of these types, integers from ``least`` to ``most``, finite floats.

    ``may_lack`` is for a key that older files of the same format lack; it then holds None.
    """

    what: str
    types: frozenset[type]
    least: int = 0
    most: float = MOST
    may_lack: bool = False

    def or_null(self, *, may_lack: bool = False) -> Field:
        """Return the field that may be null as well."""
        return Field(
            what=f"{self.what} and not null",
            types=self.types | {type(None)},
            least=self.least,
            most=self.most,
            may_lack=may_lack,
        )

    def fault(self, name: str, value: object) -> str | None:
        """Return in words why the key of that name must not hold the value; None if it may."""
        if type(value) not in self.types:
            return f"{name} is {reprlib.repr(value)}, {self.what}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}, no finite number"
        if type(value) is int and not self.least <= value <= self.most:
            return f"{name} is {reprlib.repr(value)}, out of range"
        return None


COUNT: Final = Field(what="no integer", types=frozenset({int}))
SEED: Final = Field(what="no integer", types=frozenset({int}), most=math.inf)
STAMP: Final = Field(what="no integer", types=frozenset({int}), least=-MOST)
NUMBER: Final = Field(what="no number", types=frozenset({int, float}), least=-MOST)
TEXT: Final = Field(what="no text", types=frozenset({str}))
FLAG: Final = Field(what="neither true nor false", types=frozenset({bool}))
LIST: Final = Field(what="no list", types=frozenset({list}))
OBJECT: Final = Field(what="no object", types=frozenset({dict}))


class Shape:
    """The fields of one kind of stored object, by key."""

    __slots__ = ("_absent", "_fields", "_known", "_quick", "_take")

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self._fields = dict(fields)
        self._take: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*fields)
        self._absent = {name: None for name, field in fields.items() if field.may_lack}
        # floats may be no number, and itemgetter gives one value bare: such kinds are looked at field by field
        integers = sum(field.types == {int} for field in fields.values())
        self._quick = integers > 1 and not any(float in field.types for field in fields.values())
        self._known: dict[tuple[type, ...], Callable[[tuple[Any, ...]], tuple[int, ...]]] = {}

    def read(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object's fields and nothing else: keys of a later writer are left aside.

        Raises ValueError, naming the key, if one is missing or holds what it must not.
        """
        try:
            values = self._take(stored)
        except KeyError:
            values = self._older(stored)
        if self._quick:
            self._refuse_quickly(values)
        else:
            self._refuse(values)
        return dict(zip(self._fields, values, strict=True))

    def _older(self, stored: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            return self._take({**self._absent, **stored})
        except KeyError as fault:
            raise ValueError(f"the key {fault} is missing") from fault

    def _refuse_quickly(self, values: tuple[Any, ...]) -> None:
        types = tuple(map(type, values))
        integers_of = self._known.get(types)
        if integers_of is None:
            self._refuse(values)
            integers_of = itemgetter(*(at for at, kind in enumerate(types) if kind is int))
            self._known[types] = integers_of
        whole = integers_of(values)
        # below zero is a stamp before the start, which is rare
        if min(whole) < 0 or max(whole) > MOST:
            self._refuse(values)

    def _refuse(self, values: tuple[Any, ...]) -> None:
        for (name, field), value in zip(self._fields.items(), values, strict=True):
            if (fault := field.fault(name, value)) is not None:
                raise ValueError(fault)


def integers(name: str, value: object, *, least: int = 0) -> tuple[int, ...]:
    """Return the list of integers that the key of that name holds. Raises ValueError if it holds none."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is {reprlib.repr(value)}, no list")
    if not set(map(type, value)) <= {int}:
        raise ValueError(f"{name} holds something that is no integer")
    if value and not (min(value) >= least and max(value) <= MOST):
        raise ValueError(f"{name} holds an integer that is out of range")
    return tuple(value)
