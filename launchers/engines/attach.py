"""A server that already runs, wherever it is: it is proved ready and never started or stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NoReturn

from launchers.objection import Objection

if TYPE_CHECKING:
    from launchers.spec import EngineSpec


class Attach:
    """Names a URL; nothing is started, so nothing but telemetry can be set."""

    keys: ClassVar[frozenset[str]] = frozenset({"url"})
    started: ClassVar[bool] = False
    simulated: ClassVar[bool] = False
    health: ClassVar[bool] = False
    memory: ClassVar[str] = "none"
    dcgm_path: ClassVar[str | None] = None

    @staticmethod
    def objections(spec: EngineSpec) -> Iterator[Objection]:
        """Yield a fault if there is no URL."""
        if spec.url is None:
            yield Objection(
                field=("url",),
                fault="an attached engine needs the URL of its server",
                mend="write url: http://host:8000",
            )

    @staticmethod
    def command(spec: EngineSpec, port: int) -> NoReturn:
        """Never asked: the server runs already."""
        raise AssertionError(f"{spec.name} is attached to {spec.url}; it is not started on {port}")
