"""``report.html``: one self-contained page to show around; no script, and nothing is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from profiles.units import format_bytes, format_duration
from reports import wording
from reports.figures import CURVES, Promise, percentile_figure, promises, timeline_figure
from reports.report import Report, Writer
from reports.timeline import timelines
from slas.columns import columns_of
from slas.histogram import Histogram
from slas.measurement import Measurement
from slas.ruling import CheckRuling, Ruling

COLUMNS = (
    ("TTFT p50", "ttft", "p50"),
    ("TTFT p99", "ttft", "p99"),
    ("ITL p50", "itl", "p50"),
    ("ITL p99", "itl", "p99"),
    ("E2E p50", "e2e", "p50"),
    ("E2E p99", "e2e", "p99"),
    ("output tokens", "throughput.output_tokens", "mean"),
)
SPIKE_NS = 100_000_000
NOT_RULED_BY = "; the run's own, which this report was not ruled by"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """A check as the page shows it.

    ``because`` is None where the row says it all, ``mend`` a label and its words, ``bar_percent`` the length of the
    bar; None where there is no share.
    """

    check: CheckRuling
    because: str | None
    mend: tuple[str, str] | None
    whom: str
    measured: str
    bounds: str | None
    limit: str
    used: str
    bar_percent: float | None
    counts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberLine:
    """A row of the table of numbers: requests, failures and the latencies of a tenant, a phase or a run."""

    name: str
    part: str
    requests: str
    failed: str
    cells: tuple[str, ...]


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("reports", "writers"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(report: Report) -> bytes:
    """Return the page. Words of servers, sheets and hosts are escaped; images are inline SVG."""
    agreed = promises(report.verdict.checks)
    lines = (
        []
        if not report.evidence.rows
        else list(timelines(report.evidence, columns_of(report.evidence)))
    )
    verdict = report.verdict
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            verdict=verdict,
            manifest=report.manifest,
            exit_code=report.exit_code,
            word=wording.word(report),
            marks=wording.marks(report),
            headline=wording.headline(report),
            reasons=wording.reasons(report),
            tally=wording.tally(verdict.checks),
            broken=[
                _check_line(check, wording.why(check, verdict), wording.way_out(check, verdict))
                for check in wording.by_weight(verdict.checks)
                if check.ruling is not Ruling.PASS
            ],
            kept=[
                _check_line(check, None, None)
                for check in wording.by_weight(verdict.checks)
                if check.ruling is Ruling.PASS
            ],
            facts=_facts(report),
            warnings=wording.warnings(report),
            timelines=[(line.run, timeline_figure(line, agreed)) for line in lines],
            bin_s=max((line.bin_s for line in lines), default=1),
            percentiles=_percentiles(report, agreed),
            columns=[name for name, _, _ in COLUMNS],
            numbers=_numbers(report),
            measured_so=_how(report),
        )
    )
    return page.encode("utf-8", "replace")


def _check_line(check: CheckRuling, because: str | None, mend: tuple[str, str] | None) -> CheckLine:
    share = wording.used_share(check)
    return CheckLine(
        check=check,
        because=because,
        mend=mend,
        whom=wording.whom(check),
        measured=wording.value(check),
        bounds=wording.bounds(check),
        limit=wording.limit(check),
        used=wording.used(check),
        bar_percent=None if share is None else round(min(share, 2.0) * 50, 1),
        counts=wording.counts(check),
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    manifest = report.manifest
    engine = manifest.engine
    gpus = sorted({gpu.name or "unknown" for gpu in manifest.gpus})
    level = "" if manifest.level_percent == 100 else f" at {manifest.level_percent} %"
    runs = len(manifest.runs)
    asked = sum(
        found.count
        for found in report.measurements
        if (found.metric, found.tenant, found.run, found.phase) == ("error_rate", None, None, None)
    )
    return [
        ("model", engine.model),
        ("engine", f"{engine.kind} {engine.version or ''}".strip()),
        ("GPUs", f"{len(manifest.gpus)} x {', '.join(gpus)}" if gpus else "none watched"),
        ("traffic", f"{manifest.plan.profile}{level}, {len(manifest.plan.tenants)} tenants"),
        (
            "measured",
            f"{runs} x {format_duration(manifest.plan.duration_ns)}"
            + (" (quick)" if manifest.quick else ""),
        ),
        ("requests", f"{asked:,}"),
        ("evidence", report.verdict.evidence),
    ]


def _percentiles(report: Report, agreed: tuple[Promise, ...]) -> list[tuple[str, Markup]]:
    failed = {
        (found.metric, found.tenant): found.failed
        for found in report.measurements
        if found.run is None and found.phase is None
    }
    figures = []
    tenants: list[str | None] = list(report.manifest.plan.tenants)
    if len(tenants) > 1:
        tenants.insert(0, None)
    for tenant in tenants:
        curves = {
            name: (_merged(report.histograms, name, tenant), failed.get((name, tenant), 0))
            for name in CURVES
        }
        figure = percentile_figure(tenant, curves, agreed)
        figures.append((tenant or "all tenants", figure))
    return figures


def _merged(
    histograms: Mapping[tuple[str, str, str, int], Histogram], metric: str, tenant: str | None
) -> Histogram:
    merged = Histogram()
    for (name, whose, phase, _), histogram in histograms.items():
        if name == metric and phase != "warmup" and tenant in (None, whose):
            merged.add(histogram)
    return merged


def _numbers(report: Report) -> list[NumberLine]:
    """Return a line per tenant, per tenant's bursts, and per run if there were several."""
    by_place: dict[tuple[str | None, str | None, int | None], dict[str, Measurement]] = {}
    for found in report.measurements:
        if found.gpu is None:
            place = (found.tenant, found.phase, found.run)
            by_place.setdefault(place, {})[found.metric] = found
    tenants: list[str | None] = [None, *report.manifest.plan.tenants]
    places: list[tuple[str, str, tuple[str | None, str | None, int | None]]] = []
    for tenant in tenants:
        places.append((tenant or "all tenants", "", (tenant, None, None)))
        places.append((tenant or "all tenants", "in bursts", (tenant, "burst", None)))
    if len(report.manifest.runs) > 1:
        places += [
            ("all tenants", f"run {span.run}", (None, None, span.run))
            for span in report.manifest.runs
        ]
    lines = []
    for name, part, place in places:
        metrics = by_place.get(place, {})
        asked = metrics.get("error_rate") or metrics.get("ttft")
        if asked is None or (part == "in bursts" and asked.count == 0):
            continue
        lines.append(
            NumberLine(
                name=name,
                part=part,
                requests=f"{asked.count:,}",
                failed=f"{asked.failed:,}",
                cells=tuple(_cell(metrics.get(metric), field) for _, metric, field in COLUMNS),
            )
        )
    return lines


def _cell(measurement: Measurement | None, field: str) -> str:
    if measurement is None:
        return "-"
    value: float | None = getattr(measurement, field)
    if value is None and measurement.failed and measurement.count:
        return "failed"
    return wording.quantity(measurement.unit, value)


def _how(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    manifest, health = report.manifest, report.verdict.health
    hosts = [
        (
            f"host {host.name}",
            f"{host.role}; {host.cpu}, {host.cores} cores; Linux {host.kernel}; Python {host.python}",
        )
        for host in manifest.hosts
    ]
    gpus = [
        (
            f"GPU {gpu.gpu} of {gpu.node}",
            "; ".join(
                [
                    gpu.name or "name unknown",
                    "size unknown" if gpu.total_bytes is None else format_bytes(gpu.total_bytes),
                    f"driver {gpu.driver or 'unknown'}",
                ]
            ),
        )
        for gpu in manifest.gpus
    ]
    return [
        ("Ruling", _ruled_by(report)),
        (
            "Traffic",
            [
                ("seed", str(manifest.seed)),
                ("schedule sha256", report.verdict.schedule_sha256),
                ("warm-up", format_duration(manifest.plan.warmup_ns)),
                ("window", format_duration(manifest.plan.duration_ns)),
                *(
                    (
                        f"sheet {name}",
                        f"sha256 {sha}"
                        + ("" if name != "sla" or wording.is_own_sla(report) else NOT_RULED_BY),
                    )
                    for name, sha in manifest.sheets_sha256.items()
                ),
            ],
        ),
        (
            "Instrument",
            [
                ("it was", wording.fitness(health)),
                *(("reason", reason) for reason in health.reasons),
                *((wording.cause_label(health), cause) for cause in health.causes),
                *(() if health.mend is None else (("mend", health.mend),)),
                (
                    "lateness",
                    wording.spread_s(
                        p50=health.lateness_p50_s,
                        p99=health.lateness_p99_s,
                        max=health.lateness_max_s,
                    ),
                ),
                (
                    "loop lag",
                    wording.spread_s(p99=health.loop_lag_p99_s, max=health.loop_lag_max_s),
                ),
                ("unsent requests", str(health.unsent)),
                ("steal, at most", wording.quantity("share", health.steal_share_max)),
                (
                    "waiting for a core, at most",
                    wording.quantity("share", health.run_queue_share_max),
                ),
            ],
        ),
        ("Memory", [("samples", _sampling(report)), *gpus]),
        (
            "Engine",
            [
                ("address", manifest.engine.url),
                ("command", " ".join(manifest.engine.argv) or "not started by tailgate"),
                *(() if manifest.engine.fault is None else (("fault", manifest.engine.fault),)),
            ],
        ),
        (
            "Run",
            [
                ("id", manifest.run_id),
                ("state", manifest.state),
                ("started", manifest.started),
                ("ended", manifest.ended or "-"),
                ("command of the run", " ".join(manifest.argv)),
                *hosts,
                *((name, version) for name, version in sorted(manifest.versions.items())),
            ],
        ),
    ]


def _ruled_by(report: Report) -> list[tuple[str, str]]:
    """Return which SLA the rulings rest on, and how."""
    said = [("evidence", report.verdict.evidence)]
    if report.verdict.strict:
        said.append(("strict", "a broken should breaks the run"))
    if report.baseline is not None:
        said.append(("baseline", report.baseline.name))
    if report.ruled_by is not None:
        again = report.ruled_by.again
        said += [
            ("SLA", report.ruled_by.sla),
            ("SLA sha256", report.ruled_by.sha256),
            ("ruled", "at the end of the run" if again is None else f"again, {again}"),
        ]
    return said


def _sampling(report: Report) -> str:
    """Return how memory was sampled and what that cannot see: a spike of d is caught with probability d / T."""
    source, every_ns = report.manifest.telemetry.memory, report.manifest.telemetry.every_ns
    if source is None or every_ns is None:
        return "memory was not watched"
    said = f"from {source}, every {format_duration(every_ns)}; shorter spikes can be missed"
    if every_ns > SPIKE_NS:
        caught = wording.quantity("share", SPIKE_NS / every_ns)
        said += f": one of {format_duration(SPIKE_NS)} is seen with a probability of {caught}"
    return said


WRITER = Writer(file="report.html", render=render)
