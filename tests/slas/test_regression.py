from dataclasses import replace
from typing import Any

import pytest

from slas.check import rule
from slas.evidence import Evidence, Subject
from slas.measurement import histograms, measure
from slas.regression import Baseline, objections
from slas.ruling import Ruling
from tests.slas.runs import GIB, MS, check, evidence, memory, rows, sla

SUBJECT = evidence([]).subject


def stored(run: Evidence, **fields: Any) -> Baseline:
    base = Baseline(
        name="main",
        subject=run.subject,
        runs=len(run.runs),
        measurements=measure(run),
        histograms=histograms(run),
    )
    return replace(base, **fields)


PAST = stored(evidence(rows([100 * MS] * 400), memory=tuple(memory())))


@pytest.mark.parametrize(
    ("text", "ttft_ns", "ruling"),
    [
        ("ttft.p99 <= baseline + 10%", 110 * MS, Ruling.PASS),
        ("ttft.p99 <= baseline + 10%", 111 * MS, Ruling.FAIL),
        ("ttft.p99 <= baseline + 5ms", 105 * MS, Ruling.PASS),
        ("ttft.p99 <= baseline + 5ms", 106 * MS, Ruling.FAIL),
        ("ttft.p99 <= baseline + 1% or + 5ms", 105 * MS, Ruling.PASS),
        ("ttft.p99 <= baseline + 1% or + 5ms", 106 * MS, Ruling.FAIL),
        ("ttft.p99 <= baseline - 10%", 90 * MS, Ruling.PASS),
        ("ttft.p99 <= baseline - 10%", 91 * MS, Ruling.FAIL),
        ("ttft.mean <= baseline + 10%", 111 * MS, Ruling.FAIL),
        # a percentile that no measurement holds comes from the histogram
        ("ttft.p97.5 <= baseline + 10%", 109 * MS, Ruling.PASS),
        ("ttft.p97.5 <= baseline + 10%", 111 * MS, Ruling.FAIL),
        ("error_rate <= baseline + 10%", 100 * MS, Ruling.PASS),
        ("throughput.requests >= baseline - 5%", 100 * MS, Ruling.PASS),
        ("vram.peak{gpu=*} <= baseline + 10%", 100 * MS, Ruling.PASS),
        ("ttft.p99{tenant=chat, phase=calm} <= baseline + 10%", 111 * MS, Ruling.FAIL),
    ],
)
def test_point_comparison_with_the_margin(text: str, ttft_ns: int, ruling: Ruling) -> None:
    run = evidence(rows([ttft_ns] * 400), memory=tuple(memory()))
    verdict = rule(sla(text), run, PAST)
    assert verdict.ruling is ruling, verdict.checks[0].because
    assert "baseline main" in verdict.checks[0].because
    assert verdict.checks[0].limit is not None


@pytest.mark.parametrize(
    ("text", "failed", "ruling"),
    [
        # a share of no errors is none
        ("error_rate <= baseline + 10%", 1, Ruling.FAIL),
        ("error_rate <= baseline + 1pp", 4, Ruling.PASS),
        ("error_rate <= baseline + 1pp", 5, Ruling.FAIL),
        ("error_rate <= baseline + 10% or + 1pp", 4, Ruling.PASS),
        ("error_rate <= baseline + 1pp or + 10%", 5, Ruling.FAIL),
        ("error_rate <= baseline + 0.25pp", 1, Ruling.PASS),
    ],
)
def test_percentage_points_beside_a_share_that_may_be_nothing(
    text: str, failed: int, ruling: Ruling
) -> None:
    run = evidence(rows([None] * failed + [100 * MS] * (400 - failed)))
    verdict = rule(sla(text), run, PAST)
    assert verdict.ruling is ruling, verdict.checks[0].because


def test_a_regression_of_memory_or_throughput_fails() -> None:
    more = evidence(rows([100 * MS] * 400), memory=tuple(memory({3: 45 * GIB})))
    assert rule(sla("vram.peak <= baseline + 10%"), more, PAST).ruling is Ruling.FAIL
    assert rule(sla("vram.peak <= baseline + 5GiB"), more, PAST).ruling is Ruling.PASS
    fewer = evidence(rows([100 * MS] * 300))
    assert rule(sla("throughput.requests >= baseline - 5%"), fewer, PAST).ruling is Ruling.FAIL


def test_confidence_does_not_keep_a_comparison_from_being_made() -> None:
    requests = [one for r in (1, 2, 3) for one in rows([111 * MS] * 400, run=r)]
    promise = sla("ttft.p99 <= baseline + 10%", runs=3, confidence=0.95)
    verdict = rule(promise, evidence(requests, runs=3), PAST)
    assert verdict.ruling is Ruling.FAIL
    assert "point to point" in verdict.checks[0].because
    # too few for a confident p99, yet the point comparison stands
    few = [one for r in (1, 2, 3) for one in rows([100 * MS] * 50, run=r)]
    assert rule(promise, evidence(few, runs=3), PAST).ruling is Ruling.PASS


def test_no_baseline_yet_is_skipped_loudly() -> None:
    run = evidence(rows([100 * MS] * 400))
    alone = rule(sla("ttft.p99 <= baseline + 10%"), run, None)
    assert alone.checks[0].ruling is Ruling.SKIPPED
    assert alone.ruling is Ruling.SKIPPED
    assert any(warning.startswith("SKIPPED") for warning in alone.warnings)
    beside = rule(sla("ttft.p99 <= baseline + 10%", "ttft.p99 <= 1s"), run, None)
    assert beside.ruling is Ruling.PASS
    broken = rule(sla("ttft.p99 <= baseline + 10%", "ttft.p99 <= 50ms"), run, None)
    assert broken.ruling is Ruling.FAIL


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (replace(SUBJECT, engine="sglang"), "its engine was sglang, now vllm"),
        (replace(SUBJECT, model="other"), "its model was other, now m"),
        (replace(SUBJECT, gpu_models=("A100",)), "its GPUs was A100, now H100"),
        (replace(SUBJECT, gpu_models=()), "its GPUs was none, now H100"),
        (replace(SUBJECT, schedule_sha256="abd"), "its schedule was abd, now abc"),
    ],
)
def test_other_subjects_do_not_compare(subject: Subject, said: str) -> None:
    run = evidence(rows([100 * MS] * 400))
    verdict = rule(sla("ttft.p99 <= baseline + 10%"), run, replace(PAST, subject=subject))
    assert verdict.ruling is Ruling.INCONCLUSIVE
    assert said in verdict.checks[0].because


def test_versions_may_differ_and_are_shown() -> None:
    older = replace(PAST, subject=replace(SUBJECT, engine_version="0.32"))
    assert objections(older, SUBJECT) == ()
    verdict = rule(sla("ttft.p99 <= baseline + 10%"), evidence(rows([100 * MS] * 400)), older)
    assert verdict.ruling is Ruling.PASS
    assert "engine version 0.32 then, 0.33 now" in verdict.checks[0].because


@pytest.mark.parametrize("fields", [{"quick": True}, {"whole": False}])
def test_quick_and_broken_runs_are_no_baselines(fields: dict[str, Any]) -> None:
    run = evidence(rows([100 * MS] * 400))
    verdict = rule(sla("ttft.p99 <= baseline + 10%"), run, replace(PAST, **fields))
    assert verdict.ruling is Ruling.INCONCLUSIVE


@pytest.mark.parametrize(
    ("past", "text", "said"),
    [
        (evidence(rows([None] * 400)), "ttft.p99 <= baseline + 10%", "above every limit"),
        (
            evidence(rows([*[MS] * 388, *[None] * 12])),
            "ttft.p97.5 <= baseline + 10%",
            "above every limit",
        ),
        (evidence(rows([MS] * 9)), "ttft.p99{phase=burst} <= baseline + 10%", "nothing there"),
        (evidence(rows([MS] * 9)), "ttft.p99{tenant=code} <= baseline + 10%", "does not hold"),
        (evidence(rows([MS] * 9)), "vram.peak <= baseline + 10%", "does not hold"),
        (evidence(rows([MS] * 9)), "kv.peak <= baseline + 10%", "could not measure"),
    ],
)
def test_what_a_baseline_does_not_hold_is_no_limit(past: Evidence, text: str, said: str) -> None:
    verdict = rule(sla(text), evidence(rows([100 * MS] * 400)), stored(past))
    assert verdict.ruling is Ruling.INCONCLUSIVE
    assert said in verdict.checks[0].because


def test_a_should_beside_a_baseline_only_warns() -> None:
    run = evidence(rows([200 * MS] * 400))
    promises = sla("ttft.p99 <= 1s", check("ttft.p99 <= baseline + 10%", level="should"))
    assert rule(promises, run, PAST).ruling is Ruling.PASS
