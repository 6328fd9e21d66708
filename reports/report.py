"""A finished run as its writers get it: the verdict, the numbers and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reports.manifest import Manifest
from reports.rundir import RunDir
from slas.evidence import Evidence
from slas.histogram import Histogram
from slas.measurement import HistogramKey, Measurement
from slas.regression import Baseline
from slas.ruling import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledBy:
    """The SLA that the rulings of a report rest on, which need not be the one that the run was started with.

    ``sla`` is its path, ``sha256`` that of its bytes. ``again`` is when a stored run was ruled on again (ISO 8601,
    UTC); None for the ruling at the end of the run itself.
    """

    sla: str
    sha256: str
    again: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """Everything that a writer may say about one run.

    ``histograms`` hold the distributions of all latencies; ``baseline`` is the run that this one was compared
    with, if any; ``ruled_by`` is None where nobody said which sheet it was ruled by; ``doubts`` are what
    ``reports.rundir.doubts`` found of the run's directory.
    """

    verdict: Verdict
    measurements: tuple[Measurement, ...]
    manifest: Manifest
    evidence: Evidence
    run_dir: RunDir
    exit_code: int
    histograms: Mapping[HistogramKey, Histogram] = field(default_factory=dict)
    baseline: Baseline | None = None
    ruled_by: RuledBy | None = None
    doubts: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the run, the state of its directory and the court warn of, each once."""
        said = (*self.manifest.warnings, *self.doubts, *self.verdict.warnings)
        return tuple(dict.fromkeys(said))


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One derived file of a run: its name in the run directory and what turns a report into its bytes.

    ``render`` is a pure function of the report. Of a simulated run it must say the word "simulated" wherever its
    format has room for a word, so that nobody takes its numbers for those of a real engine.
    """

    file: str
    render: Callable[[Report], bytes]
