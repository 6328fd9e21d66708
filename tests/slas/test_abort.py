from typing import Any

import pytest

from slas.abort import LiveSecond, TenantSecond, Watch
from slas.histogram import BUCKETS, bucket_of_us
from slas.sla import Check
from tests.slas.runs import MS, S, check


def tenant(*, ok: int = 0, bad: int = 0, ttft_ns: int = 100 * MS) -> TenantSecond:
    bucket = int(bucket_of_us([ttft_ns // 1000])[0])
    pairs = ((bucket, ok),) if ok else ()
    return TenantSecond(
        sent=ok + bad, completed=ok, failed=bad, ttft=pairs, itl=pairs, tpot=pairs, e2e=pairs
    )


def second(number: int, **tenants: TenantSecond) -> LiveSecond:
    return LiveSecond(at_ns=number * S + S // 2, tenants=tenants)


def first_break(watch: Watch, seconds: list[LiveSecond]) -> tuple[int, str] | None:
    for live in seconds:
        broken = watch.observe(live)
        if broken is not None:
            return live.at_ns // S, broken.name
    return None


def errors(limit: str = "20%", after_s: int = 10, **fields: Any) -> Check:
    return check(f"error_rate <= {limit}", name="hopeless", abort_after_ns=after_s * S, **fields)


def test_a_promise_broken_over_the_whole_window_ends_the_run() -> None:
    watch = Watch([errors()])
    bad = [second(n, chat=tenant(ok=5, bad=5)) for n in range(30)]
    # ten whole seconds, judged once the eleventh has begun
    assert first_break(watch, bad) == (10, "hopeless")


def test_a_kept_promise_does_not() -> None:
    assert (
        first_break(Watch([errors()]), [second(n, chat=tenant(ok=8, bad=2)) for n in range(60)])
        is None
    )


def test_the_window_slides() -> None:
    calm = [second(n, chat=tenant(ok=10)) for n in range(60)]
    calm += [second(n, chat=tenant(ok=5, bad=5)) for n in range(60, 80)]
    # 20 % of the last ten seconds: after four bad ones there are 20 of 100, after five more than that
    assert first_break(Watch([errors()]), calm) == (65, "hopeless")


def test_a_short_burst_of_errors_passes_by() -> None:
    seconds = [second(n, chat=tenant(ok=10)) for n in range(20)]
    seconds += [second(20, chat=tenant(bad=10))]
    seconds += [second(n, chat=tenant(ok=10)) for n in range(21, 60)]
    assert first_break(Watch([errors()]), seconds) is None


def test_each_check_has_a_window_of_its_own() -> None:
    # 20 requests in two seconds are too few; the ten seconds kept for the other check are not its own
    short = check("error_rate <= 20%", name="short", abort_after_ns=2 * S, min_samples=50)
    long = check("ttft.p50 <= 1s", name="long", abort_after_ns=10 * S)
    seconds = [second(n, chat=tenant(ok=6, bad=4)) for n in range(30)]
    assert first_break(Watch([short, long]), seconds) is None


def test_the_warm_up_is_left_out() -> None:
    cold = [second(n, chat=tenant(bad=10)) for n in range(10)]
    warm = [second(n, chat=tenant(ok=10)) for n in range(10, 40)]
    assert first_break(Watch([errors()], from_ns=10 * S), [*cold, *warm]) is None
    assert first_break(Watch([errors()]), [*cold, *warm]) == (10, "hopeless")


def test_generators_are_added_up() -> None:
    watch = Watch([errors(after_s=2)])
    seconds = [
        one
        for n in range(10)
        for one in (second(n, chat=tenant(bad=2)), second(n, chat=tenant(ok=18)))
    ]
    assert first_break(watch, seconds) is None


def test_one_failure_among_few_is_no_reason() -> None:
    few = [second(n, chat=tenant(bad=1) if n == 3 else tenant()) for n in range(40)]
    assert first_break(Watch([errors()]), few) is None
    asked = Watch([errors(min_samples=1000)])
    assert first_break(asked, [second(n, chat=tenant(bad=50)) for n in range(40)]) is None


@pytest.mark.parametrize(
    ("text", "ttft_ns", "bad", "broken"),
    [
        ("ttft.p99 <= 200ms", 100 * MS, 0, False),
        ("ttft.p99 <= 200ms", 300 * MS, 0, True),
        ("ttft.p50 <= 200ms", 100 * MS, 9, False),
        ("ttft.p50 <= 200ms", 100 * MS, 30, True),
        ("ttft.p99 <= 200ms", 100 * MS, 1, True),
        ("itl.mean <= 200ms", 300 * MS, 0, True),
        ("itl.mean <= 200ms", 100 * MS, 5, False),
        ("tpot.max <= 200ms", 300 * MS, 0, True),
        ("e2e.min <= 200ms", 300 * MS, 0, True),
        # a bucket counts at its lower edge: 300.000 ms lies in one that begins at 299.776 ms
        ("ttft.p99 <= 299900us", 300 * MS, 0, False),
    ],
)
def test_latencies(text: str, ttft_ns: int, bad: int, broken: bool) -> None:
    watch = Watch([check(text, abort_after_ns=5 * S)])
    seconds = [second(n, chat=tenant(ok=20, bad=bad, ttft_ns=ttft_ns)) for n in range(20)]
    assert (first_break(watch, seconds) is not None) is broken


def test_tenants_are_watched_as_selected() -> None:
    seconds = [second(n, chat=tenant(ok=100), code=tenant(ok=2, bad=8)) for n in range(20)]
    assert first_break(Watch([errors()]), seconds) is None
    for selector, broken in (("code", True), ("chat", False), ("*", True)):
        one = check(f"error_rate{{tenant={selector}}} <= 20%", abort_after_ns=10 * S)
        assert (first_break(Watch([one]), seconds) is not None) is broken


def test_values_over_the_range_break_every_limit() -> None:
    endless = TenantSecond(
        sent=9, completed=9, failed=0, ttft=((BUCKETS - 1, 9),), itl=(), tpot=(), e2e=()
    )
    watch = Watch([check("ttft.p50 <= 1h", abort_after_ns=2 * S)])
    assert first_break(watch, [second(n, chat=endless) for n in range(9)]) is not None


def test_checks_without_abort_after_are_not_watched() -> None:
    watch = Watch([check("error_rate <= 0%")])
    assert first_break(watch, [second(n, chat=tenant(bad=99)) for n in range(60)]) is None


def test_silence_is_no_reason() -> None:
    watch = Watch([errors(), check("ttft.p99 <= 1ms", abort_after_ns=10 * S)])
    assert first_break(watch, [second(n) for n in range(60)]) is None
