"""A sampler process as its launcher sees it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launchers.engine import LaunchError
from reports.manifest import Gpu

READY_WITHIN_S = 60.0
END_WITHIN_S = 15.0


class Watch:
    """One ``launchers.sampler``, started; ``gpus`` and ``warnings`` are what it last told of them."""

    def __init__(
        self, name: str, words: Sequence[str], marks: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.gpus: tuple[Gpu, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self._source = "--source" in words
        self._ready = False
        self._fault: LaunchError | None = None
        self._lacking: LaunchError | None = None
        self._end: dict[str, Any] | None = None
        self._stopped = False
        self._partial = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "launchers.sampler", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, **marks},
                # a terminal's Ctrl-C is ours to take; the sampler goes on until it is told
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Return when the sampler samples.

        Raises LaunchError if its source cannot be used or it does not come up.
        """
        until_s = time.monotonic() + READY_WITHIN_S
        while not self._ready:
            alive = self._listen(0.5)
            if self._fault is not None:
                raise self._fault
            if not alive or time.monotonic() > until_s:
                raise LaunchError(
                    f"{self.name} did not start (status {self._process.poll()})",
                    "read engine/samplers.log in the run directory",
                )

    def await_gpus(self, *, within_s: float) -> None:
        """Give a memory source the time to show its GPUs; that it shows none is a warning.

        Raises LaunchError if it shows some, and they cannot be all that the engine uses.
        """
        until_s = time.monotonic() + within_s
        while self._source and (self._lacking is not None or not self.gpus):
            if not self._listen(0.1) or time.monotonic() > until_s:
                if self._lacking is not None:
                    raise self._lacking
                self.warnings += (f"{self.name} sees no GPU yet",)
                return

    def stop(self) -> str | None:
        """End the sampler and return what went wrong with it, in words. May be called twice."""
        if self._stopped:
            return None
        self._stopped = True
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        ended_before = self._process.poll()
        self._process.stdin.close()
        until_s = time.monotonic() + END_WITHIN_S
        while self._listen(0.5) and time.monotonic() < until_s:
            pass
        self._process.stdout.close()
        try:
            status = self._process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"{self.name} hung and was killed"
        if ended_before is not None or status != 0 or self._end is None:
            return f"{self.name} ended by itself with status {status}"
        if self._end["unwritten"]:
            return f"{self.name} could not write {self._end['unwritten']} samples"
        # a page that came late and lacks GPUs: what nobody watched must not pass
        return None if self._lacking is None else f"{self.name}: {self._lacking.cause}"

    def _listen(self, for_s: float) -> bool:
        """Take in what the sampler says within the time; return False when it says no more."""
        pipe = self._process.stdout
        assert pipe is not None
        if not select.select([pipe], [], [], for_s)[0]:
            return True
        chunk = os.read(pipe.fileno(), 65536)
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return bool(chunk)

    def _take(self, told: dict[str, Any]) -> None:
        event = told["event"]
        if event == "ready":
            self._ready = True
        elif event == "gpus":
            self.gpus = tuple(Gpu(**gpu) for gpu in told["gpus"])
            self.warnings = tuple(told["warnings"])
            lacking = told["lacking"]
            self._lacking = None if lacking is None else LaunchError(**lacking)
        elif event == "fault":
            self._fault = LaunchError(told["cause"], told["mend"])
        elif event == "end":
            self._end = told
