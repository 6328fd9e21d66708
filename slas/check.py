"""The court's sitting: every promise on every tenant and GPU it is about, the instrument's fitness, the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiles.sheet import nearest
from profiles.units import NS_PER, format_duration
from slas.certainty import certain_failure
from slas.columns import UNBOUNDED
from slas.docket import Docket, Target, docket_of
from slas.evidence import Evidence
from slas.expression import base_units
from slas.finding import Finding, find, unknown
from slas.health import Twice, examine, is_timed, lateness_ns, overrun, slowness_ns
from slas.measurement import Summaries
from slas.metric import metrics
from slas.pause import AFTERMATH, longest, pauses_of
from slas.quantity import Gauge, Latency, Metric, Rate, Ratio
from slas.regression import Baseline, objections, past_value
from slas.ruling import CheckRuling, Health, Ruling, Verdict, worst
from slas.sla import Check, Sla
from slas.slot import held_back, held_in_part
from slas.steady import unsettled_runs
from slas.tokens import token_gap

_NS_PER_S = NS_PER["s"]
# a second is judged once a later one has begun, and a moment passes until the last generator stops sending
_HEARD_AFTER_NS = 3 * _NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ruled:
    """A target, what it came to, the limit it was held against, the same from sent, and whether slowness matters.

    ``undisturbed`` and ``kept_up`` are a FAIL ruled again without the pauses of the generators, and had they kept
    up; see ``slas.health.Twice``.
    """

    target: Target
    finding: Finding
    limit: float | None
    from_sent: Ruling | None = None
    regardless: bool = False
    undisturbed: Ruling | None = None
    kept_up: Ruling | None = None


def rule(
    sla: Sla,
    evidence: Evidence,
    baseline: Baseline | None,
    *,
    strict: bool = False,
    summaries: Summaries | None = None,
) -> Verdict:
    """Rule on a run.

    With ``summaries`` (histograms and measurements) in place of rows, point checks on percentiles and on
    error_rate are ruled; all else is INCONCLUSIVE. Raises ValueError if the SLA has no checks.
    """
    sitting = _Sitting(sla, evidence, baseline, strict, summaries)
    return sitting.verdict()


class _Sitting:
    """One call of ``rule``: what it was given, and the questions that its answer is made of."""

    def __init__(
        self,
        sla: Sla,
        evidence: Evidence,
        baseline: Baseline | None,
        strict: bool,
        summaries: Summaries | None,
    ) -> None:
        if not sla.checks:
            raise ValueError("an SLA without checks promises nothing")
        self.sla = sla
        self.evidence = evidence
        self.baseline = baseline
        self.strict = strict
        self.docket = docket_of(evidence, summaries)
        self.punctual = self.docket.punctual()
        self.from_ns = self._from_ns()
        self.undisturbed = self.docket.undisturbed(self.from_ns)
        self.pause = longest(pauses_of(evidence, self.from_ns))
        # a quick run is one run on point evidence, whatever the sheet asks for
        self.confidence = None if evidence.quick else sla.confidence
        self.runs = 1 if evidence.quick else max(sla.runs, len(evidence.runs))
        self.stopped = _stopped(evidence)
        self.lateness_ns = lateness_ns(self.docket, self.from_ns)
        self.slowness_ns = slowness_ns(self.docket, self.from_ns)
        self.overrun = overrun(self.docket, self.from_ns)
        # where nobody knows how slow we were, every timeout may be ours
        self.reach_ns = UNBOUNDED if self.slowness_ns is None else AFTERMATH * self.slowness_ns

    def verdict(self) -> Verdict:
        ruled = [self._rule(target) for check in self.sla.checks for target in self._targets(check)]
        deciding = [one for one in ruled if self._decides(one.target.check)]
        health = examine(
            self.docket,
            _twice(deciding),
            stopped=self.stopped is not None,
            from_ns=self.from_ns,
        )
        engine_fault = self.evidence.engine_fault or self._held_back()
        ruled = self._holm(ruled)
        deciding = [one for one in ruled if self._decides(one.target.check)]
        checks = tuple(_check_ruling(one) for one in ruled)
        return Verdict(
            ruling=self._ruling(deciding, health, engine_fault),
            checks=checks,
            health=health,
            evidence=self._evidence_text(),
            simulated=self.evidence.simulated,
            schedule_sha256=self.evidence.subject.schedule_sha256,
            warnings=tuple(dict.fromkeys((*_slow(health), *self._warnings(ruled)))),
            strict=self.strict,
            engine_fault=engine_fault,
            cut=self.evidence.cut,
            aborted=self.evidence.aborted,
        )

    def _holm(self, ruled: list[_Ruled]) -> list[_Ruled]:
        """Return the rulings with FAILs that many checks together may owe to luck made INCONCLUSIVE (Holm, 1979).

        A PASS of the run needs every check to pass, so it needs no correction. Counts, such as memory and
        maxima, are not drawn by lot and stay as they are.
        """
        if self.confidence is None or self.stopped is not None:
            return ruled
        family = [index for index, one in enumerate(ruled) if _is_sampled(one)]
        failed = {i for i in family if ruled[i].finding.ruling is Ruling.FAIL}
        certain: set[int] = set()
        while open_ones := failed - certain:
            level = 1 - (1 - self.confidence) / (len(family) - len(certain))
            held = {i for i in open_ones if self._fails_at(ruled[i], level)}
            if not held:
                break
            certain |= held
        return [
            replace(one, finding=_perhaps_luck(one.finding, len(family)))
            if index in failed - certain
            else one
            for index, one in enumerate(ruled)
        ]

    def _fails_at(self, one: _Ruled, confidence: float) -> bool:
        assert one.limit is not None
        return find(self.docket, one.target, one.limit, confidence).ruling is Ruling.FAIL

    def _decides(self, check: Check) -> bool:
        return self.strict or check.level == "must"

    def _ruling(
        self, deciding: Sequence[_Ruled], health: Health, engine_fault: str | None
    ) -> Ruling:
        """Return INVALID > FAIL > INCONCLUSIVE > PASS over the checks that decide."""
        if not health.fit:
            return Ruling.INVALID
        rulings = [one.finding.ruling for one in deciding]
        if engine_fault is not None or Ruling.FAIL in rulings:
            return Ruling.FAIL
        if self.stopped is not None:
            # nothing was certain before the end came, and what never ran cannot have kept its promises
            return Ruling.INVALID
        return worst(rulings) if rulings else Ruling.PASS

    def _evidence_text(self) -> str:
        if self.confidence is None:
            return "point"
        runs = len(self.evidence.runs)
        return f"{runs} run{'' if runs == 1 else 's'}, {self.confidence * 100:g}%"

    # ----------------------------------------------------------------------------------------------------
    # targets

    def _targets(self, check: Check) -> Iterator[Target]:
        """Yield a target for each tenant, GPU and node that the check's selectors stand for."""
        expression = check.expression
        tenants: list[str | None] = [expression.tenant]
        if expression.tenant == "*":
            tenants = list(self.evidence.tenants)
        places: list[tuple[str | None, int | None]] = [
            (expression.node, None if expression.gpu is None else _index(expression.gpu))
        ]
        if "*" in (expression.gpu, expression.node):
            places = sorted(
                {
                    (
                        None if expression.node is None else node,
                        None if expression.gpu is None else gpu,
                    )
                    for node, gpu in self.docket.places()
                    if expression.node in (None, "*", node)
                    and expression.gpu in (None, "*", str(gpu))
                },
                key=str,
            )
        # a wildcard that stands for nothing must not make its check disappear
        for tenant in tenants or [None]:
            for node, gpu in places or [(None, None)]:
                # with GPUs of several nodes, the node belongs to the GPU's name
                for full_node in self._nodes(expression.gpu, node, gpu):
                    yield Target(check=check, tenant=tenant, gpu=gpu, node=full_node)

    def _nodes(
        self, selector: str | None, node: str | None, gpu: int | None
    ) -> Sequence[str | None]:
        if selector != "*" or node is not None:
            return [node]
        return sorted({name for name, index in self.docket.places() if index == gpu}) or [None]

    # ----------------------------------------------------------------------------------------------------
    # one check

    def _rule(self, target: Target) -> _Ruled:
        expression = target.check.expression
        if self._ended_the_run(target):
            return self._rule_abort(target)
        if expression.limit.relative:
            set_by_past = self._beside_baseline(target)
            if isinstance(set_by_past, Finding):
                return _Ruled(target=target, finding=set_by_past, limit=None)
            limit, confidence = set_by_past, None
        else:
            assert expression.limit.value is not None
            limit, confidence = expression.limit.value, self.confidence
        finding = self._find(self.docket, target, limit, confidence)
        if expression.limit.relative:
            finding = self._compared(finding)
        failed = finding.ruling is Ruling.FAIL
        return _Ruled(
            target=target,
            finding=finding,
            limit=limit,
            from_sent=self._from_sent(target, limit, confidence),
            regardless=failed and self._fails_regardless(target, limit, confidence),
            undisturbed=self._undisturbed(target, limit, confidence) if failed else None,
            kept_up=self._kept_up(target, limit, confidence) if failed else None,
        )

    def _from_sent(self, target: Target, limit: float, confidence: float | None) -> Ruling | None:
        """Return a check's ruling as if the instrument had sent on time; None if lateness has no part in it."""
        if not _suffers_from_lateness(target):
            return None
        if self.punctual is not None:
            return self._find(self.punctual, target, limit, confidence).ruling
        return self._kept_from_sent(target, limit, confidence)

    def _kept_from_sent(
        self, target: Target, limit: float, confidence: float | None
    ) -> Ruling | None:
        """Return the same from the service times that are kept where rows are gone; None if they are not."""
        expression = target.check.expression
        service = metrics().get(f"service.{expression.metric.name}")
        if service is None or self.docket.measurement(service.name, target) is None:
            return None
        late_ns = self.lateness_ns
        if late_ns is not None:
            without = self._find(self.docket, target, limit + late_ns, confidence)
            if without.ruling is Ruling.FAIL:
                # what no lateness can have made is a wait for connections, which service times leave out
                return Ruling.FAIL
        served = replace(
            target, check=replace(target.check, expression=replace(expression, metric=service))
        )
        return self._find(self.docket, served, limit, confidence).ruling

    def _ended_the_run(self, target: Target) -> bool:
        check = target.check
        # a sheet that came later may use the name for something else
        if check.abort_after_ns is None or self.evidence.aborted != check.name:
            return False
        return not self._ended_between_runs() or self._certain(target) is None

    def _ended_between_runs(self) -> bool:
        """Return whether every run that began was played to its end, and what it showed ended the rest."""
        return self.evidence.aborted is not None and all(
            span.finished for span in self.evidence.runs
        )

    def _certain(self, target: Target) -> Finding | None:
        limit = target.check.expression.limit.value
        assert limit is not None, "a limit beside a baseline has no abort_after"
        return certain_failure(self.docket, target, limit, self.confidence, self.runs)

    def _rule_abort(self, target: Target) -> _Ruled:
        """Rule the check that ended the run, from due and from sent, over the seconds that it was ended for."""
        limit = target.check.expression.limit.value
        assert limit is not None, "a limit beside a baseline has no abort_after"
        ruled = _Ruled(target=target, finding=self._aborted(target), limit=limit)
        broken = [
            window
            for window in self._last_seconds(target.check)
            if find(window, target, limit, None).ruling is Ruling.FAIL
        ]
        if ruled.finding.ruling is not Ruling.FAIL or not broken:
            return ruled
        if self.overrun is not None:
            patient = [window.patient(self.reach_ns) for window in broken]
            ruled = replace(ruled, kept_up=_worst_of(patient, target, limit))
        if not is_timed(target):
            return ruled
        punctual = [window.punctual() for window in broken]
        undisturbed = [window.undisturbed(self.from_ns) for window in broken]
        eased = self._eased(target, limit)
        return replace(
            ruled,
            from_sent=_worst_of(punctual, target, limit)
            if _suffers_from_lateness(target)
            else None,
            undisturbed=_worst_of(undisturbed, target, limit),
            regardless=eased is not None and _worst_of(broken, *eased) is Ruling.FAIL,
        )

    def _last_seconds(self, check: Check) -> list[Docket]:
        """Return the evidence of the windows that may have ended the run: of requests that ended in each of them."""
        columns, after_ns = self.docket.columns, check.abort_after_ns
        if columns is None or after_ns is None or not self.evidence.runs:
            return []
        stop_ns = self._stop_ns()
        mine = (columns.run == columns.runs.index(self.evidence.runs[-1].run)) & ~columns.unsent
        windows = []
        for late_ns in range(0, _HEARD_AFTER_NS + 1, _NS_PER_S):
            end_ns = stop_ns // _NS_PER_S * _NS_PER_S + _NS_PER_S - late_ns
            within = (columns.done_ns >= end_ns - after_ns) & (columns.done_ns < end_ns)
            windows.append(self.docket.only(mine & within))
        return windows

    def _stop_ns(self) -> int:
        """Return when the last run's sending was stopped, from the start of its warm-up."""
        columns = self.docket.columns
        assert columns is not None
        mine = columns.run == columns.runs.index(self.evidence.runs[-1].run)
        return int(np.max(columns.sent_ns[mine], initial=0))

    def _from_ns(self) -> int:
        """Return the moment from which the instrument must have been fit: the window's start, or that of an abort."""
        start_ns = self.evidence.window.warmup_ns
        if self.docket.columns is None or not self.evidence.runs:
            return start_ns
        afters = [
            check.abort_after_ns
            for check in self.sla.checks
            if check.name == self.evidence.aborted and check.abort_after_ns is not None
        ]
        return min(
            [start_ns, *(self._stop_ns() - after_ns - _HEARD_AFTER_NS for after_ns in afters)]
        )

    def _fails_regardless(self, target: Target, limit: float, confidence: float | None) -> bool:
        """Return whether a check is broken even with all of the instrument's slowness added to its limits."""
        eased = self._eased(target, limit)
        return (
            eased is not None and self._find(self._seen(), *eased, confidence).ruling is Ruling.FAIL
        )

    def _seen(self) -> Docket:
        """Return the evidence without the timeouts that may be ours."""
        patient = None if self.overrun is None else self.docket.patient(self.reach_ns)
        return self.docket if patient is None else patient

    def _kept_up(self, target: Target, limit: float, confidence: float | None) -> Ruling | None:
        """Return what a FAIL may be had the generators kept up; None if they did, or have no part in it."""
        expression = target.check.expression
        if self.overrun is None:
            return None
        match expression.metric:
            case Latency() if expression.metric.clock != "instrument":
                allowed = self.docket.patient(self.reach_ns)
            case Ratio() if expression.upper != expression.metric.good:
                allowed = self.docket.patient(self.reach_ns)
            case Rate() if not expression.upper:
                # what a closed loop would have sent nobody knows
                loops = self.evidence.closed_loop
                looping = bool(loops) if target.tenant is None else target.tenant in loops
                allowed = None if looping else self.docket.prompt(self.reach_ns)
            case _:
                return None
        if allowed is None:
            return Ruling.INCONCLUSIVE
        return self._find(allowed, target, limit, confidence).ruling

    def _eased(self, target: Target, limit: float) -> tuple[Target, float] | None:
        """Return a check with all of the instrument's slowness added to its limits; None if that cannot be done."""
        expression = target.check.expression
        slow_ns = self.slowness_ns
        if slow_ns is None:
            return None
        if isinstance(expression.metric, Latency):
            limit += slow_ns
        elif expression.upper:
            # more slowness only lowers a share of good requests: such a ceiling it can never break
            return None
        eased = replace(
            expression,
            bounds=tuple(
                replace(bound, limit_ns=bound.limit_ns + slow_ns) for bound in expression.bounds
            ),
        )
        return replace(target, check=replace(target.check, expression=eased)), limit

    def _undisturbed(self, target: Target, limit: float, confidence: float | None) -> Ruling | None:
        """Return what a FAIL may be without the generators' pauses; None if they have no part in it."""
        if self.pause is None or not is_timed(target):
            return None
        if self.undisturbed is None:
            # buckets have no requests to tell apart: the longest pause counts for each of them
            return self._find(self.docket, target, limit + self.pause.lag_ns, confidence).ruling
        return self._find(self.undisturbed, target, limit, confidence).ruling

    def _find(
        self, docket: Docket, target: Target, limit: float, confidence: float | None
    ) -> Finding:
        if self.stopped is None:
            return find(docket, target, limit, confidence)
        certain = certain_failure(docket, target, limit, confidence, self.runs)
        if certain is not None:
            return self._ending(target, certain)
        seen = find(docket, target, limit, confidence)
        because = f"{target} was not broken for certain when {self.stopped}"
        if seen.measured is not None and seen.measured.value is not None:
            because += f"; until then {seen.because}"
        return replace(
            seen,
            ruling=Ruling.INCONCLUSIVE,
            because=because,
            mend="run it to its end",
            wants=None,
        )

    def _ending(self, target: Target, certain: Finding) -> Finding:
        """Return what is certain, with a word on the runs that it spared."""
        played = len(self.evidence.runs)
        if (
            target.check.name != self.evidence.aborted
            or not self._ended_between_runs()
            or played >= self.runs
        ):
            return certain
        because = (
            f"{target} was broken for certain after {played} of {self.runs} runs, so no further run was"
            f" played: {certain.because}"
        )
        return replace(certain, because=because)

    def _aborted(self, target: Target) -> Finding:
        """Return the FAIL of the check that ended the run; of a check on each tenant, only those that broke it."""
        check = target.check
        limit = check.expression.limit.value
        assert limit is not None, "a limit beside a baseline has no abort_after"
        seen = find(self.docket, target, limit, None)
        others = [other for other in self._targets(check) if other != target]
        if seen.ruling is not Ruling.FAIL and any(
            find(self.docket, other, limit, None).ruling is Ruling.FAIL for other in others
        ):
            because = f"{target} was not broken for certain when another tenant ended the run"
            return replace(
                seen,
                ruling=Ruling.INCONCLUSIVE,
                because=because,
                mend="run it to its end",
                wants=None,
            )
        after = (
            "" if check.abort_after_ns is None else f" for {format_duration(check.abort_after_ns)}"
        )
        until = "" if seen.measured is None else f"; over the whole of it {seen.because}"
        because = f"{target} was broken{after}, and the run was stopped for it{until}"
        return replace(seen, ruling=Ruling.FAIL, because=because, mend=None, wants=None)

    def _beside_baseline(self, target: Target) -> float | Finding:
        """Return the limit that the baseline sets, or the finding where it sets none."""
        expression = target.check.expression
        if self.baseline is None:
            return Finding(
                ruling=Ruling.SKIPPED,
                measured=None,
                because=f"{target} was not compared: there is no baseline yet",
                mend="pin one with `tailgate baseline pin RUN`, and give --baseline",
            )
        name = self.baseline.name
        reasons = objections(self.baseline, self.evidence.subject)
        if reasons:
            return unknown(
                f"{target} cannot be compared with baseline {name}: {'; '.join(reasons)}",
                "pin a baseline of this engine, model, GPUs and schedule",
            )
        past = past_value(
            self.baseline, expression, tenant=target.tenant, gpu=target.gpu, node=target.node
        )
        if past.value is None:
            return unknown(
                f"{target} cannot be compared with baseline {name}: {past.why}", "pin another run"
            )
        return expression.limit.beside(past.value, expression.upper)

    def _compared(self, finding: Finding) -> Finding:
        assert self.baseline is not None
        then, now = self.baseline.subject.engine_version, self.evidence.subject.engine_version
        versions = (
            ""
            if then == now
            else f" (engine version {then or 'unknown'} then, {now or 'unknown'} now)"
        )
        beside = (
            f"the limit is set by baseline {self.baseline.name}{versions}, compared point to point"
        )
        return replace(finding, because=f"{finding.because}; {beside}")

    # ----------------------------------------------------------------------------------------------------
    # beside the checks

    def _held_back(self) -> str | None:
        """Return how the engine kept closed loops from their window; of a run that was stopped nobody can know."""
        if self.stopped is not None:
            return None
        return "; ".join(held_back(self.docket)) or None

    def _warnings(self, ruled: Sequence[_Ruled]) -> Iterator[str]:
        yield from _thin(ruled)
        for one in ruled:
            if one.finding.ruling is Ruling.SKIPPED:
                yield f"SKIPPED: {one.finding.because}; {one.finding.mend}"
            if one.target.check.level == "should" and not self.strict:
                if one.finding.ruling in (Ruling.FAIL, Ruling.INCONCLUSIVE):
                    yield f"should {one.finding.ruling}: {one.finding.because}"
                if one.from_sent is not None and one.from_sent is not one.finding.ruling:
                    yield (
                        f"{one.target} is {one.finding.ruling} from when requests were due and"
                        f" {one.from_sent} from when they were sent: the generators were late"
                    )
        if self.stopped is None:
            yield from held_in_part(self.evidence)
        if (gap := token_gap(self.evidence.rows)) is not None:
            yield gap
        if self.evidence.constant_rate and self.docket.columns is not None:
            unsettled = unsettled_runs(self.docket.columns, self.evidence.window.warmup_ns)
            for run, seen in unsettled.items():
                yield f"no steady state in run {run}: {seen}; a longer warm-up may help"
        aborted = self.evidence.aborted
        names = [check.name for check in self.sla.checks]
        if aborted is not None and aborted not in names:
            yield f"the run was aborted by {aborted!r}, which this SLA does not hold; {nearest(aborted, names)}"


def _slow(health: Health) -> Iterator[str]:
    for how in health.slow:
        yield f"the instrument was slow, which changes no ruling: {how}"


def _is_sampled(one: _Ruled) -> bool:
    """Return whether a ruling rests on a bound that chance may have moved."""
    expression = one.target.check.expression
    if one.limit is None or expression.limit.relative:
        return False
    match expression.metric:
        case Latency():
            statistic = expression.statistic
            return statistic is not None and statistic.text not in ("min", "max")
        case Ratio() | Rate():
            return True
        case Gauge():
            return False


def _perhaps_luck(finding: Finding, family: int) -> Finding:
    return replace(
        finding,
        ruling=Ruling.INCONCLUSIVE,
        because=f"{finding.because}; among {family} checks at once, one such FAIL may be luck (Holm)",
        mend="; ".join(part for part in ("more runs would tell", finding.mend) if part),
    )


def _thin(ruled: Sequence[_Ruled]) -> Iterator[str]:
    """Yield, for each number of requests that is wanted, who has fewer."""
    for wanted in sorted({one.finding.wants for one in ruled if one.finding.wants is not None}):
        short = [
            f"{one.target} ({one.finding.measured.samples:,})"
            for one in ruled
            if one.finding.wants == wanted and one.finding.measured is not None
        ]
        yield f"too few requests to mean much, where {wanted:,} are wanted: {', '.join(short)}"


def _index(gpu: str) -> int | None:
    return None if gpu == "*" else int(gpu)


def _stopped(evidence: Evidence) -> str | None:
    """Return, in words that follow "when", why the evidence stops before its plan; None if it does not."""
    if evidence.aborted is not None:
        return f"{evidence.aborted} ended the run"
    if evidence.cut is not None:
        return f"the run was cut ({evidence.cut})"
    if not evidence.sealed:
        return "the record of the run broke off"
    if evidence.engine_fault is not None and not all(span.finished for span in evidence.runs):
        return f"the engine failed ({evidence.engine_fault})"
    return None


def _worst_of(dockets: Sequence[Docket | None], target: Target, limit: float) -> Ruling:
    """Return the worst ruling of a check over several parts of the rows."""
    return worst(find(docket, target, limit, None).ruling for docket in dockets if docket)


def _suffers_from_lateness(target: Target) -> bool:
    metric: Metric = target.check.expression.metric
    match metric:
        case Latency():
            return metric.clock == "due"
        case Ratio():
            return any(bound.latency.clock == "due" for bound in target.check.expression.bounds)
        case _:
            return False


def _twice(ruled: Sequence[_Ruled]) -> list[Twice]:
    return [
        Twice(
            target=one.target,
            limit=one.limit,
            from_due=one.finding.ruling,
            from_sent=one.from_sent,
            regardless=one.regardless,
            undisturbed=one.undisturbed,
            kept_up=one.kept_up,
        )
        for one in ruled
        if one.limit is not None
    ]


def _check_ruling(one: _Ruled) -> CheckRuling:
    check, finding = one.target.check, one.finding
    expression = check.expression
    return CheckRuling(
        expr=expression.text,
        name=check.name,
        level=check.level,
        tenant=one.target.tenant,
        gpu=one.target.gpu,
        node=one.target.node,
        phase=expression.phase,
        ruling=finding.ruling,
        measured=finding.measured,
        limit=_base_limit(one),
        because=finding.because,
        mend=finding.mend,
        file=str(check.spot.path),
        line=check.spot.line,
    )


def _base_limit(one: _Ruled) -> float | None:
    """Return the limit in the unit of what was measured: a share of a GPU is that GPU's bytes."""
    expression = one.target.check.expression
    limit = one.finding.limit_bytes if expression.limit.of_gpu else one.limit
    return None if limit is None else base_units(expression.metric.unit, limit)
