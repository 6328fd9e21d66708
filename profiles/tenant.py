"""A tenant: whose requests they are, when they come and how long they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from profiles.arrival import ArrivalField
from profiles.arrivals.poisson import Poisson
from profiles.lengths import Lengths, LengthsField
from profiles.process import Arrival
from profiles.sheet import Rate, RefusalError, Strict
from profiles.trace import Trace, TraceSheet

Api = Literal["chat", "completions"]
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
    """A tenant as a sheet says it: exactly one of ``rate``, ``concurrency`` and ``trace``."""

    later: ClassVar[frozenset[str]] = frozenset({"shared_prefix", "sessions", "priority"})
    rate: Annotated[Rate, Field(gt=0)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    trace: TraceSheet | None = None
    arrivals: ArrivalField = Poisson()
    prompt_tokens: LengthsField = Field(default={"median": 512, "p95": 2000}, validate_default=True)
    output_tokens: LengthsField = Field(default={"median": 128, "p95": 400}, validate_default=True)
    api: Api = "chat"

    @model_validator(mode="after")
    def _one_source(self) -> TenantSheet:
        sources = [
            key for key in ("rate", "concurrency", "trace") if getattr(self, key) is not None
        ]
        if not sources:
            raise RefusalError(
                "no traffic: none of rate, concurrency and trace is given", "add `rate: 1/s`"
            )
        if len(sources) > 1:
            mend = "remove the rate (a trace has `speed`)" if "trace" in sources else "keep one"
            raise RefusalError(" and ".join(sources) + " exclude each other", mend, (sources[0],))
        if "arrivals" in self.model_fields_set and self.rate is None:
            fault = f"arrivals need a rate; this tenant has a {sources[0]}"
            raise RefusalError(fault, "remove arrivals, or give a rate instead", ("arrivals",))
        for key in ("prompt_tokens", "output_tokens"):
            if self.trace is not None and key in self.model_fields_set:
                mend = "remove it, or use trace.scale"
                raise RefusalError("a trace has its own lengths", mend, (key,))
        return self
