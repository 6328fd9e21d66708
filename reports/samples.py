"""Samples on disk: GPU memory, the engine's metrics and the generators' health, a line a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from reports.fault import FormatError
from reports.members import MemberReader, MemberWriter, compact
from slas.evidence import EngineSample, HealthSample, MemorySample

Sample = MemorySample | EngineSample | HealthSample
S = TypeVar("S", bound=MemorySample | EngineSample | HealthSample)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKind(Generic[S]):
    """How one kind of sample is named in its file's header and made from a stored object."""

    kind: str
    sample: type[S]
    make: Callable[[Mapping[str, Any]], S]


def _integers(stored: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if type(stored[name]) is not int:
            raise ValueError(f"{name} is {stored[name]!r}, no integer")


def _memory(stored: Mapping[str, Any]) -> MemorySample:
    _integers(stored, "before_ns", "after_ns", "gpu")
    return MemorySample(**stored)


def _engine(stored: Mapping[str, Any]) -> EngineSample:
    _integers(stored, "at_ns")
    return EngineSample(**stored)


def _health(stored: Mapping[str, Any]) -> HealthSample:
    _integers(stored, "run", "at_ns")
    if not set(map(type, stored["loop_lag_ns"])) <= {int}:
        raise ValueError("loop_lag_ns holds something that is no integer")
    return HealthSample(**{**stored, "loop_lag_ns": tuple(stored["loop_lag_ns"])})


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
            except (KeyError, TypeError, ValueError) as fault:
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
