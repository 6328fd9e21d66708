"""Which of the GPUs that a memory source shows are the engine's: too few are a fault, others' are left out.

A GPU that nobody watched would pass every memory check, and a neighbour's would break one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


class SourceError(Exception):
    """A memory source that cannot be used: the cause and the mend."""

    def __init__(self, cause: str, mend: str) -> None:
        super().__init__(f"{cause}; {mend}")
        self.cause = cause
        self.mend = mend


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to watch: the node's name, the page (``url``, for DCGM), and which of the GPUs there.

    ``gpus`` are the engine's by number, empty if nobody said. Else ``visible`` is the CUDA_VISIBLE_DEVICES of an
    engine started here, None if it is not set, and ``first`` how many of the visible ones it takes; ``least`` is how
    many an engine that was not started here uses, whichever they are. Counts are 0 where they are not known.
    """

    node: str
    url: str | None = None
    gpus: tuple[int, ...] = ()
    visible: str | None = None
    first: int = 0
    least: int = 0
    within_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The GPUs to watch, ascending; ``lacking`` if they cannot be all that the engine uses."""

    gpus: tuple[int, ...]
    lacking: SourceError | None = None
    warning: str | None = None


def choose(order: Order, uuids: Mapping[int, str | None]) -> Choice:
    """Return the engine's GPUs among those shown, by number with their UUIDs."""
    if order.gpus:
        return _named(order, uuids)
    seen = visible_gpus(order.visible, uuids)
    used = max(1, order.first, order.least)
    chosen = tuple(sorted(seen[: order.first] if order.first else seen))
    if len(seen) < used:
        return Choice(gpus=chosen, lacking=_too_few(order, used, uuids, len(seen)))
    return Choice(gpus=chosen, warning=_doubt(order, used, len(seen), chosen))


def _named(order: Order, uuids: Mapping[int, str | None]) -> Choice:
    absent = [gpu for gpu in order.gpus if gpu not in uuids]
    lacking = SourceError(
        f"the engine sheet names {_gpus(absent)}, and {_where(order)} has {_gpus(uuids)}",
        "correct telemetry: {gpus: [...]}",
    )
    return Choice(
        gpus=tuple(sorted(gpu for gpu in order.gpus if gpu in uuids)),
        lacking=lacking if absent else None,
    )


def _too_few(order: Order, used: int, uuids: Mapping[int, str | None], visible: int) -> SourceError:
    what = f"the engine is to use {used} GPU{'s' * (used != 1)}, and"
    if order.url is None:
        return SourceError(
            f"{what} {visible} of {len(uuids)} are visible to it",
            "check gpus:, parallel: and CUDA_VISIBLE_DEVICES",
        )
    left = "" if order.visible is None else f", of which CUDA_VISIBLE_DEVICES leaves {visible}"
    return SourceError(
        f"{what} {order.url} shows {_gpus(uuids)}{left}",
        "give a page that shows them all, correct gpus:, or name them: telemetry: {gpus: [...]}",
    )


def _doubt(order: Order, used: int, seen: int, chosen: tuple[int, ...]) -> str | None:
    """Return the warning where nothing says which of more GPUs than the engine uses are its own."""
    if order.visible is not None or seen <= used:
        return None
    mend = "telemetry: {gpus: [...]} in the engine sheet says which are the engine's"
    if not order.first:
        return f"{_gpus(chosen)} of {_where(order)} all count as the engine's; {mend}"
    if order.url is None:
        return None  # the engine was started on this driver, and CUDA hands out the first
    return (
        f"{order.url} shows {seen} GPUs and the engine uses {used}: {_gpus(chosen)} count as the "
        f"engine's, since CUDA hands out the first; {mend}"
    )


def _where(order: Order) -> str:
    return "this machine" if order.url is None else order.url


def _gpus(numbers: Iterable[int]) -> str:
    """Return GPUs in words.

    >>> _gpus([3]), _gpus([1, 0]), _gpus([])
    ('GPU 3', 'GPUs 0, 1', 'no GPU')
    """
    ordered = sorted(numbers)
    if not ordered:
        return "no GPU"
    return f"GPU{'s' * (len(ordered) > 1)} {', '.join(map(str, ordered))}"


def visible_gpus(setting: str | None, uuids: Mapping[int, str | None]) -> tuple[int, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; as in CUDA the first bad word ends it.

    >>> visible_gpus("1,GPU-aa,7,0", {0: "GPU-bbbb", 1: "GPU-cccc", 2: "GPU-aaaa"})
    (1, 2)
    """
    if setting is None:
        return tuple(sorted(uuids))
    chosen: list[int] = []
    for word in (part.strip() for part in setting.split(",")):
        if word.isascii() and word.isdigit():
            found = [gpu for gpu in uuids if str(gpu) == (word.lstrip("0") or "0")]
        else:
            found = [i for i, uuid in uuids.items() if word and uuid and uuid.startswith(word)]
        if len(found) != 1 or found[0] in chosen:
            break
        chosen += found
    return tuple(chosen)
