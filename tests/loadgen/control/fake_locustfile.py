"""loadgen/locustfile.py with fakes behind it: the fake generator, and a fake tailgate to summon."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from locust.stats import RequestStats

from loadgen.control import crew, sitting, statistics
from loadgen.frames import Progress

crew.GENERATOR = (sys.executable, str(Path(__file__).with_name("fake_generator.py")))
sitting.TAILGATE = (sys.executable, str(Path(__file__).with_name("fake_tailgate.py")))
crew.SILENCE_S = int(os.environ.get("FAKE_SILENCE_S", crew.SILENCE_S))
if "FAKE_BUG" in os.environ:

    def record(stats: RequestStats, progress: Progress) -> None:
        raise KeyError(os.environ["FAKE_BUG"], stats, progress)

    statistics.record = record

from loadgen.locustfile import *  # noqa: E402, F403  # after the fakes are in their places
