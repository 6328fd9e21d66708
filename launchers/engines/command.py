"""Any server that speaks the OpenAI API, by the words that start it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from launchers.command import Command
from launchers.objection import Objection

if TYPE_CHECKING:
    from launchers.spec import EngineSpec

PORT = "{port}"


class AnyCommand:
    """Starts ``argv``, in which ``{port}`` stands for the port that the server must listen on."""

    keys: ClassVar[frozenset[str]] = frozenset({"argv"})
    started: ClassVar[bool] = True
    simulated: ClassVar[bool] = False
    health: ClassVar[bool] = False
    memory: ClassVar[str] = "none"
    dcgm_path: ClassVar[str | None] = None

    @staticmethod
    def objections(spec: EngineSpec) -> Iterator[Objection]:
        """Yield a fault if there is nothing to start, or no way to tell it the port."""
        if not spec.argv:
            yield Objection(
                field=("argv",),
                fault="a command engine needs the words that start it",
                mend='write argv: [my-server, --port, "{port}"]',
            )
        elif spec.port is None and not any(PORT in word for word in spec.argv):
            yield Objection(
                field=("argv",),
                fault="no word holds {port}, so the server cannot be told where to listen",
                mend='write "{port}" where the port goes, or name the fixed one: port: 8000',
            )

    @staticmethod
    def command(spec: EngineSpec, port: int) -> Command:
        """Return ``argv`` with the port in its place; other braces stay as they are."""
        argv = tuple(word.replace(PORT, str(port)) for word in spec.argv)
        return Command(argv=argv, env=spec.env)
