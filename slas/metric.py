"""Every metric that a promise can be made about, by name.

To add one: write its ``Latency``, ``Ratio``, ``Rate`` or ``Gauge`` (``slas.quantity``) in a file under
``metrics/`` and name it here; from outside, in an entry point of the group ``tailgate.metrics``.
"""

from __future__ import annotations

from functools import cache

from profiles.shelf import ShelfError, shelve
from slas.metrics import engine, latency, memory, ratio, throughput
from slas.quantity import Gauge, Latency, Metric, Rate, Ratio

METRICS: dict[str, Metric] = {
    "ttft": latency.TTFT,
    "ttfo": latency.TTFO,
    "itl": latency.ITL,
    "stall": latency.STALL,
    "tpot": latency.TPOT,
    "e2e": latency.E2E,
    "lateness": latency.LATENESS,
    "service.ttft": latency.SERVICE_TTFT,
    "service.ttfo": latency.SERVICE_TTFO,
    "service.e2e": latency.SERVICE_E2E,
    "error_rate": ratio.ERROR_RATE,
    "rejections": ratio.REJECTIONS,
    "goodput": ratio.GOODPUT,
    "throughput.requests": throughput.REQUESTS,
    "throughput.output_tokens": throughput.OUTPUT_TOKENS,
    "throughput.total_tokens": throughput.TOTAL_TOKENS,
    "vram.peak": memory.PEAK,
    "vram.steady": memory.STEADY,
    "vram.spike": memory.SPIKE,
    "vram.growth": memory.GROWTH,
    "kv.peak": engine.KV_PEAK,
    "preemptions": engine.PREEMPTIONS,
    "queue.peak": engine.QUEUE_PEAK,
    "queue.time": engine.QUEUE_TIME,
}

PLANNED = frozenset(
    {
        "cost.per_request",
        "cost.per_million_output_tokens",
        "cost.idle_vram",
        "energy.per_token",
        "tokens_per_joule",
        "scaling.efficiency",
    }
)
"""Names that are spoken for and refused as not yet supported."""

GROUP = "tailgate.metrics"


@cache
def metrics() -> dict[str, Metric]:
    """Return the metrics of tailgate and of installed packages.

    Raises ShelfError if a name is taken, or if an entry point cannot be loaded or is no metric of that name.
    """
    known = shelve(METRICS, GROUP)
    for name, metric in known.items():
        if not isinstance(metric, Latency | Ratio | Rate | Gauge) or metric.name != name:
            raise ShelfError(f"{GROUP}: {name!r} names {metric!r}, which is no metric of that name")
    return known
