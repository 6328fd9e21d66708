import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slas.columns import columns_of
from slas.evidence import Outcome
from slas.histogram import bucket_of_us, upper_us
from slas.measurement import Measurement, histograms, measure, merged
from slas.metric import METRICS
from slas.quantity import Latency
from tests.slas.runs import DURATION_NS, MS, WARMUP_NS, S, engine, evidence, memory, row, rows


def found(
    measured: tuple[Measurement, ...],
    metric: str,
    *,
    tenant: str | None = None,
    phase: str | None = None,
    run: int | None = None,
) -> Measurement:
    (one,) = [
        m for m in measured if (m.metric, m.tenant, m.phase, m.run) == (metric, tenant, phase, run)
    ]
    return one


def test_latencies_count_from_due_and_service_from_sent() -> None:
    request = row(due_ns=6 * S, late_ns=7 * MS, ttft_ns=107 * MS, gaps_ns=(10 * MS, 30 * MS))
    measured = measure(evidence([request]))
    assert found(measured, "ttft").p50 == pytest.approx(0.107)
    assert found(measured, "service.ttft").p50 == pytest.approx(0.100)
    assert found(measured, "e2e").p50 == pytest.approx(0.147)
    assert found(measured, "service.e2e").p50 == pytest.approx(0.140)
    assert found(measured, "lateness").p50 == pytest.approx(0.007)
    assert found(measured, "stall").p50 == pytest.approx(0.030)
    assert found(measured, "tpot").p50 == pytest.approx(0.020)
    assert found(measured, "itl").p50 == pytest.approx(0.010)
    assert found(measured, "itl").max == pytest.approx(0.030)


def test_a_reply_ends_at_its_last_token_not_at_its_last_byte() -> None:
    request = row(ttft_ns=100 * MS, gaps_ns=(10 * MS,))
    trailing = replace(request, done_ns=request.done_ns + S)
    measured = measure(evidence([trailing]))
    assert found(measured, "e2e").max == pytest.approx(0.110)
    assert found(measured, "service.e2e").max == pytest.approx(0.110)


def test_reasoning_is_a_token_but_no_output() -> None:
    request = row(ttft_ns=100 * MS)
    assert request.first_ns is not None
    later = replace(request, output_first_ns=request.first_ns + 50 * MS)
    silent = replace(request, ordinal=1, output_first_ns=None)
    measured = measure(evidence([later, silent]))
    assert found(measured, "ttft").max == pytest.approx(0.100)
    ttfo = found(measured, "ttfo")
    assert ttfo.p50 == pytest.approx(0.150)
    assert (ttfo.max, ttfo.failed) == (None, 1)


def test_waiting_for_a_connection_is_latency_but_not_lateness() -> None:
    request = replace(row(late_ns=60 * MS, ttft_ns=160 * MS), connect_ns=55 * MS)
    measured = measure(evidence([request]))
    assert found(measured, "lateness").max == pytest.approx(0.005)
    assert found(measured, "ttft").max == pytest.approx(0.160)


def test_a_connection_that_cannot_be_made_says_nothing_of_lateness() -> None:
    refused = replace(row(outcome=Outcome.REFUSED), sent_ns=None, stage="connect")
    unsent = row(ordinal=1, outcome=Outcome.UNSENT)
    measured = measure(evidence([refused, unsent]))
    lateness = found(measured, "lateness")
    assert (lateness.count, lateness.failed) == (1, 1)


def test_failures_are_above_every_limit_and_in_every_denominator() -> None:
    measured = measure(evidence(rows([100 * MS] * 98 + [None] * 2)))
    ttft = found(measured, "ttft")
    assert (ttft.count, ttft.failed) == (100, 2)
    assert ttft.p95 == pytest.approx(0.1)
    assert (ttft.p99, ttft.max) == (None, None)
    assert found(measured, "error_rate").mean == pytest.approx(0.02)
    assert found(measured, "rejections").mean == pytest.approx(0.02)


def test_means_count_a_failure_as_its_total_timeout_or_longer() -> None:
    quick = row(ttft_ns=1 * S, ordinal=0)
    refused = row(outcome=Outcome.REFUSED, ordinal=1)
    held = replace(row(outcome=Outcome.TIMED_OUT, ordinal=2, due_ns=6 * S), done_ns=6 * S + 90 * S)
    measured = measure(evidence([quick, refused, held]))
    assert found(measured, "ttft").mean == pytest.approx((1 + 60 + 90) / 3)
    # from sent, the same request was open as long, less what it was sent late
    assert found(measured, "service.ttft").mean == pytest.approx((1 + 60 + 90) / 3)


def test_itl_counts_requests_and_a_failure_adds_one_endless_gap() -> None:
    requests = [
        row(ordinal=0, gaps_ns=(10 * MS,) * 98),
        replace(row(ordinal=1, outcome=Outcome.BROKEN), gaps_ns=(10 * MS,), gap_tokens=(1,)),
    ]
    itl = found(measure(evidence(requests)), "itl")
    assert (itl.count, itl.failed) == (2, 1)
    assert itl.p99 == pytest.approx(0.01)
    assert itl.p999 is None
    # 99 gaps of 10 ms and one that never ended, as long as its request's total timeout
    assert itl.mean == pytest.approx((99 * 0.01 + 60) / 100)


def test_a_request_with_one_read_has_no_gap_and_one_token_has_no_tpot() -> None:
    one = row(gaps_ns=())
    measured = measure(evidence([one]))
    for name in ("itl", "stall", "tpot"):
        assert found(measured, name).count == 0
        assert found(measured, name).p50 is None
    assert found(measured, "ttft").count == 1


def test_tpot_divides_by_tokens_not_by_reads() -> None:
    request = replace(row(gaps_ns=(30 * MS,)), output_tokens=7, gap_tokens=(5,))
    assert found(measure(evidence([request])), "tpot").max == pytest.approx(0.005)


def test_only_requests_due_in_the_window_are_measured() -> None:
    end = WARMUP_NS + DURATION_NS
    requests = [
        row(ordinal=0, due_ns=WARMUP_NS - 1, ttft_ns=9 * S),
        row(ordinal=1, due_ns=WARMUP_NS),
        row(ordinal=2, due_ns=end - 1),
        row(ordinal=3, due_ns=end, ttft_ns=9 * S),
    ]
    ttft = found(measure(evidence(requests)), "ttft")
    assert ttft.count == 2
    assert ttft.max == pytest.approx(0.1)


def test_throughput_counts_what_came_within_the_window() -> None:
    # due in the warm-up: first token before the window, four of its five later tokens inside
    straddling = row(ordinal=0, due_ns=WARMUP_NS - S, ttft_ns=S // 2, gaps_ns=(S, S, S, S, 25 * S))
    inside = row(ordinal=1, due_ns=10 * S, ttft_ns=S, gaps_ns=(S,) * 4)
    broken = replace(
        row(ordinal=2, due_ns=12 * S, outcome=Outcome.BROKEN),
        first_ns=13 * S,
        gaps_ns=(S, S),
        gap_tokens=(1, 1),
        output_tokens=3,
    )
    measured = measure(evidence([straddling, inside, broken]))
    seconds = DURATION_NS / S
    assert found(measured, "throughput.requests").mean == pytest.approx(1 / seconds)
    assert found(measured, "throughput.output_tokens").mean == pytest.approx((4 + 5 + 3) / seconds)
    # the broken one lost its usage, the straddling one was prefilled before the window
    assert found(measured, "throughput.total_tokens").mean == pytest.approx(
        (4 + 5 + 3 + 100) / seconds
    )


@pytest.mark.parametrize(
    ("due_ns", "lasts_ns", "counted"),
    [(WARMUP_NS - S, 2 * S, True), (WARMUP_NS - S, S // 2, False), (24 * S, 2 * S, False)],
)
def test_a_request_counts_when_its_last_token_comes(
    due_ns: int, lasts_ns: int, counted: bool
) -> None:
    request = row(due_ns=due_ns, ttft_ns=lasts_ns, gaps_ns=())
    rate = found(measure(evidence([request])), "throughput.requests").mean
    assert rate == pytest.approx(counted / (DURATION_NS / S))


def test_the_servers_token_count_is_spread_over_the_reads() -> None:
    # two reads, one inside the window; the server says they held 10 tokens
    request = replace(row(due_ns=WARMUP_NS - S, ttft_ns=S // 2, gaps_ns=(S,)), output_tokens=10)
    measured = measure(evidence([request]))
    assert found(measured, "throughput.output_tokens").mean == pytest.approx(5 / (DURATION_NS / S))


def test_total_tokens_are_unknown_without_usage() -> None:
    requests = [replace(row(ordinal=0), prompt_tokens=None), row(ordinal=1)]
    measured = measure(evidence(requests))
    assert found(measured, "throughput.total_tokens").mean is None
    assert found(measured, "throughput.output_tokens").mean is not None


def test_parts_add_up() -> None:
    requests = [
        *rows([100 * MS, 200 * MS, None], run=1),
        *rows([300 * MS], run=1, tenant="code", burst=True),
        *rows([400 * MS, 500 * MS], run=2, burst=True),
    ]
    measured = measure(evidence(requests, runs=2))
    whole = found(measured, "ttft")
    assert (whole.count, whole.failed) == (6, 1)
    assert whole.min == pytest.approx(0.1)
    assert found(measured, "ttft", run=2).max == pytest.approx(0.5)
    assert found(measured, "ttft", phase="burst").count == 3
    assert found(measured, "ttft", phase="calm", tenant="code").count == 0
    assert found(measured, "ttft", phase="burst", tenant="chat", run=2).p50 == pytest.approx(0.4)
    errors = found(measured, "error_rate")
    assert errors.mean == pytest.approx(1 / 6)
    assert errors.min == 0.0
    assert errors.max == pytest.approx(1 / 4)


def test_gauges_are_measured_by_place() -> None:
    samples = [*memory({3: 50 * 2**30}), *memory(gpu=1)]
    measured = measure(evidence(rows([MS]), memory=tuple(samples), engine=tuple(engine())))
    peaks = {m.gpu: m.max for m in measured if m.metric == "vram.peak" and m.run is None}
    assert peaks == {0: 50 * 2**30, 1: 40 * 2**30}
    assert found(measured, "kv.peak").max == pytest.approx(0.3)


def test_json_is_the_files_and_comes_back() -> None:
    measured = measure(evidence(rows([MS]), memory=tuple(memory())))
    body = found(measured, "ttft").to_json()
    assert list(body) == [
        "metric", "tenant", "phase", "run", "unit", "count", "failed", "mean",
        "min", "p50", "p90", "p95", "p99", "p99.9", "max",
    ]  # fmt: skip
    assert body["unit"] == "s"
    for one in measured:
        assert Measurement.from_json(one.to_json()) == one


def test_an_empty_run_measures_nothing_and_does_not_fall_over() -> None:
    measured = measure(evidence([]))
    assert found(measured, "ttft").count == 0
    assert found(measured, "error_rate").mean is None
    assert measure(replace(evidence([]), runs=())) != ()


def test_histograms_hold_every_phase_and_leave_failures_to_the_counts() -> None:
    requests = [
        row(ordinal=0, due_ns=0, ttft_ns=7 * MS),
        *rows([100 * MS, None], burst=True, first_ordinal=1),
        *rows([200 * MS], tenant="code"),
    ]
    kept = histograms(evidence(requests))
    assert kept[("ttft", "chat", "warmup", 1)].total == 1
    assert kept[("ttft", "chat", "burst", 1)].total == 1
    assert kept[("ttft", "chat", "calm", 1)].total == 0
    assert kept[("ttft", "code", "calm", 1)].percentile_us(1.0) == upper_us(
        int(bucket_of_us([200_000])[0])
    )
    assert {name for name, *_ in kept} == {
        name for name, metric in METRICS.items() if isinstance(metric, Latency)
    }
    assert merged(kept, "ttft", tenant=None, phase=None).total == 2
    assert merged(kept, "ttft", tenant="chat", phase="burst").total == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(1, 20 * S)), min_size=1, max_size=80))
def test_exact_and_bucketed_percentiles_agree_within_a_bucket(ttfts: list[int | None]) -> None:
    run = evidence(rows(ttfts))
    exact = found(measure(run), "ttft")
    histogram = merged(histograms(run), "ttft", tenant=None, phase=None)
    for share, value in ((0.5, exact.p50), (0.9, exact.p90), (0.99, exact.p99), (1.0, exact.max)):
        bucketed = histogram.percentile_us(share, above=exact.failed)
        if value is None:
            assert bucketed is None
        else:
            assert bucketed == upper_us(int(bucket_of_us([math.ceil(value * 1e6 - 1e-6)])[0]))


def test_a_tenant_that_only_a_row_names_is_not_lost() -> None:
    run = replace(evidence(rows([MS], tenant="ghost")), tenants=("chat",))
    assert found(measure(run), "ttft", tenant="ghost").count == 1


def test_gaps_without_their_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="gaps"):
        columns_of(evidence([replace(row(), gap_tokens=(1,))]))
