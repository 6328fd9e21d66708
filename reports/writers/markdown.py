"""``summary.md``: for a pull request comment or a CI summary; the ruling first, tables before details."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reports.report import Report, Writer
from reports.wording import (
    by_weight,
    cause_label,
    counts,
    fitness,
    headline,
    limit,
    marks,
    measured,
    printable,
    quantity,
    reasons,
    tally,
    used,
    warnings,
    way_out,
    whom,
    why,
    word,
)
from slas.measurement import Measurement
from slas.ruling import Ruling

MARK = {
    Ruling.PASS: "✅",
    Ruling.FAIL: "❌",
    Ruling.INCONCLUSIVE: "❔",
    Ruling.SKIPPED: "➖",
    Ruling.INVALID: "⛔",
}
# GitHub refuses a whole step summary above 1 MiB
LARGEST_BYTES = 900_000
COMPARED = (
    ("ttft", "p50"),
    ("ttft", "p99"),
    ("itl", "p99"),
    ("e2e", "p99"),
    ("error_rate", "mean"),
    ("throughput.output_tokens", "mean"),
)
_SPECIAL = re.compile(r"([\\`*_\[\]|~#@])")


def render(report: Report) -> bytes:
    """Return the summary in GitHub's Markdown; what a server or a sheet said is escaped."""
    verdict = report.verdict
    lines = [f"## {MARK[verdict.ruling]} {word(report)}: {text(headline(report))}", ""]
    for mark in marks(report):
        lines += [f"> **{text(mark)}**", ""]
    lines += [f"- {text(reason)}" for reason in reasons(report)]
    lines += [
        f"- {text(_subject(report))}",
        f"- evidence: {text(verdict.evidence)}; checks: {text(tally(verdict.checks))}",
        "",
    ]
    lines += _checks(report)
    lines += _baseline(report)
    lines += _notes(report)
    lines.append(
        f"<sub>run {text(report.manifest.run_id)}, tailgate {text(report.manifest.tailgate)}</sub>"
    )
    return _capped(lines)


def _subject(report: Report) -> str:
    manifest = report.manifest
    gpus = sorted({gpu.name or "unknown GPU" for gpu in manifest.gpus})
    on = f" on {len(manifest.gpus)} x {', '.join(gpus)}" if gpus else ""
    version = "" if manifest.engine.version is None else f" {manifest.engine.version}"
    return (
        f"{manifest.engine.model} served by {manifest.engine.kind}{version}{on};"
        f" profile {manifest.plan.profile}, seed {manifest.seed}"
    )


def _checks(report: Report) -> list[str]:
    rows = [
        (
            f"{MARK[check.ruling]} {check.ruling}",
            check.level,
            code(check.expr),
            text(whom(check)),
            text(measured(check)),
            text(limit(check)),
            used(check),
            text(counts(check)),
        )
        for check in by_weight(report.verdict.checks)
    ]
    head = ("ruling", "level", "promise", "for", "measured", "limit", "of limit", "evidence")
    lines = table(head, rows)
    said = []
    for check in by_weight(report.verdict.checks):
        because = why(check, report.verdict)
        if check.ruling is Ruling.PASS or because is None:
            continue
        line = f"- {MARK[check.ruling]} {code(check.expr)} ({text(whom(check))}): {text(because)}"
        mend = way_out(check, report.verdict)
        if mend is not None:
            line += f" **{mend[0].capitalize()}** {text(mend[1])}"
        said.append(line)
    return [*lines, *said, ""] if said else lines


def _baseline(report: Report) -> list[str]:
    if report.baseline is None:
        return []
    before = {_key(m): m for m in report.baseline.measurements}
    rows = []
    for metric, statistic in COMPARED:
        for now in report.measurements:
            then = before.get(_key(now))
            if now.metric != metric or now.phase is not None or now.run is not None or then is None:
                continue
            new, old = getattr(now, statistic), getattr(then, statistic)
            change = "-" if new is None or not old else f"{(new - old) / old:+.1%}"
            name = metric if statistic == "mean" else f"{metric}.{statistic}"
            rows.append(
                (
                    code(name),
                    text(now.tenant or "all"),
                    quantity(now.unit, old),
                    quantity(now.unit, new),
                    change,
                )
            )
    if not rows:
        return []
    title = f"### Against baseline {text(report.baseline.name)}"
    return [title, "", *table(("metric", "tenant", "baseline", "now", "change"), rows)]


def _key(measurement: Measurement) -> tuple[object, ...]:
    return (
        measurement.metric,
        measurement.tenant,
        measurement.phase,
        measurement.run,
        measurement.node,
        measurement.gpu,
    )


def _notes(report: Report) -> list[str]:
    health = report.verdict.health
    rows = [
        ("instrument", fitness(health)),
        (
            "lateness p99, max",
            f"{quantity('s', health.lateness_p99_s)}, {quantity('s', health.lateness_max_s)}",
        ),
        (
            "loop lag p99, max",
            f"{quantity('s', health.loop_lag_p99_s)}, {quantity('s', health.loop_lag_max_s)}",
        ),
        ("unsent requests", str(health.unsent)),
    ]
    lines = ["<details><summary>How it was measured</summary>", ""]
    lines += table(("", ""), [(text(name), text(value)) for name, value in rows])
    if health.mend is not None:
        lines += [f"- mend: {text(health.mend)}"]
    lines += [f"- {cause_label(health)}: {text(cause)}" for cause in health.causes]
    lines += [f"- warning: {text(warning)}" for warning in warnings(report)]
    if report.ruled_by is not None:
        lines.append(f"- SLA {text(report.ruled_by.sla)}, sha256 `{report.ruled_by.sha256}`")
    lines += [f"- schedule sha256 `{report.verdict.schedule_sha256}`", "", "</details>", ""]
    return lines


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table and an empty line after it; cells must be escaped already."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def text(words: str) -> str:
    r"""Return words in which Markdown, HTML and GitHub find no markup, link or mention, on one line.

    >>> text("<b>|@all*")
    '&lt;b&gt;\\|\\@all\\*'
    """
    plain = printable(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain).replace("://", ":\\//")


def code(words: str) -> str:
    """Return words as code that may stand in a table cell.

    >>> code("ttft.p99 <= 300ms")
    '<code>ttft.p99 &lt;= 300ms</code>'
    """
    return f"<code>{text(words)}</code>"


def _capped(lines: list[str]) -> bytes:
    body = "\n".join(lines).encode("utf-8", "replace")
    if len(body) <= LARGEST_BYTES:
        return body + b"\n"
    kept = body[:LARGEST_BYTES].decode("utf-8", "ignore").rpartition("\n")[0]
    left = body.count(b"\n") - kept.count("\n")
    return f"{kept}\n\n({left} more lines are in verdict.json)\n".encode()


WRITER = Writer(file="summary.md", render=render)
