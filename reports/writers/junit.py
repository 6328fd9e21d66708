"""``junit.xml``: one test case a check, for the CI systems that know tests and no latencies.

Names and class names carry no measured value: GitLab and others match them between two pipelines.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from reports.report import Report, Writer
from reports.wording import (
    SIMULATED,
    facts,
    grounds,
    headline,
    interrupted,
    way_out,
    why,
)
from slas.ruling import CheckRuling, Ruling

# XML 1.0 has no way to write these, not even as a character reference
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NS_PER_S = 1e9


def render(report: Report) -> bytes:
    """Return the verdict as JUnit XML: failure for a broken promise, error for no ruling, skipped for no baseline.

    Three cases speak of the run itself, so that an INVALID run is never a green one.
    """
    sla = _sla_name(report.verdict.checks)
    seconds = f"{sum(run.end_ns - run.start_ns for run in report.manifest.runs) / NS_PER_S:.3f}"
    suites = Element("testsuites", {"name": "tailgate", "time": seconds})
    suite = SubElement(
        suites,
        "testsuite",
        {
            "name": _legal(f"tailgate.{sla}"),
            "timestamp": report.manifest.started.removesuffix("Z"),
            "hostname": _legal(report.manifest.hosts[0].name if report.manifest.hosts else ""),
            "time": seconds,
        },
    )
    properties = SubElement(suite, "properties")
    ruled_by = report.ruled_by
    for name, value in (
        ("simulated", str(report.manifest.simulated).lower()),
        ("quick", str(report.manifest.quick).lower()),
        *(() if ruled_by is None else (("sla", ruled_by.sla), ("sla_sha256", ruled_by.sha256))),
        ("evidence", report.verdict.evidence),
        ("run_id", report.manifest.run_id),
        ("schedule_sha256", report.verdict.schedule_sha256),
    ):
        SubElement(properties, "property", {"name": name, "value": _legal(value)})
    _run_cases(suite, report, sla)
    seen: Counter[tuple[str, str]] = Counter()
    for check in report.verdict.checks:
        _check_case(suite, report, check, sla, seen)
    kinds = Counter(child.tag for case in suite.iter("testcase") for child in case)
    for element in (suites, suite):
        element.set("tests", str(sum(1 for _ in suite.iter("testcase"))))
        element.set("failures", str(kinds["failure"]))
        element.set("errors", str(kinds["error"]))
        element.set("skipped", str(kinds["skipped"]))
    indent(suites)
    document: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _run_cases(suite: Element, report: Report, sla: str) -> None:
    verdict = report.verdict
    fit = _case(suite, "the instrument was fit to measure", f"tailgate.{sla}.run", None)
    # of a run that ended early the third case speaks, but an INVALID run is never green
    unexplained = verdict.cut is None and verdict.aborted is None
    if not verdict.health.fit or (verdict.ruling is Ruling.INVALID and unexplained):
        said = "; ".join(grounds(verdict)) or headline(report)
        mend = verdict.health.mend
        _outcome(fit, "error", "Invalid", said, None if mend is None else f"mend: {mend}")
    alive = _case(suite, "the engine stayed alive", f"tailgate.{sla}.run", None)
    if verdict.engine_fault is not None:
        _outcome(alive, "failure", "EngineFault", verdict.engine_fault, None)
    whole = _case(suite, "the run was not cut", f"tailgate.{sla}.run", None)
    if verdict.aborted is not None:
        _outcome(whole, "failure", "Aborted", verdict.aborted, None)
    elif verdict.cut is not None:
        _outcome(whole, "error", "Cut", verdict.cut, None)


def _check_case(
    suite: Element,
    report: Report,
    check: CheckRuling,
    sla: str,
    seen: Counter[tuple[str, str]],
) -> None:
    classname = f"tailgate.{sla}.{check.tenant or 'all'}"
    name = check.expr
    if check.gpu is not None:
        name += f" [node={check.node or '-'}, gpu={check.gpu}]"
    # of two equal names CI systems count only the first
    seen[classname, name] += 1
    if seen[classname, name] > 1:
        name += f" #{seen[classname, name]}"
    case = _case(suite, name, classname, check)
    because, found = why(check, report.verdict), facts(check)
    said = found if because is None else f"{because} ({found})"
    mend = " ".join(way_out(check, report.verdict) or ()) or None
    strict = check.level == "must" or report.verdict.strict
    if report.verdict.ruling is Ruling.INVALID and check.ruling is not Ruling.FAIL:
        what = "was interrupted" if interrupted(report) else "is INVALID"
        _outcome(case, "skipped", None, f"not ruled, the run {what}: {said}", mend)
        return
    match check.ruling:
        case Ruling.FAIL if strict:
            _outcome(case, "failure", "SLAViolation", said, mend)
        case Ruling.INCONCLUSIVE if strict and report.exit_code != 0:
            _outcome(case, "error", "Inconclusive", said, mend)
        case Ruling.INVALID:
            _outcome(case, "error", "Invalid", said, mend)
        case Ruling.SKIPPED:
            _outcome(case, "skipped", None, said, mend)
        case Ruling.PASS:
            _say(case, report, said, None)
        case Ruling.FAIL | Ruling.INCONCLUSIVE:
            _say(case, report, f"warning: {check.ruling}: {said}", mend)


def _case(suite: Element, name: str, classname: str, check: CheckRuling | None) -> Element:
    # its time is the suite's: CI systems add the times of cases up
    at = {} if check is None else {"file": _legal(check.file), "line": str(check.line)}
    return SubElement(
        suite,
        "testcase",
        {"name": _legal(name), "classname": _legal(classname), "time": "0", **at},
    )


def _outcome(case: Element, tag: str, kind: str | None, said: str, mend: str | None) -> None:
    attributes = {"message": _legal(said)}
    if kind is not None:
        attributes["type"] = kind
    element = SubElement(case, tag, attributes)
    if mend is not None:
        element.text = _legal(mend)


def _say(case: Element, report: Report, said: str, mend: str | None) -> None:
    lines = [said] if mend is None else [said, mend]
    if report.manifest.simulated:
        lines.append(SIMULATED)
    SubElement(case, "system-out").text = _legal("\n".join(lines))


def _sla_name(checks: tuple[CheckRuling, ...]) -> str:
    """Return the SLA's file name without its ending; a dot in it would read as a package."""
    return PurePath(checks[0].file).stem.replace(".", "_") if checks else "sla"


def _legal(text: str) -> str:
    r"""Return the text with the characters that XML cannot carry written as escapes.

    >>> _legal("a\x1b[0m <b>")
    'a\\x1b[0m <b>'
    """
    return _ILLEGAL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


WRITER = Writer(file="junit.xml", render=render)
