"""How numbers and rulings are said to people: the same words on every page and in every file."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.units import format_bytes, format_duration, format_rate, format_share
from reports.report import Report
from slas.expression import ExpressionError, parse
from slas.ruling import CheckRuling, Ruling, Verdict

RULING_ORDER = (
    Ruling.INVALID,
    Ruling.FAIL,
    Ruling.INCONCLUSIVE,
    Ruling.SKIPPED,
    Ruling.PASS,
)
MEANING = {
    Ruling.PASS: "every promise held",
    Ruling.FAIL: "a promise was broken",
    Ruling.INCONCLUSIVE: "not enough evidence to rule",
    Ruling.SKIPPED: "nothing could be ruled on",
    Ruling.INVALID: "the measurement does not count: the fault is on our side, not the engine's",
}
SIMULATED = "simulated: this engine is tailgate's built-in simulation, not a real one"


def quantity(unit: str, amount: float | None) -> str:
    """Return an amount in a base unit (s, B, share, /s, 1) with three significant digits; ``-`` for none.

    >>> quantity("s", 0.312), quantity("B", 2**30), quantity("share", 0.05), quantity("1", 3.0)
    ('312 ms', '1.00 GiB', '5.00 %', '3')
    """
    if amount is None:
        return "-"
    match unit:
        case "s":
            return format_duration(amount * 1e9)
        case "B":
            return format_bytes(amount)
        case "share":
            return format_share(amount)
        case "/s":
            return format_rate(amount)
        case _:
            return f"{amount:.4g}" if unit == "1" else f"{amount:.4g} {unit}"


def spread_s(**statistics: float | None) -> str:
    """Return several statistics of a time in seconds, in one line.

    >>> spread_s(p50=0.0001, p99=0.002, max=None)
    'p50 100 us, p99 2.00 ms, max -'
    """
    return ", ".join(f"{name} {quantity('s', time_s)}" for name, time_s in statistics.items())


def unit_of(check: CheckRuling) -> str:
    """Return the base unit of a check: of what was measured, else of its metric; ``1`` if neither is known."""
    if check.measured is not None:
        return check.measured.unit
    try:
        return parse(check.expr).metric.unit
    except ExpressionError:
        return "1"


def value(check: CheckRuling) -> str:
    """Return what was measured; ``-`` for nothing."""
    if check.measured is None:
        return "-"
    if check.measured.unbounded:
        return "above every limit"
    return quantity(check.measured.unit, check.measured.value)


def bounds(check: CheckRuling) -> str | None:
    """Return the bounds of what was measured, None where the evidence has none."""
    found = check.measured
    if found is None or found.unbounded or found.low is None or found.high is None:
        return None
    return f"[{quantity(found.unit, found.low)}, {quantity(found.unit, found.high)}]"


def measured(check: CheckRuling) -> str:
    """Return what was measured, with its bounds where the evidence has some; ``-`` for nothing."""
    return " ".join(filter(None, (value(check), bounds(check))))


def limit(check: CheckRuling) -> str:
    """Return the limit in the unit of what was measured; ``-`` if a missing baseline would have given it."""
    return quantity(unit_of(check), check.limit)


def used_share(check: CheckRuling) -> float | None:
    """Return measured / limit, None where either is missing or the limit is 0."""
    if check.measured is None or check.measured.value is None or not check.limit:
        return None
    return check.measured.value / check.limit


def used(check: CheckRuling) -> str:
    """Return measured / limit as a percentage of three digits at most; ``-`` where there is none."""
    share = used_share(check)
    return "-" if share is None else f"{share * 100:.3g} %" if share < 10 else f"{share:.3g} x"


def whom(check: CheckRuling) -> str:
    """Return the tenant, GPU and phase that a check was ruled for; ``all`` if it was ruled over everything."""
    parts = []
    if check.tenant is not None:
        parts.append(check.tenant)
    if check.gpu is not None:
        parts.append(f"GPU {check.gpu}" + ("" if check.node is None else f" of {check.node}"))
    if check.phase is not None:
        parts.append(check.phase)
    return ", ".join(parts) or "all"


def counts(check: CheckRuling) -> str:
    """Return on how much a ruling rests: samples, and runs if there were several."""
    if check.measured is None:
        return "no samples"
    found = check.measured
    said = f"{found.samples:,} samples"
    return said if found.runs <= 1 else f"{said} in {found.runs} runs"


def by_weight(checks: Sequence[CheckRuling]) -> list[CheckRuling]:
    """Return the checks with musts before shoulds and the worst ruling first, otherwise as the sheet has them."""
    return sorted(
        checks, key=lambda check: (check.level != "must", RULING_ORDER.index(check.ruling))
    )


def headline(report: Report) -> str:
    """Return the run's ruling in one sentence: what it means, why, and the exit code."""
    return f"{MEANING[report.verdict.ruling]} (exit {report.exit_code})"


def reasons(verdict: Verdict) -> list[str]:
    """Return why the run as a whole was ruled so, apart from its checks; most decisive first."""
    said = [f"the instrument was not fit: {reason}" for reason in verdict.health.reasons]
    if verdict.engine_fault is not None:
        said.append(f"the engine failed: {verdict.engine_fault}")
    if verdict.aborted is not None:
        said.append(f"aborted: {verdict.aborted}")
    if verdict.cut is not None:
        said.append(f"the run was cut: {verdict.cut}")
    return said


def warnings(report: Report) -> list[str]:
    """Return what a reader should know beside the rulings, without what a check already says of itself."""
    said = [check.because for check in report.verdict.checks]
    return [
        warning
        for warning in dict.fromkeys((*report.manifest.warnings, *report.verdict.warnings))
        if not any(because in warning for because in said)
    ]


def printable(words: str) -> str:
    r"""Return the words on one line, without anything that could steer a terminal: it is shown as an escape.

    >>> printable("a\x1b[0m\nb")
    'a\\x1b[0m b'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in " ".join(words.split())
    )


def tally(checks: Sequence[CheckRuling]) -> str:
    """Return how many checks had which ruling, worst first: ``1 FAIL, 3 PASS``."""
    found = [check.ruling for check in checks]
    return ", ".join(
        f"{found.count(ruling)} {ruling}" for ruling in RULING_ORDER if ruling in found
    )
