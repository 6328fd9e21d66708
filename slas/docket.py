"""Everything the court looks at, arranged: rows as columns where there are rows, else what is left of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slas.columns import Bools, Columns, columns_of
from slas.evidence import Evidence
from slas.measurement import Measurement, Summaries, merged
from slas.pause import pauses_of, reach_ns
from slas.quantity import Gauge, Latency, Reading
from slas.sample import BucketSample, ExactSample, Sample, sample_of
from slas.sla import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A check on the one tenant or place that its selector names or was expanded to; None is all together."""

    check: Check
    tenant: str | None
    gpu: int | None
    node: str | None

    @property
    def phase(self) -> str | None:
        """The phase that the check is about."""
        return self.check.expression.phase

    def __str__(self) -> str:
        expression = self.check.expression
        said = expression.metric.name
        if expression.statistic is not None:
            said += f".{expression.statistic.text}"
        if self.tenant is not None:
            said += f" of {self.tenant}"
        if self.gpu is not None:
            said += f" of GPU {self.gpu}"
        if self.node is not None:
            said += f" on {self.node}"
        if self.phase is not None:
            said += " in bursts" if self.phase == "burst" else " outside bursts"
        return said


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Docket:
    """The evidence of one ruling. Exactly one of ``columns`` and ``summaries`` is there."""

    evidence: Evidence
    columns: Columns | None
    summaries: Summaries | None
    _readings: dict[str, tuple[Reading, ...]] = field(default_factory=dict)

    def punctual(self) -> Docket | None:
        """Return the same evidence as if the instrument had sent on time; None without rows."""
        return None if self.columns is None else self._of(self.columns.punctual())

    def undisturbed(self, from_ns: int) -> Docket | None:
        """Return the evidence as if the instrument had sent and, from ``from_ns`` on, read on time; None without rows."""
        if self.columns is None:
            return None
        read_late_ns = reach_ns(self.columns, pauses_of(self.evidence, from_ns))
        return self._of(replace(self.columns.punctual(), read_late_ns=read_late_ns))

    def patient(self, reach_ns: int) -> Docket | None:
        """Return the evidence as if what was given up on within ``reach_ns`` was never due; None without rows."""
        if self.columns is None:
            return None
        return self.only(self.columns.measured & ~self.columns.hasty(reach_ns))

    def prompt(self, reach_ns: int) -> Docket | None:
        """Return the evidence as if all that was due in the window, those given up on too, came in it; None without rows."""
        if self.columns is None:
            return None
        return self._of(self.columns.answered_in_window(self.columns.hasty(reach_ns)))

    def only(self, chosen: Bools) -> Docket:
        """Return the evidence as if the chosen requests were those of the measured window; there must be rows."""
        assert self.columns is not None
        return self._of(replace(self.columns, measured=chosen))

    def _of(self, columns: Columns) -> Docket:
        return Docket(
            evidence=self.evidence, columns=columns, summaries=None, _readings=self._readings
        )

    def exact(self, latency: Latency, target: Target) -> ExactSample | None:
        """Return the latencies that a target is about, from rows; None if there are no rows."""
        if self.columns is None:
            return None
        chosen = self.columns.where(tenant=target.tenant, phase=target.phase)
        return sample_of(self.columns, latency, chosen)

    def sample(self, latency: Latency, target: Target) -> Sample | str:
        """Return the latencies that a target is about, or in words why there is nothing to tell them from."""
        exact = self.exact(latency, target)
        if exact is not None:
            return exact
        kept = self.measurement(latency.name, target)
        assert self.summaries is not None
        if kept is None:
            return "neither rows nor measurements hold it"
        histogram = merged(
            self.summaries.histograms, latency.name, tenant=target.tenant, phase=target.phase
        )
        sample = BucketSample(histogram, kept.count, kept.failed)
        if latency.in_goodput is None and sample.size != kept.count:
            return (
                f"its histograms hold {histogram.total:,} latencies and its measurements"
                f" {kept.count - kept.failed:,}: one of the files is damaged"
            )
        return sample

    def measurement(self, metric: str, target: Target) -> Measurement | None:
        """Return what the summaries measured where a target looks, over all runs."""
        if self.summaries is None:
            return None
        for kept in self.summaries.measurements:
            if (
                kept.metric == metric
                and kept.run is None
                and kept.tenant == target.tenant
                and kept.phase == target.phase
            ):
                return kept
        return None

    def readings(self, gauge: Gauge) -> tuple[Reading, ...]:
        """Return a gauge's readings, read once."""
        if gauge.name not in self._readings:
            self._readings[gauge.name] = gauge.read(self.evidence)
        return self._readings[gauge.name]

    def places(self) -> tuple[tuple[str, int], ...]:
        """Return every (node, GPU) that was watched."""
        return tuple(sorted({(sample.node, sample.gpu) for sample in self.evidence.memory}))


def docket_of(evidence: Evidence, summaries: Summaries | None) -> Docket:
    """Arrange the evidence; summaries count only where there were rows and are none."""
    if evidence.rows or summaries is None or not _expects_rows(evidence):
        return Docket(evidence=evidence, columns=columns_of(evidence), summaries=None)
    return Docket(evidence=evidence, columns=None, summaries=summaries)


def _expects_rows(evidence: Evidence) -> bool:
    return bool(evidence.closed_loop) or any(any(span.planned.values()) for span in evidence.runs)
