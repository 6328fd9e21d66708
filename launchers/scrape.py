"""An engine's own metrics: the Prometheus text format, and what of it a run keeps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slas.evidence import EngineSample

_SERIES = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s{}]+)(?:\s+-?\d+)?"
)
_LABEL = re.compile(r'\s*(?P<key>[a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


def series(text: str) -> Iterator[Series]:
    r"""Yield the series of a page in the Prometheus text format; a line that is none is left out.

    >>> [s.value for s in series('# HELP x y\nx{a="1",b="\\"2"} 3.5 1700000000\nx 1e3\n')]
    [3.5, 1000.0]
    """
    for line in text.splitlines():
        found = _SERIES.fullmatch(line.strip())
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        yield Series(name=found["name"], labels=_labels(found["labels"] or ""), value=value)


def _labels(text: str) -> dict[str, str]:
    labels = {}
    # one after the other from the start: a search would look through a page of blanks from each of them
    found = _LABEL.match(text)
    while found is not None:
        labels[found["key"]] = _ESCAPE.sub(_unescaped, found["value"])
        found = _LABEL.match(text, found.end())
    return labels


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


KV_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
RUNNING = ("vllm:num_requests_running",)
WAITING = ("vllm:num_requests_waiting",)
PREEMPTIONS = ("vllm:num_preemptions_total", "vllm:num_preemptions")
QUEUE_SUM = ("vllm:request_queue_time_seconds_sum",)
QUEUE_COUNT = ("vllm:request_queue_time_seconds_count",)
KEPT = frozenset((*KV_USAGE, *RUNNING, *WAITING, *PREEMPTIONS, *QUEUE_SUM, *QUEUE_COUNT))


class Scrape:
    """Turns metrics pages of one engine, read in order, into samples.

    Of several engine processes the fullest KV cache counts, and requests and counters add up. The newest of
    a metric's names that the page has is read. A counter that falls was set back by a restart: it goes on from
    where it was, so that a sample never holds less than the one before.
    """

    def __init__(self) -> None:
        self._raw: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._base: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def read(self, text: str, at_ns: int) -> EngineSample:
        """Return the sample of a page that was answered at ``at_ns``; None for what it does not say.

        A metric of which one series is no amount (NaN, infinite, negative) says nothing: the sum of the others
        would be too little.
        """
        page: dict[str, list[Series]] = {}
        for one in series(text):
            if one.name in KEPT:
                page.setdefault(one.name, []).append(one)
        usage = _newest(page, KV_USAGE)
        return EngineSample(
            at_ns=at_ns,
            kv_usage_share=max((one.value for one in usage), default=None),
            running=_sum(_newest(page, RUNNING)),
            waiting=_sum(_newest(page, WAITING)),
            preemptions=self._count(_newest(page, PREEMPTIONS)),
            queue_seconds_sum=self._count(_newest(page, QUEUE_SUM)),
            queue_seconds_count=self._count(_newest(page, QUEUE_COUNT)),
        )

    def _count(self, counters: list[Series]) -> float | None:
        if not counters:
            return None
        for one in counters:
            key = (one.name, tuple(sorted(one.labels.items())))
            before = self._raw.get(key, 0.0)
            if one.value < before:
                self._base[key] = self._base.get(key, 0.0) + before
            self._raw[key] = one.value
        name = counters[0].name
        return sum(
            value + self._base.get(key, 0.0) for key, value in self._raw.items() if key[0] == name
        )


def says_something(sample: EngineSample) -> bool:
    """Say whether a page had any metric that is kept."""
    return any(
        value is not None
        for value in (sample.kv_usage_share, sample.running, sample.waiting, sample.preemptions)
    )


def _newest(page: Mapping[str, list[Series]], names: tuple[str, ...]) -> list[Series]:
    found = next((page[name] for name in names if name in page), [])
    return found if all(0 <= one.value < math.inf for one in found) else []


def _sum(gauges: list[Series]) -> float | None:
    return sum(one.value for one in gauges) if gauges else None
