"""Where engines run: a place picks a port, starts a command, and owns all the processes that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from launchers.command import Command
from launchers.listener import Listener
from launchers.places.local import Local
from profiles.shelf import shelve


class Tree(Protocol):
    """A program that was started, and everything that it started in turn."""

    @property
    def pid(self) -> int:
        """The program's own pid."""
        ...

    def poll(self) -> str | None:
        """Return None while the program runs, else in words how it ended."""
        ...

    def stop(self) -> str | None:
        """End the whole tree; return None when nothing is left, else in words what is. May be called twice."""
        ...

    def owns(self, pid: int) -> bool:
        """Say whether a live process belongs to this tree."""
        ...


class Place(Protocol):
    """A place where commands can be started. ``host`` is what clients connect to."""

    host: str
    node: str

    def free_port(self) -> int:
        """Return a port on which nobody listens now."""
        ...

    def listeners(self, port: int) -> tuple[Listener, ...]:
        """Return who listens on the port."""
        ...

    def start(
        self, command: Command, *, marks: Mapping[str, str], log: Path, grace_s: float
    ) -> Tree:
        """Start the command with ``marks`` in its environment and its words going to ``log``.

        Raises LaunchError if it cannot be started or a variable that it needs is not set.
        """
        ...


PLACES: dict[str, type[Place]] = {"local": Local}

# places that a later tailgate will know; refused with a word, never as a misspelling
LATER: frozenset[str] = frozenset({"ssh", "slurm", "docker", "kubernetes"})


def places() -> Mapping[str, type[Place]]:
    """Return the built-in places and those that installed packages add.

    Raises ShelfError if two places have one name, or one cannot be loaded.
    """
    return shelve(PLACES, "tailgate.places")
