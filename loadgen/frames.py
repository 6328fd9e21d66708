"""The words between a tailgate process, its locust process and the generators: one JSON object a line.

A ``Channel`` end is a connected socket. tailgate speaks ``Job``, ``Stop`` and ``Quit``; generators answer with
``Hello``, a ``Progress`` a second and one ``Final``; control adds ``Lost``. Control passes generators' words on
unchanged, so both ends see one protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One lane's share of one run. ``start_ns`` is this host's monotonic clock at the start of the warm-up."""

    run: int
    lane: int
    lanes: int
    worker: str
    run_dir: str
    profile_path: str
    seed: int
    level_percent: int
    quick: bool
    url: str
    model: str
    api_key_env: str | None
    salt: str
    start_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Send nothing more; wait for open requests as long as the drain allows, then say ``Final``."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quit:
    """The sitting is over; ``exit_code`` is what a locust process that opened it must exit with."""

    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A generator is up, clean of gevent and locust."""

    pid: int
    loop: str
    wire: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantProgress:
    """One tenant's second: counts, and latencies as sparse [bucket index, count] pairs (``slas.histogram``)."""

    due: int
    sent: int
    completed: int
    failed: int
    ttft: tuple[tuple[int, int], ...]
    itl: tuple[tuple[int, int], ...]
    tpot: tuple[tuple[int, int], ...]
    e2e: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One second of one lane. Counts in ``tenants`` are of this second; ``in_flight`` is now.

    ``failures`` counts this second's failures by [tenant, outcome, status or stage].
    """

    run: int
    lane: int
    at_ns: int
    in_flight: int
    events: int
    lateness_max_ns: int
    loop_lag_max_ns: int
    tenants: Mapping[str, TenantProgress]
    failures: tuple[tuple[str, str, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """A lane's last word: every row is on disk. ``invalid`` names our own faults; ``finished`` is false if cut."""

    run: int
    lane: int
    finished: bool
    rows: int
    planned: Mapping[str, int]
    end_ns: int
    invalid: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A generator or worker is gone without a ``Final``; the run is INVALID."""

    worker: str
    why: str


Frame = Job | Stop | Quit | Hello | Progress | Final | Lost
FRAMES: dict[str, type[Frame]] = {
    kind.__name__: kind for kind in (Job, Stop, Quit, Hello, Progress, Final, Lost)
}


def encode(frame: Frame) -> bytes:
    r"""Return the frame as one line of JSON.

    >>> encode(Quit(exit_code=99))
    b'{"frame":"Quit","exit_code":99}\n'
    """
    body = {"frame": type(frame).__name__, **_shallow(frame)}
    return json.dumps(body, separators=(",", ":"), default=_shallow).encode() + b"\n"


def _shallow(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    # dataclasses.asdict copies every bucket pair: milliseconds, in a loop that keeps time in microseconds
    return {entry.name: getattr(value, entry.name) for entry in fields(value)}


def decode(line: bytes) -> Frame:
    r"""Return the frame that a line holds.

    Raises ValueError if the line is no frame of ours.

    >>> decode(b'{"frame":"Stop","why":"Ctrl-C"}\n')
    Stop(why='Ctrl-C')
    """
    body: Any = json.loads(line)
    if not isinstance(body, dict):
        raise ValueError(f"not a frame: {body!r}")
    name = body.pop("frame", None)
    kind = FRAMES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"not a frame: {name!r}")
    try:
        if kind is Progress:
            body["tenants"] = {
                tenant: _tenant_progress(told) for tenant, told in body["tenants"].items()
            }
            body["failures"] = tuple(
                (str(t), str(o), str(s), int(n)) for t, o, s, n in body["failures"]
            )
        elif kind is Final:
            body["invalid"] = tuple(body["invalid"])
        return kind(**body)
    except (TypeError, KeyError, AttributeError) as fault:
        raise ValueError(f"bad {name} frame: {fault}") from fault


def _tenant_progress(told: dict[str, Any]) -> TenantProgress:
    pairs: dict[str, Any] = {
        key: tuple((int(bucket), int(count)) for bucket, count in told[key])
        for key in ("ttft", "itl", "tpot", "e2e")
    }
    return TenantProgress(**{**told, **pairs})


LONGEST_LINE_BYTES = 64 << 20


class Inbox:
    r"""Bytes in, frames out: holds the unfinished line between reads.

    >>> inbox = Inbox()
    >>> inbox.feed(b'{"frame":"Stop",')
    []
    >>> inbox.feed(b'"why":"end"}\n')
    [Stop(why='end')]
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes.

        Raises ValueError on a line that is no frame, or one longer than any frame can be.
        """
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise ValueError(f"a line of more than {LONGEST_LINE_BYTES} bytes is no frame")
        self._rest = bytearray(rest)
        return [decode(bytes(line)) for line in lines]
