"""The run that a candidate is compared with, and whether the two compare at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slas.evidence import Subject
from slas.histogram import Histogram
from slas.measurement import HistogramKey, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A stored run: what was tested, and enough of what was measured for any percentile to be read again.

    ``quick`` runs are never accepted; ``whole`` is false for a run that was cut or was INVALID.
    """

    name: str
    subject: Subject
    runs: int
    measurements: tuple[Measurement, ...]
    histograms: Mapping[HistogramKey, Histogram] = field(default_factory=dict)
    quick: bool = False
    whole: bool = True
    simulated: bool = False
