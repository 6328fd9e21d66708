"""What can be chosen by name: our own entries plus those that other packages offer as entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TypeVar

T = TypeVar("T")


class ShelfError(Exception):
    """Two entries of one name, or an entry point that cannot be loaded: an installation at fault."""

    exit_code = 2


def shelve(ours: Mapping[str, T], group: str) -> dict[str, T]:
    """Return ``ours`` and every entry point of ``group``, by name.

    Raises ShelfError when a name is taken twice or an entry point cannot be imported.
    """
    shelf = dict(ours)
    for point in entry_points(group=group):
        owner = f"{point.value} of {point.dist.name if point.dist else 'an unnamed package'}"
        if point.name in shelf:
            raise ShelfError(
                f"{group}: the name {point.name!r} is taken twice, the second time by {owner}; "
                "uninstall one of the packages"
            )
        try:
            shelf[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            raise ShelfError(f"{group}: {owner} cannot be loaded: {error}") from error
    return shelf
