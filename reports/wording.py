"""How numbers and rulings are said to people: the same words on every page and in every file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from profiles.units import format_bytes, format_duration, format_rate, format_share
from reports.report import Report
from slas.expression import Expression, ExpressionError, parse
from slas.quantity import Gauge
from slas.ruling import CheckRuling, Health, Ruling, Verdict

RULING_ORDER = (
    Ruling.INVALID,
    Ruling.FAIL,
    Ruling.INCONCLUSIVE,
    Ruling.SKIPPED,
    Ruling.PASS,
)
SIMULATED = "simulated: this engine is tailgate's built-in simulation, not a real one"
QUICK = (
    "quick: one run over a prefix of the profile, for looking around; run without --quick for a ruling"
    " that counts"
)
INTERRUPTED = "INTERRUPTED"
INTERRUPTIONS = (130, 143)
"""Exit codes of a run that was told to stop: by Ctrl-C, and by SIGTERM."""
# how the court words a way out that loosens the promise, and is no advice to anybody
_LOOSER = "it would pass with a limit of "


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


def expression_of(check: CheckRuling) -> Expression | None:
    """Return the promise in a check; None if this tailgate cannot read it, as of a plug-in that is gone."""
    try:
        return parse(check.expr)
    except ExpressionError:
        return None


def unit_of(check: CheckRuling) -> str:
    """Return the base unit of a check: of what was measured, else of its metric; ``1`` if neither is known."""
    if check.measured is not None:
        return check.measured.unit
    expression = expression_of(check)
    return "1" if expression is None else expression.metric.unit


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
    """Return on how much a ruling rests: requests, or samples of a gauge; and runs if there were several."""
    if check.measured is None:
        return "not measured"
    found, expression = check.measured, expression_of(check)
    gauge = expression is None or isinstance(expression.metric, Gauge)
    what = "sample" if gauge else "request"
    said = f"{found.samples:,} {what}{'' if found.samples == 1 else 's'}"
    return said if found.runs <= 1 else f"{said} in {found.runs} runs"


def facts(check: CheckRuling) -> str:
    """Return what was measured, the limit, and on how much that rests, in one line."""
    if check.measured is None:
        return counts(check) if check.limit is None else f"{counts(check)}, limit {limit(check)}"
    said = f"measured {measured(check)}, limit {limit(check)}"
    if used_share(check) is not None:
        said += f", {used(check)} of it"
    return f"{said}, {counts(check)}"


def why(check: CheckRuling, verdict: Verdict) -> str | None:
    """Return why a check was ruled so; None where that is only that the run was cut, which its headline says."""
    cut = verdict.cut
    if cut is not None and check.ruling is Ruling.INCONCLUSIVE and cut in check.because:
        return None
    return check.because


def way_out(check: CheckRuling, verdict: Verdict) -> tuple[str, str] | None:
    """Return what may be done about a ruling, as a label and its words; None if there is nothing to say."""
    if check.mend is None or why(check, verdict) is None:
        return None
    if check.mend.startswith(_LOOSER):
        return "would pass at", check.mend.removeprefix(_LOOSER)
    return "mend:", check.mend


def fitness(health: Health) -> str:
    """Return what the instrument was: fit, slow without a consequence, or not fit."""
    if not health.fit:
        return "not fit"
    return "slow, which changes no ruling" if health.slow else "fit"


def cause_label(health: Health) -> str:
    """Return what to call the causes of a health: there is nothing to cause in an instrument that is fit."""
    return "note" if health.fit and not health.slow else "cause"


def by_weight(checks: Sequence[CheckRuling]) -> list[CheckRuling]:
    """Return the checks with musts before shoulds and the worst ruling first, otherwise as the sheet has them."""
    return sorted(
        checks, key=lambda check: (check.level != "must", RULING_ORDER.index(check.ruling))
    )


def interrupted(report: Report) -> bool:
    """Return whether somebody stopped the run before anything was certain."""
    uncertain = report.verdict.ruling in (Ruling.INVALID, Ruling.INCONCLUSIVE)
    return uncertain and report.exit_code in INTERRUPTIONS


def word(report: Report) -> str:
    """Return the word that a report opens with: the ruling, or INTERRUPTED where somebody kept it from one."""
    return INTERRUPTED if interrupted(report) else report.verdict.ruling


def headline(report: Report) -> str:
    """Return the run's ruling in one sentence: what it means, the first reason for it, and the exit code."""
    said, _ = _headline(report)
    return f"{printable(said)} (exit {report.exit_code})"


def reasons(report: Report) -> list[str]:
    """Return why the run as a whole was ruled so, apart from its checks and from what its headline says."""
    _, said = _headline(report)
    return [ground for ground in grounds(report.verdict) if ground != said]


def grounds(verdict: Verdict) -> list[str]:
    """Return why the run as a whole was ruled so, apart from its checks; most decisive first."""
    said = [_unfit(reason) for reason in verdict.health.reasons]
    if verdict.engine_fault is not None:
        said.append(_failed(verdict.engine_fault))
    if verdict.aborted is not None:
        said.append(f"aborted: {verdict.aborted}")
    if verdict.cut is not None:
        said.append(_cut(verdict.cut))
    return said


def _unfit(reason: str) -> str:
    return f"the instrument was not fit: {reason}"


def _failed(fault: str) -> str:
    return f"the engine failed: {fault}"


def _cut(cut: str) -> str:
    return f"the run was cut: {cut}"


def _headline(report: Report) -> tuple[str, str | None]:
    """Return the sentence, and the ground that it holds already."""
    verdict = report.verdict
    if interrupted(report):
        cut = verdict.cut or "the run was stopped"
        return f"{cut.removeprefix('interrupted ')}, before anything was certain", _cut(cut)
    match verdict.ruling:
        case Ruling.FAIL if verdict.engine_fault is not None:
            return _failed(verdict.engine_fault), _failed(verdict.engine_fault)
        case Ruling.FAIL:
            return f"a promise was broken{_first(verdict, ': ')}", None
        case Ruling.INCONCLUSIVE:
            return f"not enough evidence to rule{_first(verdict, ' on ')}", None
        case Ruling.INVALID if verdict.health.reasons:
            reason = verdict.health.reasons[0]
            fault = "the measurement does not count, by our fault and not the engine's"
            return f"{fault}: {reason}", _unfit(reason)
        case Ruling.INVALID:
            if verdict.cut is not None and verdict.aborted is None:
                return f"the run was cut before anything was certain: {verdict.cut}", _cut(
                    verdict.cut
                )
            return "the run ended before anything was certain", None
        case Ruling.SKIPPED:
            return "nothing could be ruled on", None
        case Ruling.PASS:
            rest = [check for check in verdict.checks if check.ruling is not Ruling.PASS]
            return f"no must is broken; {tally(rest)}" if rest else "every promise held", None


def _first(verdict: Verdict, joint: str) -> str:
    """Return the first check that decided the verdict, and how many others did; nothing if none did."""
    deciding = [
        check
        for check in by_weight(verdict.checks)
        if check.ruling is verdict.ruling and (check.level == "must" or verdict.strict)
    ]
    if not deciding:
        return ""
    first = deciding[0]
    said = f"{joint}{first.expr}"
    if "=*" in first.expr:
        said += f" for {whom(first)}"
    if first.measured is not None:
        said += f", measured {value(first)}"
    return said if len(deciding) == 1 else f"{said}, and {len(deciding) - 1} more"


def marks(report: Report) -> list[str]:
    """Return what keeps a ruling from being one of this run, whole, on a real engine: said above all else."""
    said = []
    if report.manifest.simulated:
        said.append(SIMULATED)
    if report.manifest.quick:
        said.append(QUICK)
    ruled_by = report.ruled_by
    if ruled_by is not None and ruled_by.again is not None:
        said.append(f"ruled again on {sla_name(report)}, sha256 {ruled_by.sha256}")
    return said


def is_own_sla(report: Report) -> bool:
    """Return whether the rulings rest on the SLA that the run was started with, as far as anybody said."""
    ruled_by = report.ruled_by
    return ruled_by is None or ruled_by.sha256 == report.manifest.sheets_sha256.get("sla")


def sla_name(report: Report) -> str:
    """Return what to call the SLA that was ruled by: its file, or that it is the run's own."""
    ruled_by = report.ruled_by
    return (
        "the run's own SLA"
        if ruled_by is None or is_own_sla(report)
        else PurePath(ruled_by.sla).name
    )


def warnings(report: Report) -> list[str]:
    """Return what a reader should know beside the rulings, without what a check already says of itself."""
    said = [check.because for check in report.verdict.checks]
    return [
        warning for warning in report.warnings if not any(because in warning for because in said)
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
