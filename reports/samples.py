"""Samples on disk: GPU memory, the engine's metrics and the generators' health, a line a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from reports.fault import FormatError
from reports.members import MemberReader, MemberWriter, compact
from reports.shape import COUNT, LIST, MOST, NUMBER, STAMP, TEXT, Shape, integers
from slas.evidence import EngineSample, HealthSample, MemorySample

Sample = MemorySample | EngineSample | HealthSample
S = TypeVar("S", bound=MemorySample | EngineSample | HealthSample)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKind(Generic[S]):
    """How one kind of sample is named in its file's header and made from a stored object."""

    kind: str
    sample: type[S]
    make: Callable[[Mapping[str, Any]], S]


_MEMORY = Shape(
    {
        "before_ns": STAMP,
        "after_ns": STAMP,
        "node": TEXT,
        "gpu": COUNT,
        "used_bytes": COUNT.or_null(),
        "total_bytes": COUNT.or_null(),
        "why": TEXT.or_null(may_lack=True),
    }
)
_ENGINE = Shape(
    {
        "at_ns": STAMP,
        "kv_usage_share": NUMBER.or_null(),
        "running": NUMBER.or_null(),
        "waiting": NUMBER.or_null(),
        "preemptions": NUMBER.or_null(),
        "queue_seconds_sum": NUMBER.or_null(may_lack=True),
        "queue_seconds_count": NUMBER.or_null(may_lack=True),
    }
)
_HEALTH = Shape(
    {
        "run": COUNT,
        "lane": TEXT,
        "at_ns": STAMP,
        "loop_lag_ns": LIST,
        "events": COUNT,
        "reads": COUNT,
        "in_flight": COUNT,
        "run_queue_ns": STAMP.or_null(),
        "steal_share": NUMBER.or_null(),
    }
)


def _memory(stored: Mapping[str, Any]) -> MemorySample:
    return MemorySample(**_MEMORY.read(stored))


def _engine(stored: Mapping[str, Any]) -> EngineSample:
    return EngineSample(**_ENGINE.read(stored))


def _health(stored: Mapping[str, Any]) -> HealthSample:
    fields = _HEALTH.read(stored)
    lag_ns = integers("loop_lag_ns", fields.pop("loop_lag_ns"), least=-MOST)
    return HealthSample(loop_lag_ns=lag_ns, **fields)


MEMORY = SampleKind(kind="memory", sample=MemorySample, make=_memory)
ENGINE = SampleKind(kind="engine", sample=EngineSample, make=_engine)
HEALTH = SampleKind(kind="health", sample=HealthSample, make=_health)


class SampleWriter(MemberWriter):
    """Appends samples of one kind (MEMORY, ENGINE or HEALTH) to one file.

    Raises WriteError if the file system refuses; see MemberWriter.
    """

    __slots__ = ()

    def __init__(self, path: Path, kind: SampleKind[Any], header: Mapping[str, object]) -> None:
        super().__init__(path, kind.kind, header)

    def append(self, samples: Iterable[bytes | Sample]) -> None:
        """Keep the samples for the next flush."""
        super().append(
            sample if isinstance(sample, bytes) else compact(asdict(sample)) for sample in samples
        )


class SampleReader(Generic[S]):
    """The samples of one file, in the order written; ``torn`` counts what was cut off, after the iteration."""

    def __init__(self, path: Path, kind: SampleKind[S]) -> None:
        self._stored = MemberReader(path, kind.kind)
        self._kind = kind

    @property
    def torn(self) -> int:
        """Members or lines that could not be read."""
        return self._stored.torn

    def __iter__(self) -> Iterator[S]:
        for number, stored in enumerate(self._stored, start=2):
            try:
                yield self._kind.make(stored)
            except ValueError as fault:
                raise FormatError(
                    self._stored.path,
                    f"line {number} is no {self._kind.kind} sample: {fault}",
                    "the file was changed after it was written; measure again",
                ) from fault


def read_samples(path: Path, kind: SampleKind[S]) -> Iterator[S]:
    """Yield the samples of one file; whole lines before a torn tail are read.

    Raises FormatError if the file is of another kind, damaged by hand, or of a newer format.
    """
    return iter(SampleReader(path, kind))
