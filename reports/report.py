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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """Everything that a writer may say about one run.

    ``histograms`` hold the distributions of all latencies; ``baseline`` is the run that this one was compared
    with, if any.
    """

    verdict: Verdict
    measurements: tuple[Measurement, ...]
    manifest: Manifest
    evidence: Evidence
    run_dir: RunDir
    exit_code: int
    histograms: Mapping[HistogramKey, Histogram] = field(default_factory=dict)
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """One derived file of a run: its name in the run directory and what turns a report into its bytes."""

    file: str
    render: Callable[[Report], bytes]
