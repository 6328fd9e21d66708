"""The verdict on a terminal, and as plain lines where there is none. Writes no file."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from reports.report import Report
from reports.wording import (
    bounds,
    by_weight,
    cause_label,
    facts,
    fitness,
    headline,
    limit,
    marks,
    printable,
    quantity,
    reasons,
    tally,
    used,
    value,
    warnings,
    way_out,
    whom,
    why,
    word,
)
from slas.ruling import CheckRuling, Ruling, Verdict

COLOUR = {
    Ruling.PASS: "green",
    Ruling.FAIL: "bold red",
    Ruling.INCONCLUSIVE: "yellow",
    Ruling.SKIPPED: "dim",
    Ruling.INVALID: "bold magenta",
}
# below this a table of checks breaks inside its numbers
NARROWEST = 80


def render(report: Report, console: Console) -> None:
    """Print the verdict: a table of checks on a terminal, plain lines (no frames, no colour) elsewhere."""
    if console.is_terminal and console.width >= NARROWEST:
        console.print(_page(report))
    else:
        for line in plain(report):
            console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)


def plain(report: Report) -> list[str]:
    """Return the verdict as lines for a log: greppable, one check a line, details indented below it."""
    verdict = report.verdict
    lines = [f"{word(report)}: {headline(report)}"]
    lines += [f"  {printable(said)}" for said in (*marks(report), *reasons(report))]
    for check in by_weight(verdict.checks):
        lines.append(
            f"{check.ruling:<12} {check.level:<6} {printable(check.expr)}  ({printable(whom(check))})"
            f"  {facts(check)}"
        )
        lines += [f"             {line}" for line in _details(check, verdict)]
    return lines + [f"{name}: {printable(said)}" for name, said in _footer(report)]


def _page(report: Report) -> RenderableType:
    verdict = report.verdict
    colour = COLOUR[verdict.ruling]
    top = [Text.assemble((f" {word(report)} ", f"{colour} reverse"), f"  {headline(report)}")]
    top += [Text(printable(mark), style="dim") for mark in marks(report)]
    top += [Text(printable(reason), style=colour) for reason in reasons(report)]
    parts: list[RenderableType] = [Panel(Group(*top), border_style=colour, expand=False)]
    if verdict.checks:
        parts.append(_checks(by_weight(verdict.checks)))
    parts += [
        _why(check, verdict) for check in by_weight(verdict.checks) if _details(check, verdict)
    ]
    notes = Table.grid(padding=(0, 2))
    notes.add_column(style="dim")
    notes.add_column()
    for name, said in _footer(report):
        notes.add_row(name, Text(printable(said)))
    return Group(*parts, Text(), notes)


def _checks(checks: Sequence[CheckRuling]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("ruling", no_wrap=True)
    table.add_column("promise", overflow="fold")
    table.add_column("for", overflow="fold")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("of limit", justify="right", no_wrap=True)
    for check in checks:
        table.add_row(
            Text(check.ruling, style=COLOUR[check.ruling]),
            Text.assemble(
                printable(check.expr), ("  should" if check.level == "should" else "", "dim")
            ),
            Text(printable(whom(check))),
            Text("\n".join(filter(None, (value(check), bounds(check))))),
            Text(limit(check)),
            Text(used(check)),
        )
    return table


def _details(check: CheckRuling, verdict: Verdict) -> list[str]:
    """Return why a check did not pass and what may be done about it; nothing where there is nothing to add."""
    because = why(check, verdict)
    if check.ruling is Ruling.PASS or because is None:
        return []
    mend = way_out(check, verdict)
    return [printable(said) for said in (because, *(() if mend is None else (" ".join(mend),)))]


def _why(check: CheckRuling, verdict: Verdict) -> RenderableType:
    because, *mend = _details(check, verdict)
    lines = Text.assemble(
        "\n",
        (check.ruling, COLOUR[check.ruling]),
        f"  {printable(check.expr)} ({printable(whom(check))})",
        f"\n{because}",
    )
    for line in mend:
        lines.append(f"\n{line}", style="italic")
    return lines


def _footer(report: Report) -> list[tuple[str, str]]:
    verdict = report.verdict
    health = verdict.health
    fit = fitness(health)
    lateness, lag = quantity("s", health.lateness_p99_s), quantity("s", health.loop_lag_p99_s)
    lines = [
        ("checks", f"{tally(verdict.checks)}; evidence: {verdict.evidence}"),
        (
            "instrument",
            f"{fit}; lateness p99 {lateness}, loop lag p99 {lag}, unsent {health.unsent}",
        ),
    ]
    lines += [(cause_label(health), cause) for cause in health.causes]
    if health.mend is not None and not health.fit:
        lines.append(("mend", health.mend))
    lines += [("warning", warning) for warning in warnings(report)]
    return lines
