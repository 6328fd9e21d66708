from __future__ import annotations

import math
from itertools import pairwise
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.plot import Drawing, Scale, linear_ticks, log_ticks, spread, time_ticks

positive = st.floats(1e-6, 1e9)


@given(high=positive, most=st.integers(2, 8))
def test_linear_ticks_cover_and_are_few(high: float, most: int) -> None:
    ticks = linear_ticks(high, most)
    assert ticks[0] == 0
    assert ticks[-1] >= high * (1 - 1e-6)
    assert 2 <= len(ticks) <= most + 2


@given(end_s=st.floats(1, 86_400))
def test_time_ticks_stay_within_and_are_few(end_s: float) -> None:
    ticks = time_ticks(end_s)
    assert ticks[0] == 0
    assert ticks[-1] <= end_s
    assert len(ticks) <= 10


@given(low=st.floats(1e-6, 10), factor=st.floats(3, 1e6))
def test_log_ticks_stay_within_and_are_few(low: float, factor: float) -> None:
    high = low * factor
    ticks = log_ticks(low, high)
    assert ticks == sorted(ticks)
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in ticks)
    assert 1 <= len(ticks) <= 8


@given(value=st.floats(-1e12, 1e12), log=st.booleans())
def test_scale_keeps_within_its_pixels(value: float, log: bool) -> None:
    scale = Scale(low=0.5, high=900.0, start=300.0, end=20.0, log=log)
    assert 20 <= scale(value) <= 300
    assert scale(0.5) == 300
    assert scale(900) == pytest.approx(20)


@given(places=st.lists(st.floats(0, 100), max_size=12), gap=st.floats(0, 20))
def test_places_are_spread_in_their_order_and_within(places: list[float], gap: float) -> None:
    moved = spread(places, gap, 0.0, 100.0)
    assert len(moved) == len(places)
    room = min(gap, 100 / max(1, len(places) - 1))
    ranked = [place for _, place in sorted(zip(places, moved, strict=True))]
    assert all(after - before >= room - 1e-6 for before, after in pairwise(ranked))
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in moved)


def test_places_that_are_far_apart_stay() -> None:
    assert spread([70.0, 10.0, 30.0], 14.0, 0.0, 100.0) == [70.0, 10.0, 30.0]


def test_pen_is_lifted_where_nothing_was_measured() -> None:
    drawing = Drawing(10, 10, "a <plot>")
    drawing.polyline([(0, 1), (1, math.nan), (2, 3), (4, 5)], "curve", "<&>")
    root = fromstring(drawing.svg())
    (path,) = root
    assert path.attrib["d"] == "M0.0 1.0h1M2.0 3.0L4.0 5.0"
    assert path[0].text == "<&>"
    assert root.attrib["aria-label"] == "a <plot>"


def test_nothing_to_draw_draws_nothing() -> None:
    drawing = Drawing(10, 10, "empty")
    drawing.polyline([(0, math.nan)], "curve")
    assert len(fromstring(drawing.svg())) == 0
