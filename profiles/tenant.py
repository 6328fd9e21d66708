"""A tenant: whose requests they are, when they come and how long they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from profiles.arrival import ArrivalField
from profiles.arrivals.poisson import Poisson
from profiles.lengths import Lengths, LengthsField
from profiles.process import Arrival
from profiles.sheet import FieldPath, Rate, Strict
from profiles.trace import Trace, TraceSheet

# which dialects there are is known above this room: loadgen.dialect
Api = Annotated[str, Field(pattern=r"^[a-z0-9_-]+$")]
Name = Annotated[str, Field(pattern="^[a-z0-9_-]{1,64}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One tenant's traffic: an open loop by ``rate_hz`` and ``arrival`` or by ``trace``, or a closed one.

    A closed loop keeps ``concurrency`` requests open and has neither. A trace has its own lengths; those here
    are its first rows', for the warm-up.
    """

    name: str
    rate_hz: float | None
    concurrency: int | None
    arrival: Arrival | None
    trace: Trace | None
    prompt_tokens: Lengths
    output_tokens: Lengths
    api: Api

    @property
    def mean_rate_hz(self) -> float:
        """The mean rate of an open loop without surges, as written in the sheet or recorded in the trace."""
        if self.trace is not None:
            return self.trace.rate_hz
        assert self.rate_hz is not None, f"{self.name} is a closed loop"
        return self.rate_hz

    @property
    def closed(self) -> bool:
        """Whether it is a closed loop."""
        return self.concurrency is not None


class TenantSheet(Strict):
    """A tenant as a sheet says it: exactly one of ``rate``, ``concurrency`` and ``trace`` (``tenant_faults``)."""

    later: ClassVar[frozenset[str]] = frozenset({"shared_prefix", "sessions", "priority"})
    rate: Annotated[Rate, Field(gt=0)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    trace: TraceSheet | None = None
    arrivals: ArrivalField = Poisson()
    prompt_tokens: LengthsField = Field(default={"median": 512, "p95": 2000}, validate_default=True)
    output_tokens: LengthsField = Field(default={"median": 128, "p95": 400}, validate_default=True)
    api: Api = "chat"


def tenant_faults(written: Mapping[str, Any]) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield (path in the tenant, fault, mend) for keys that are missing or exclude each other, whatever they hold."""
    sources = [key for key in ("rate", "concurrency", "trace") if key in written]
    if not sources:
        yield (), "no traffic: none of rate, concurrency and trace is given", "add `rate: 1/s`"
    if len(sources) > 1:
        mend = "remove the rate (a trace has `speed`)" if "trace" in sources else "keep one"
        yield (sources[0],), " and ".join(sources) + " exclude each other", mend
    if "arrivals" in written and sources and "rate" not in sources:
        fault = f"arrivals need a rate; this tenant has a {sources[0]}"
        yield ("arrivals",), fault, "remove arrivals, or give a rate instead"
    for key in ("prompt_tokens", "output_tokens"):
        if "trace" in sources and key in written:
            yield (key,), "a trace has its own lengths", "remove it, or use trace.scale"
