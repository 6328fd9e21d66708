from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slas.expression import ExpressionError, Margin, base_units, parse, quantity_text
from slas.metric import METRICS, PLANNED
from slas.quantity import Gauge, Latency, Rate, Ratio, Unit


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "limit"),
    [
        ("ttft.p99 <= 300ms", "ttft", "p99", 300_000_000),
        ("  ttft.p99   <=300 ms ", "ttft", "p99", 300_000_000),
        ("service.ttft.p99.9 < 1.5s", "service.ttft", "p99.9", 1_500_000_000),
        ("e2e.mean <= 2s", "e2e", "mean", 2_000_000_000),
        ("itl.max <= 2m", "itl", "max", 120_000_000_000),
        ("error_rate <= 0.1%", "error_rate", None, 0.001),
        ("rejections <= 5%", "rejections", None, 0.05),
        ("throughput.output_tokens >= 30/min", "throughput.output_tokens", None, 0.5),
        ("vram.peak <= 76GiB", "vram.peak", None, 76 * 2**30),
        ("vram.spike > 30%", "vram.spike", None, 0.3),
        ("queue.time <= 250us", "queue.time", None, 250_000),
        ("queue.peak <= 8", "queue.peak", None, 8),
        ("kv.peak <= 90%", "kv.peak", None, 0.9),
    ],
)
def test_forms(text: str, metric: str, statistic: str | None, limit: float) -> None:
    promise = parse(text)
    assert promise.metric.name == metric
    assert (promise.statistic.text if promise.statistic else None) == statistic
    assert promise.limit.value == limit
    assert not promise.limit.relative


def test_percentiles_are_exact() -> None:
    statistic = parse("ttft.p97.5 <= 1s").statistic
    assert statistic is not None
    assert statistic.share == Fraction(975, 1000)


def test_selectors() -> None:
    promise = parse("ttft.p99{tenant=chat, phase=burst} <= 300ms")
    assert (promise.tenant, promise.phase) == ("chat", "burst")
    assert parse("ttft.p99{tenant=*} <= 1s").tenant == "*"
    gpu = parse("vram.peak{gpu=0,node=a-1} <= 85%")
    assert (gpu.gpu, gpu.node, gpu.limit.of_gpu) == ("0", "a-1", True)


def test_goodput_bounds_itl_by_the_longest_gap() -> None:
    promise = parse("goodput(ttft <= 500ms, itl < 60ms){tenant=chat} >= 99%")
    assert [(b.latency.name, b.strict, b.limit_ns) for b in promise.bounds] == [
        ("ttft", False, 500_000_000),
        ("stall", True, 60_000_000),
    ]
    assert promise.tenant == "chat"
    assert not promise.upper


def test_baselines() -> None:
    assert parse("ttft.p99 <= baseline + 10%").limit.margins == (Margin(relative=True, amount=0.1),)
    assert parse("throughput.requests >= baseline - 1/s").limit.margins == (
        Margin(relative=False, amount=-1.0),
    )
    both = parse("ttft.p99 <= baseline + 10% or + 5ms").limit
    assert both.beside(10_000_000, upper=True) == 15_000_000
    assert both.beside(100_000_000, upper=True) == pytest.approx(110_000_000)
    points = parse("error_rate <= baseline + 10% or + 0.1pp").limit
    assert points.beside(0.0, True) == pytest.approx(0.001)
    assert points.beside(0.5, True) == pytest.approx(0.55)
    assert parse("error_rate <= baseline + 1 pp").limit.margins == (
        Margin(relative=False, amount=0.01),
    )
    assert parse("kv.peak >= baseline - 2.5pp").limit.beside(0.5, False) == pytest.approx(0.475)
    floor = parse("throughput.requests >= baseline - 5% or - 1/s").limit
    assert floor.beside(100.0, upper=False) == pytest.approx(95.0)
    assert floor.beside(10.0, upper=False) == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("text", "offset", "fault", "mend"),
    [
        ("", 0, "expected a metric", "ttft.p99"),
        ("tfft.p99 <= 1s", 0, "unknown metric 'tfft'", "'ttft'"),
        ("ttft <= 1s", 4, "needs a statistic", "ttft.p99"),
        ("ttft.p0 <= 1s", 5, "no percentile", "ttft.min"),
        ("ttft.p100 <= 1s", 5, "no percentile", "ttft.max"),
        ("ttft.p <= 1s", 5, "no percentile", "p99"),
        ("ttft.avg <= 1s", 5, "no statistic 'avg'", "mean"),
        ("ttft.meen <= 1s", 5, "no statistic 'meen'", "'mean'"),
        ("error_rate.p99 <= 1%", 11, "no statistic 'p99'", "error_rate"),
        ("ttft.p99 <= 300", 12, "no unit", "300ms"),
        ("ttft.p99 <= 30%", 12, "not a duration", "300ms"),
        ("vram.peak <= 30ms", 13, "not a size", "85%"),
        ("kv.peak <= 3GiB", 11, "not a share", "99%"),
        ("queue.peak <= 5%", 14, "not a count", "8"),
        ("throughput.requests >= 5ms", 23, "not a rate", "12/s"),
        ("ttft.p99 <= nan", 12, "nan", "250ms"),
        ("ttft.p99 <= inf", 12, "inf", "250ms"),
        ("ttft.p99 <= -5ms", 12, "negative", "sign"),
        ("ttft.p99 <= 1e3ms", 12, "not a duration", "250ms"),
        ("ttft.p99 <=", 11, "expected a limit", "300ms"),
        ("ttft.p99 == 1s", 9, "'=='", "<="),
        ("ttft.p99 >= 1s", 9, "upper limit", "<="),
        ("ttft.p99 300ms", 9, "expected one of", "LIMIT"),
        ("ttft.p99{tenent=a} <= 1s", 9, "unknown selector 'tenent'", "'tenant'"),
        ("ttft.p99{gpu=0} <= 1s", 9, "cannot be split by gpu", "tenant, phase"),
        ("kv.peak{gpu=0} <= 1%", 8, "cannot be split by gpu", "remove"),
        ("ttft.p99{phase=brust} <= 1s", 15, "unknown phase", "'burst'"),
        ("ttft.p99{tenant=a, tenant=b} <= 1s", 19, "selected twice", "keep one"),
        ("ttft.p99{tenant} <= 1s", 15, "expected '='", "tenant=VALUE"),
        ("ttft.p99{tenant=a <= 1s", 18, "expected ',' or '}'", "'}'"),
        ("vram.peak{gpu=x} <= 1GiB", 14, "no GPU index", "number"),
        ("vram.peak <= 101%", 13, "no more than 100 %", "100%"),
        ("goodput >= 99%", 7, "needs bounds", "goodput("),
        ("goodput(ttft.p99 <= 1s) >= 99%", 12, "no statistic", "ttft"),
        ("goodput(ttft <= 1s, ttft <= 2s) >= 99%", 20, "bounded twice", "tighter"),
        ("goodput(error_rate <= 1s) >= 99%", 8, "no latency", "use one of"),
        ("goodput(lateness <= 1s) >= 99%", 8, "no latency", "use one of"),
        ("goodput(ttft >= 1s) >= 99%", 13, "'>='", "<="),
        ("goodput(ttft <= 1s) >= baseline - 1%", 23, "does not hold goodput", "fixed limit"),
        ("error_rate(ttft <= 1s) <= 1%", 10, "takes no bounds", "parentheses"),
        ("ttft.p99 <= baseline", 20, "expected '+' or '-'", "baseline + 10%"),
        ("ttft.p99 <= baseline + 1pp", 23, "no percentage points", "such as 10%"),
        ("vram.peak <= baseline + 1pp", 24, "no percentage points", "76GiB"),
        ("error_rate <= baseline + 100pp", 25, "less than 100 points", "fewer"),
        ("error_rate <= 1pp", 14, "", "%"),
        ("ttft.p99 <= baseline + 10", 23, "no unit", "10ms"),
        ("ttft.p99 <= baseline - 100%", 23, "nothing is left", "less than"),
        ("ttft.p99 <= baseline + 10% or 5ms", 30, "expected '+' or '-'", "baseline + 10%"),
        ("ttft.p99 <= 1s and more", 15, "left over", "after its limit"),
        ("cost.per_request <= $0.12", 0, "not yet supported", "remove"),
        ("tokens_per_joule >= 3", 0, "not yet supported", "remove"),
    ],
)
def test_faults_stand_at_their_character(text: str, offset: int, fault: str, mend: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert fault in caught.value.fault
    assert mend in caught.value.mend
    assert caught.value.offset == offset


@given(st.text(alphabet="tfp.9{}=<>%+-()* msbaselinor,", max_size=40))
def test_any_text_is_read_or_refused_within_itself(text: str) -> None:
    refused = None
    try:
        parse(text)
    except ExpressionError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.offset <= len(text)
        assert refused.fault
        assert refused.mend


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_can_be_promised(name: str) -> None:
    metric = METRICS[name]
    limit = {
        Unit.SECONDS: "1s",
        Unit.SHARE: "50%",
        Unit.BYTES: "1GiB",
        Unit.PER_SECOND: "1/s",
        Unit.COUNT: "1",
    }[metric.unit]
    bounds = "(ttft <= 1s)" if isinstance(metric, Ratio) and metric.bounded else ""
    statistic = ".p99" if isinstance(metric, Latency) else ""
    promise = parse(f"{name}{statistic}{bounds} <= {limit}")
    assert promise.metric is metric
    assert isinstance(metric, Latency | Ratio | Rate | Gauge)
    assert metric.name == name
    assert metric.meaning


def test_planned_names_are_not_taken() -> None:
    assert not PLANNED & set(METRICS)


def test_quantities_as_people_write_them() -> None:
    assert quantity_text(Unit.SECONDS, 312_000_000) == "312 ms"
    assert quantity_text(Unit.BYTES, 2**30) == "1.00 GiB"
    assert quantity_text(Unit.SHARE, 0.05) == "5.00 %"
    assert quantity_text(Unit.PER_SECOND, 12) == "12.0/s"
    assert quantity_text(Unit.COUNT, 1200) == "1,200"
    assert base_units(Unit.SECONDS, 2_000_000_000) == 2.0
    assert base_units(Unit.BYTES, 5) == 5
