"""A process that does nothing but look: GPU memory, or the engine's metrics page, at absolute ticks.

    python -P -m launchers.sampler memory  --out FILE --every-ns N --node NAME --source nvml|dcgm [--url URL] ...
    python -P -m launchers.sampler metrics --out FILE --every-ns N --url URL

In a process of its own, since a thread beside a busy one loses most of its ticks. Standard output has one JSON
object a line: ``ready``, ``gpus {gpus, warnings, lacking}`` whenever more is known of them, ``fault {cause, mend}``
and at last ``end {sweeps, failed, missed, unwritten, ...}``. It ends at the end of standard input, and on SIGTERM and SIGINT.
A tick that came too late is skipped: the gap between two samples is longer than the interval.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from launchers.choice import Order, SourceError
from launchers.fetch import UnreachableError, fetch
from launchers.memory import SOURCES, MemorySource
from launchers.scrape import Scrape, says_something
from reports.fault import WriteError
from reports.samples import ENGINE, MEMORY, Sample, SampleWriter
from slas.evidence import EngineSample, MemorySample

SECOND_NS = 1_000_000_000
SCRAPE_WITHIN_S = 5.0
PAGE_WITHIN_S = 5.0
# two looks, the one under way and the last, are over before the launcher takes the sampler for hung
LONGEST_LOOK_S = 7.0


class Job(Protocol):
    """What is looked at. ``look`` returns what one look gave, None if it gave nothing."""

    def look(self) -> tuple[Sample, ...] | None:
        """Return the samples of one tick."""
        ...

    def close(self) -> None:
        """Let go of what is looked at."""
        ...


class MemoryJob:
    """One memory source; tells of its GPUs as soon as they are known."""

    def __init__(self, source: MemorySource, node: str) -> None:
        self._source = source
        self._node = node
        self._told: dict[str, object] = {}
        self._tell()

    def look(self) -> tuple[Sample, ...] | None:
        """Return one sample a GPU, with the stamps before and after the sweep."""
        before_ns = time.monotonic_ns()
        try:
            readings = self._source.sweep()
        except UnreachableError:
            return None
        after_ns = time.monotonic_ns()
        self._tell()
        return tuple(
            MemorySample(
                before_ns=before_ns,
                after_ns=after_ns,
                node=self._node,
                gpu=reading.gpu,
                used_bytes=reading.used_bytes,
                total_bytes=reading.total_bytes,
                why=reading.why,
            )
            for reading in readings
        )

    def close(self) -> None:
        """Let go of the source."""
        self._source.close()

    def _tell(self) -> None:
        lacking = self._source.lacking
        facts: dict[str, object] = {
            "gpus": [asdict(gpu) for gpu in self._source.gpus()],
            "warnings": self._source.warnings,
            "lacking": lacking and {"cause": lacking.cause, "mend": lacking.mend},
        }
        if facts != self._told and (facts["gpus"] or lacking):
            self._told = facts
            _say("gpus", **facts)


class MetricsJob:
    """One metrics page. Before it was ever read a silence is no sample; after that it is one of Nones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._scrape = Scrape()
        self._seen = False

    def look(self) -> tuple[Sample, ...] | None:
        """Return the page's sample, stamped when it was answered."""
        try:
            reply = fetch(self._url, within_s=SCRAPE_WITHIN_S)
            text = reply.body.decode("utf-8", "replace") if reply.status == 200 else ""
        except UnreachableError:
            text = ""
        sample: EngineSample = self._scrape.read(text, time.monotonic_ns())
        self._seen = self._seen or says_something(sample)
        return (sample,) if self._seen else None

    def close(self) -> None:
        """Nothing is held between looks."""


def next_tick(start_ns: int, every_ns: int, tick: int, now_ns: int) -> int:
    """Return the tick to wait for after ``tick``: the next one that is not past.

    >>> next_tick(0, 100, 3, 301), next_tick(0, 100, 3, 650), next_tick(0, 100, 3, 700)
    (4, 7, 7)
    """
    return max(tick + 1, -(-(now_ns - start_ns) // every_ns))


@dataclass(slots=True, kw_only=True)
class Tally:
    """How the looking went: looks, those that gave nothing, ticks skipped, samples not on disk."""

    sweeps: int = 0
    failed: int = 0
    missed: int = 0
    unwritten: int = 0
    longest_sweep_ns: int = 0


def sample(
    job: Job, writer: SampleWriter, every_ns: int, stopped: Callable[[float], bool]
) -> Tally:
    """Look at every tick until ``stopped`` (which waits that many seconds) says so, and once more at the end."""
    tally = Tally()
    start_ns = flushed_ns = time.monotonic_ns()
    tick = 0
    last = False
    while True:
        began_ns = time.monotonic_ns()
        samples = job.look()
        now_ns = time.monotonic_ns()
        tally.sweeps += 1
        tally.longest_sweep_ns = max(tally.longest_sweep_ns, now_ns - began_ns)
        if samples is None:
            tally.failed += 1
        else:
            writer.append(samples)
        if last:
            break
        if now_ns - flushed_ns >= SECOND_NS or every_ns >= SECOND_NS:
            flushed_ns = now_ns
            with contextlib.suppress(WriteError):  # kept, and tried again at the next flush
                writer.flush()
        following = next_tick(start_ns, every_ns, tick, now_ns)
        tally.missed += following - tick - 1
        tick = following
        wait_ns = start_ns + tick * every_ns - time.monotonic_ns()
        last = stopped(max(0, wait_ns) / SECOND_NS)
    try:
        writer.close()
    except WriteError as fault:
        tally.unwritten = fault.lost
    return tally


class Ending:
    """Standard input's end or a signal, waited for between two ticks."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        os.write(self._write, b"x")

    def wait(self, for_s: float) -> bool:
        """Wait that long; return True if the end has come."""
        until_s = time.monotonic() + for_s
        while True:
            left_s = max(0.0, until_s - time.monotonic())
            readable, _, _ = select.select([0, self._read], [], [], left_s)
            if self._read in readable or (0 in readable and not os.read(0, 4096)):
                return True
            if not readable:
                return False


def main(words: Sequence[str] | None = None) -> int:
    """Sample until told to end; return 1 if the source cannot be used."""
    parser = argparse.ArgumentParser(prog="launchers.sampler")
    parser.add_argument("job", choices=("memory", "metrics"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every-ns", type=int, required=True)
    parser.add_argument("--node", default="")
    parser.add_argument("--source", choices=tuple(SOURCES))
    parser.add_argument("--url")
    parser.add_argument("--visible")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--gpus", type=_numbers, default=())
    asked = parser.parse_args(words)
    ending = Ending()
    job: Job
    try:
        if asked.job == "memory":
            order = Order(
                node=asked.node,
                url=asked.url,
                gpus=asked.gpus,
                visible=asked.visible,
                first=asked.first,
                least=asked.least,
                # a slow page costs ticks, which show as gaps; no page at all costs the sample
                within_s=min(max(PAGE_WITHIN_S, asked.every_ns / SECOND_NS), LONGEST_LOOK_S),
            )
            job = MemoryJob(SOURCES[asked.source](order), asked.node)
            header = {"node": asked.node, "source": asked.source, "every_ns": asked.every_ns}
            writer = SampleWriter(asked.out, MEMORY, header)
        else:
            job = MetricsJob(asked.url)
            writer = SampleWriter(asked.out, ENGINE, {"every_ns": asked.every_ns})
    except SourceError as fault:
        _say("fault", cause=fault.cause, mend=fault.mend)
        return 1
    except WriteError as fault:
        _say("fault", cause=f"{fault.path}: {fault.fault}", mend=fault.mend)
        return 1
    _say("ready")
    tally = sample(job, writer, asked.every_ns, ending.wait)
    job.close()
    _say("end", **asdict(tally))
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _say(event: str, **facts: object) -> None:
    try:
        sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever listened is gone, and the end of standard input says the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
