"""The arrival models by name.

To add one: a frozen model in a file of ``arrivals/`` and a line in ``ARRIVALS``; from outside, an entry point of
the group ``tailgate.arrivals`` that names a subclass of ``profiles.process.Arrival``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from profiles.arrivals.constant import Constant
from profiles.arrivals.gamma import Gamma
from profiles.arrivals.on_off import OnOff
from profiles.arrivals.poisson import Poisson
from profiles.process import Arrival
from profiles.sheet import RefusalError, nearest, shown, validate
from profiles.shelf import shelve

ARRIVALS: dict[str, type[Arrival]] = {
    "constant": Constant,
    "poisson": Poisson,
    "gamma": Gamma,
    "on_off": OnOff,
}
# in the design and not in this version: refused as such, not as misspelt
LATER = frozenset({"weibull", "mmpp", "nhpp"})


@cache
def arrivals() -> Mapping[str, type[Arrival]]:
    """Return every arrival model by name, other packages' included.

    Raises ShelfError when two have one name.
    """
    return shelve(ARRIVALS, "tailgate.arrivals")


def _chosen(value: Any) -> Arrival:
    if isinstance(value, Arrival):
        return value
    models = arrivals()
    form = "write {model: " + " | ".join(models) + "}"
    if not isinstance(value, dict):
        raise RefusalError(f"expected an arrival model, got {shown(value)}", form)
    name = value.get("model")
    if name is None:
        raise RefusalError("required and not given", form, ("model",))
    if not isinstance(name, str):
        raise RefusalError(
            f"expected the name of an arrival model, got {shown(name)}", form, ("model",)
        )
    if name in LATER and name not in models:
        raise RefusalError(f"{shown(name)} is not yet supported", form, ("model",))
    if name not in models:
        raise RefusalError(
            f"unknown arrival model {shown(name)}", nearest(name, models), ("model",)
        )
    return validate(models[name], value)


class _ByModel:
    """Validates by the ``model`` key alone, so that a fault is told once and with the sheet's own path."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_chosen)

    @staticmethod
    def __get_pydantic_json_schema__(
        schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        choices = []
        for model in arrivals().values():
            choice = model.model_json_schema(by_alias=True)
            choice["required"] = ["model", *(k for k in choice.get("required", ()) if k != "model")]
            choices.append(choice)
        return {"oneOf": choices}


ArrivalField = Annotated[Arrival, _ByModel]
