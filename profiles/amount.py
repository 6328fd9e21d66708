"""How much a profile plans, known before anything of it is drawn: what would never end is refused."""

from __future__ import annotations

from collections.abc import Mapping

from profiles.tenant import Tenant
from profiles.trace import MOST_ROWS

# a schedule is unrolled several times before a run and once in every generator, at some microseconds a request
MOST_REQUESTS = MOST_ROWS
MOST_RATE_HZ = 1_000_000
# so many requests of every closed-loop slot are drawn ahead, for the schedule's hash
LOOP_DRAWS = 64


def draws(tenant: Tenant, warmup_ns: int, length_ns: float) -> float:
    """Return the expected number of draws for a tenant whose clock runs ``length_ns`` over the measured window.

    A request is one, and so is a spell of an arrival model with states. Of a trace it is the warm-up's: its rows
    are counted when it is read.
    """
    if tenant.concurrency is not None:
        return tenant.concurrency * LOOP_DRAWS
    warmup = tenant.mean_rate_hz * warmup_ns / 1e9
    if tenant.arrival is None:
        return warmup
    return warmup + tenant.arrival.draws(tenant.mean_rate_hz, length_ns / 1e9)


def excess(
    tenant: Tenant, warmup_ns: int, duration_ns: int, length_ns: float
) -> tuple[str, str, str] | None:
    """Return (field, fault, mend) if a tenant alone plans more than can be unrolled."""
    limit = f"{MOST_REQUESTS:,} can be planned"
    if tenant.concurrency is not None:
        return None  # the sheet bounds it
    traced, rate_hz = tenant.trace is not None, tenant.mean_rate_hz
    field = "trace" if traced else "rate"
    if rate_hz > MOST_RATE_HZ:
        mend = "replay more of the trace, or more slowly (`speed`)" if traced else "lower it"
        return field, f"a mean rate of {rate_hz:.3g}/s, more than {MOST_RATE_HZ:,}/s", mend
    plain = draws(tenant, warmup_ns, duration_ns)
    if plain > MOST_REQUESTS:
        mend = "shorten `warmup`" if traced else "lower it, or shorten `warmup` and `duration`"
        if tenant.arrival is not None and tenant.arrival.has_states:
            mend += ", or lengthen the spells of `arrivals`"
        return field, f"about {plain:,.0f} requests and spells, and {limit}", mend
    surged = draws(tenant, warmup_ns, length_ns)
    if surged > MOST_REQUESTS:
        return (
            field,
            f"about {surged:,.0f} requests under the surges, and {limit}",
            "lower `factor`",
        )
    return None


def total(tenants: Mapping[str, float]) -> str | None:
    """Return what is wrong with the draws of all tenants together, by name; None if they can be planned."""
    planned = sum(tenants.values())
    if planned <= MOST_REQUESTS:
        return None
    return f"about {planned:,.0f} requests in all, and {MOST_REQUESTS:,} can be planned"
