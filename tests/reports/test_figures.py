from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree.ElementTree import Element, fromstring

import pytest

from reports.figures import percentile_figure, promises, timeline_figure
from reports.report import Report
from reports.timeline import timelines
from slas.columns import columns_of
from slas.histogram import Histogram
from slas.ruling import CheckRuling, Ruling
from tests.reports.synthetic import synthetic


def histogram_of(*values_us: int) -> Histogram:
    histogram = Histogram()
    for value in values_us:
        histogram.record_us(value)
    return histogram


def classes(image: Element, name: str) -> list[Element]:
    return [element for element in image if name in element.attrib.get("class", "").split()]


def words(image: Element) -> list[str]:
    return [element.text or "" for element in image if element.tag.endswith("text")]


def ends(path: Element) -> list[tuple[float, float]]:
    numbers = [float(part) for part in re.findall(r"[0-9.]+", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_limit_stands_at_its_percentile_with_what_was_measured(report: Report) -> None:
    curves = {"ttft": (histogram_of(*range(100_000, 600_000, 500)), 0)}
    image = fromstring(percentile_figure("chat", curves, promises(report.verdict.checks)))
    (mark,) = classes(image, "mark")
    assert "broken" in mark.attrib["class"]
    (dot,) = classes(image, "dot")
    assert float(dot.attrib["cy"]) < float(mark.attrib["y1"]), "471 ms is above 300 ms"
    assert "ttft 300 ms" in words(image)
    (tick,) = [element for element in image if element.text == "99 %"]
    assert float(tick.attrib["x"]) == pytest.approx(float(dot.attrib["cx"]), abs=0.2)


def test_other_tenants_limits_are_not_drawn(report: Report) -> None:
    curves = {"ttft": (histogram_of(1000), 0), "itl": (histogram_of(1000), 0)}
    image = fromstring(percentile_figure("batch", curves, promises(report.verdict.checks)))
    assert classes(image, "mark") == []


def test_curve_rises_and_ends_at_the_top_where_requests_failed() -> None:
    values = [1000 * (number + 1) for number in range(95)]
    whole = fromstring(percentile_figure(None, {"ttft": (histogram_of(*values), 0)}, ()))
    failed = fromstring(percentile_figure(None, {"ttft": (histogram_of(*values), 5)}, ()))
    for image in (whole, failed):
        (path,) = (element for element in classes(image, "n0") if element.tag.endswith("path"))
        points = ends(path)
        assert points == sorted(points, key=lambda point: (point[0], -point[1]))
        assert all(before[1] >= after[1] for before, after in pairwise(points))
    top = ends(next(e for e in classes(failed, "n0") if e.tag.endswith("path")))[-1]
    assert top[1] == 34.0


def test_pooled_gaps_do_not_stretch_the_axis_nor_fall_off_it() -> None:
    curves = {
        "ttft": (histogram_of(*range(1000, 2000)), 0),
        "itl": (histogram_of(*([500] * 200_000), 90_000), 0),
    }
    image = fromstring(percentile_figure(None, curves, ()))
    (itl,) = (element for element in classes(image, "n2") if element.tag.endswith("path"))
    heights = {y for _, y in ends(itl)}
    assert len(heights) == 1, "the worst gap of 200,001 lies beyond what 1,000 requests can show"


def test_tenant_without_an_answer_says_so() -> None:
    image = fromstring(percentile_figure("chat", {"ttft": (Histogram(), 7)}, ()))
    assert words(image) == ["no request was answered"]


def test_time_line_has_bursts_budgets_limits_and_a_curve_a_gpu(report: Report) -> None:
    evidence = report.evidence
    agreed = promises(report.verdict.checks)
    image = fromstring(timeline_figure(timelines(evidence, columns_of(evidence))[0], agreed))
    said = words(image)
    for expected in ("budget 85.0 %", "limit 400 ms p99 code", "GPU 0", "GPU 1"):
        assert expected in said
    assert "waiting in engine" in said
    assert len(classes(image, "burst")) == 4, "one shade a panel: both tenants burst together"
    assert len(classes(image, "warmup")) == 4


def timeline_of(report: Report, *checks: CheckRuling) -> Element:
    evidence = report.evidence
    drawn = timelines(evidence, columns_of(evidence))[0]
    return fromstring(timeline_figure(drawn, promises(checks)))


def promised(report: Report, expr: str, limit: float | None) -> CheckRuling:
    return replace(report.verdict.checks[0], expr=expr, limit=limit, tenant=None)


def test_words_of_limits_stand_apart_at_the_right_and_no_line_is_drawn_over_them(
    report: Report,
) -> None:
    checks = [
        promised(report, f"ttft.p{share} <= {ms}ms", ms / 1e3)
        for share, ms in ((50, 300), (90, 310), (95, 320), (99, 2000))
    ]
    image = timeline_of(report, *checks)
    near, far = classes(image, "limit-words")
    assert near.text == "limit 300 ms p50; 310 ms p90; 320 ms p95"
    assert far.text == "limit 2.00 s p99"
    assert len(classes(image, "limit")) == 4
    assert {word.attrib["text-anchor"] for word in (near, far)} == {"end"}
    parts = list(image)
    last_line = max(parts.index(line) for line in classes(image, "limit"))
    assert min(parts.index(word) for word in (near, far)) > last_line


def test_words_of_the_highest_limit_stay_below_the_panels_title(report: Report) -> None:
    image = timeline_of(report, promised(report, "ttft.p95 <= 60s", 60.0))
    (title,) = [e for e in classes(image, "title") if "first token" in (e.text or "")]
    (word,) = classes(image, "limit-words")
    assert float(word.attrib["y"]) >= float(title.attrib["y"]) + 14


def test_limits_that_a_baseline_sets_are_drawn(report: Report) -> None:
    image = timeline_of(
        report,
        promised(report, "ttft.p99 <= baseline + 10%", 0.33),
        promised(report, "vram.peak{gpu=*} <= baseline + 2GiB", 60.0 * 2**30),
        promised(report, "ttft.p90 <= baseline + 10%", None),
    )
    said = [word.text for word in classes(image, "limit-words")]
    assert said == ["limit 330 ms p99 (baseline)", "budget 60.0 GiB (baseline)"]


def test_rise_of_memory_has_its_limit_above_the_steady_state(report: Report) -> None:
    spike = replace(promised(report, "vram.spike{gpu=*} <= 30%", 0.3), gpu=0, node="localhost")
    image = timeline_of(report, spike)
    (line,) = classes(image, "limit")
    (word,) = classes(image, "limit-words")
    assert word.text == "spike 30.0 %"
    ticks = {e.text: float(e.attrib["y"]) - 4 for e in classes(image, "tick")}
    per_gib = (ticks["60 GiB"] - ticks["80 GiB"]) / 20
    height_gib = 80 - (float(line.attrib["y1"]) - ticks["80 GiB"]) / per_gib
    # a GPU has 52 GiB in use, give or take one, before the traffic
    assert height_gib == pytest.approx(52 * 1.3, abs=1.5)


def test_series_that_are_no_tenants_have_no_tenants_colour(report: Report) -> None:
    image = timeline_of(report)
    by_name = {
        title.text: e.attrib["class"] for e in image for title in e if e.tag.endswith("path")
    }
    for name in ("p50", "p99", "in flight", "waiting in the engine", "GPU 0", "GPU 1"):
        assert re.search(r"\bc\d", by_name[name]) is None
    for name in ("chat", "code", "batch"):
        assert re.search(r"\bc\d", by_name[name])


def test_words_of_percentile_limits_stand_beside_the_plot(report: Report) -> None:
    curves = {"ttft": (histogram_of(*range(100_000, 600_000, 500)), 0)}
    checks = [
        promised(report, f"ttft.p{share} <= {ms}ms", ms / 1e3)
        for share, ms in ((50, 300), (90, 305), (99, 310))
    ]
    image = fromstring(percentile_figure(None, curves, promises(checks)))
    (axis,) = classes(image, "axis")
    said = classes(image, "mark-words")
    heights = sorted(float(word.attrib["y"]) for word in said)
    assert all(float(word.attrib["x"]) > float(axis.attrib["x2"]) for word in said)
    assert all(after - before > 12 for before, after in pairwise(heights))


def test_run_without_memory_has_no_panel_for_it(report: Report) -> None:
    bare = replace(report.evidence, memory=(), engine=())
    image = fromstring(timeline_figure(timelines(bare, columns_of(bare))[0], ()))
    assert len(classes(image, "warmup")) == 3
    assert not any("memory" in said for said in words(image))


def test_many_tenants_share_colours_and_a_legend() -> None:
    _, evidence = synthetic(tenants=3, duration_s=4)
    many = replace(
        evidence,
        tenants=tuple(f"t{number}" for number in range(12)),
        rows=tuple(
            replace(row, tenant=f"t{number % 12}") for number, row in enumerate(evidence.rows)
        ),
        bursts={},
    )
    image = fromstring(timeline_figure(timelines(many, columns_of(many))[0], ()))
    assert "and 5 more" in words(image)
    assert len([e for e in classes(image, "again") if e.tag.endswith("path")]) == 4


def test_check_that_cannot_be_read_draws_no_limit(report: Report) -> None:
    strange = replace(report.verdict.checks[0], expr="carbon <= 3g", ruling=Ruling.PASS)
    assert promises((strange,)) == ()
