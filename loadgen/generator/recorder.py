"""Rows and health samples on their way to disk, in slices small enough for an event loop that keeps time."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

from loadgen.frames import Job
from loadgen.generator.exchange import Exchange, row
from loadgen.generator.health import between, look
from loadgen.generator.progress import Second
from reports.fault import WriteError
from reports.rows import RowWriter, row_line
from reports.rundir import RunDir
from reports.samples import HEALTH, SampleWriter
from slas.evidence import HealthSample


class Recorder:
    """One lane's rows and health samples; what cannot be written stays pending, and is tried again with the next second.

    Lines are made in slices by the event loop. A second's lines are squeezed and written by a thread, where
    zlib and the file system let go of the interpreter.
    Raises WriteError if the files cannot be made.
    """

    def __init__(self, job: Job, *, warmup_ns: int, second: Second) -> None:
        run_dir = RunDir(Path(job.run_dir))
        header = {"worker": job.worker, "lane": job.lane}
        self._run = job.run
        self._start_ns = job.start_ns
        self._warmup_ns = warmup_ns
        self._second = second
        self._ended: deque[Exchange] = deque()
        self._lines: list[bytes] = []
        self._samples: list[HealthSample] = []
        self._rows = RowWriter(run_dir.rows_of(job.worker, job.lane), header)
        self._health = SampleWriter(run_dir.health_of(job.worker, job.lane), HEALTH, header)
        self._thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="recorder", initializer=_stand_back
        )
        self._writing: asyncio.Future[None] | None = None
        self._host = look()
        self.rows = 0
        self._faults: dict[Path, str] = {}

    def add(self, exchange: Exchange) -> None:
        """Take an exchange that has ended."""
        self._ended.append(exchange)

    def work(self, until_ns: int) -> bool:
        """Make rows until the clock reads ``until_ns``; return true if more are waiting."""
        while self._ended:
            if monotonic_ns() >= until_ns:
                return True
            self._make(self._ended.popleft())
        return False

    def _make(self, exchange: Exchange) -> None:
        made = row(exchange, run=self._run, start_ns=self._start_ns, warmup_ns=self._warmup_ns)
        self._second.end(made)
        self._lines.append(row_line(made))
        self.rows += 1

    def flush(self, sample: HealthSample) -> None:
        """Send a second's lines and its health sample to disk; what the host did is filled in on the way.

        While the disk is still at the last second, they wait for the next.
        """
        self._samples.append(sample)
        if self._writing is not None:
            if not self._writing.done():
                return
            self._writing.result()
        lines, self._lines = self._lines, []
        samples, self._samples = self._samples, []
        self._writing = asyncio.get_running_loop().run_in_executor(
            self._thread, self._write, lines, samples
        )

    def _write(self, lines: list[bytes], samples: list[HealthSample]) -> None:
        """Runs in the thread, one call at a time."""
        self._keep(lines, samples)
        for writer in (self._rows, self._health):
            self._try(writer, writer.flush)

    def _keep(self, lines: list[bytes], samples: list[HealthSample]) -> None:
        host = look()
        wait_ns, steal_share = between(self._host, host)
        self._host = host
        self._rows.append(lines)
        self._health.append(
            replace(sample, run_queue_ns=wait_ns, steal_share=steal_share) for sample in samples
        )

    def _try(self, writer: RowWriter | SampleWriter, write: Callable[[], None]) -> None:
        """Write, and keep in mind whether this writer's lines are all on disk now."""
        try:
            write()
        except WriteError as fault:
            self._faults[writer.path] = str(fault).replace("\n  mend:", "; mend:")
        else:
            self._faults.pop(writer.path, None)

    @property
    def faults(self) -> tuple[str, ...]:
        """Why lines are not on disk, a reason a file; nothing if all are."""
        return tuple(self._faults.values())

    async def close(self) -> None:
        """Write everything that is left and close the files; ``rows`` is then what the lane has made."""
        if self._writing is not None:
            await self._writing
        self.close_now()

    def close_now(self) -> None:
        """Do the same without the event loop, when there is no time left."""
        while self._ended:
            self._make(self._ended.popleft())
        self._thread.shutdown(wait=True)
        self._keep(self._lines, self._samples)
        for writer in (self._rows, self._health):
            self._try(writer, writer.close)


def _stand_back() -> None:
    """Give up a real-time priority that this thread inherited: it must not hold up the event loop."""
    if os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR}:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
