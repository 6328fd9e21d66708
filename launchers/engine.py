"""The kinds of engine that tailgate can start or attach to, and what is said when one cannot be had.

LaunchError   exit_code 3: the engine is not ready, its port is taken, or it refuses our key or model
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from launchers.engines.attach import Attach
from launchers.engines.command import AnyCommand
from launchers.engines.sim import Sim
from launchers.engines.vllm import Vllm
from profiles.shelf import shelve

if TYPE_CHECKING:
    from launchers.command import Command
    from launchers.objection import Objection
    from launchers.spec import EngineSpec


class LaunchError(Exception):
    """The engine could not be had: the cause, the mend, and the last lines of its log."""

    exit_code = 3

    def __init__(self, cause: str, mend: str, log_tail: tuple[str, ...] = ()) -> None:
        tail = "".join(f"\n  | {line}" for line in log_tail)
        super().__init__(f"{cause}\n  mend: {mend}{tail}")
        self.cause = cause
        self.mend = mend
        self.log_tail = log_tail


class Engine(Protocol):
    """One kind of engine: what its sheet must say, and how its process is started. It holds no state.

    ``keys`` are the sheet's fields that this kind reads beside those that every kind has; any other one that
    is written is a fault. ``health`` is true if its server must answer /health. ``memory`` is the source that
    watches its GPUs when the sheet names none, ``dcgm_path`` the page of its own that reports them.
    """

    keys: ClassVar[frozenset[str]]
    started: ClassVar[bool]
    simulated: ClassVar[bool]
    health: ClassVar[bool]
    memory: ClassVar[str]
    dcgm_path: ClassVar[str | None]

    @staticmethod
    def objections(spec: EngineSpec) -> Iterator[Objection]:
        """Yield everything that is missing or wrong in the sheet for this kind."""
        ...

    @staticmethod
    def command(spec: EngineSpec, port: int) -> Command:
        """Return what serves ``spec`` on 127.0.0.1:``port``; only asked of kinds that are started."""
        ...


ENGINES: dict[str, type[Engine]] = {
    "sim": Sim,
    "vllm": Vllm,
    "command": AnyCommand,
    "attach": Attach,
}

# names of the field that a later tailgate will know; refused with a word, never as a misspelling
LATER: frozenset[str] = frozenset({"tensorrt-llm", "sglang"})


def engines() -> Mapping[str, type[Engine]]:
    """Return the built-in kinds and those that installed packages add.

    Raises ShelfError if two kinds have one name, or one cannot be loaded.
    """
    return shelve(ENGINES, "tailgate.engines")
