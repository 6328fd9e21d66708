from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.fault import FormatError
from reports.hlog import (
    Interval,
    decode,
    encode,
    key_of,
    read_hlog,
    read_intervals,
    tag_of,
    write_hlog,
)
from slas.histogram import BUCKETS, HIGHEST_US, LOWEST_US, Histogram
from tests.reports.synthetic import WALL_NS

values = st.lists(st.integers(0, HIGHEST_US), max_size=60)
pairs = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(1, 2**62), max_size=20).map(
    lambda counts: sorted(counts.items())
)


def histogram_of(values_us: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values_us:
        histogram.record_us(value)
    return histogram


@given(pairs=pairs)
def test_pairs_survive_the_encoding(pairs: list[tuple[int, int]]) -> None:
    assert list(decode(encode(pairs))) == pairs


@given(values_us=values)
def test_encoding_is_the_packages_own(values_us: list[int]) -> None:
    histogram = histogram_of(values_us)
    assert Histogram.decode(encode(histogram.sparse())) == histogram
    assert tuple(decode(histogram.encode())) == histogram.sparse()


@given(values_us=st.lists(st.integers(1, HIGHEST_US), min_size=1, max_size=60))
def test_the_package_reads_what_we_encode(values_us: list[int]) -> None:
    theirs = HdrHistogram.decode(encode(histogram_of(values_us).sparse()).encode())
    expected = HdrHistogram(LOWEST_US, HIGHEST_US, 3)
    for value in values_us:
        expected.record_value(value)
    assert theirs.get_total_count() == len(values_us)
    assert theirs.get_max_value() == expected.get_max_value()
    assert theirs.get_min_value() == expected.get_min_value()
    assert theirs.get_value_at_percentile(50) == expected.get_value_at_percentile(50)


@given(text=st.text(max_size=80) | st.binary(max_size=80).map(lambda b: b.hex()))
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_damage_at_every_character_is_refused_or_read_as_counts() -> None:
    text = encode([(5, 1), (400, 70_000), (BUCKETS - 1, 3)])
    for at in range(len(text)):
        for letter in "A9":
            try:
                assert all(count > 0 for _, count in decode(text[:at] + letter + text[at + 1 :]))
            except ValueError:
                continue
    for size in range(len(text)):
        with pytest.raises(ValueError):
            decode(text[:size])


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="2 digits"):
        decode(HdrHistogram(1, 1000, 2).encode().decode())


def test_tags_come_back_and_never_break_a_line() -> None:
    key = ("service.ttft", "chat", "burst", 12)
    assert tag_of(key) == "service.ttft.chat.burst.r12"
    assert key_of(tag_of(key)) == key
    assert tag_of(("loop_lag", "gpu0.example,x\n", "calm", 0)) == "loop_lag.gpu0_example_x_.calm.r0"
    for tag in ("", "ttft.chat.r0", "ttft.chat.calm.0", "ttft.chat.calm.rx"):
        with pytest.raises(ValueError):
            key_of(tag)


@given(seconds=st.lists(values, min_size=1, max_size=6))
@settings(max_examples=30)
def test_log_is_read_by_the_packages_reader(
    seconds: list[list[int]], tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("hlog") / "run-0.hlog"
    start_s = WALL_NS / 1e9
    histograms = [histogram_of(values_us) for values_us in seconds]
    write_hlog(
        path,
        start_s,
        [
            Interval(
                tag="ttft.chat.calm.r0", start_s=start_s + at, length_s=1.0, pairs=found.sparse()
            )
            for at, found in enumerate(histograms)
        ],
    )
    reader = HistogramLogReader(str(path), HdrHistogram(LOWEST_US, HIGHEST_US, 3))
    try:
        for at, values_us in enumerate(seconds):
            interval = reader.get_next_interval_histogram()
            assert interval.get_tag() == "ttft.chat.calm.r0"
            assert interval.get_total_count() == len(values_us)
            assert interval.get_start_time_stamp() == pytest.approx((start_s + at) * 1000)
            assert interval.get_end_time_stamp() == pytest.approx((start_s + at + 1) * 1000)
        assert reader.get_next_interval_histogram() is None
        assert reader.get_start_time_sec() == pytest.approx(start_s)
    finally:
        reader.close()
    merged = Histogram()
    for histogram in histograms:
        merged.add(histogram)
    assert read_hlog(path) == {"ttft.chat.calm.r0": merged}


def test_log_has_the_lines_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "run-0.hlog"
    write_hlog(
        path,
        1_700_000_000.0,
        [
            Interval(tag="b.t.calm.r0", start_s=1_700_000_001.0, length_s=1.0, pairs=()),
            Interval(tag="a.t.calm.r0", start_s=1_700_000_000.0, length_s=1.0, pairs=[(1000, 2)]),
        ],
    )
    lines = path.read_text().splitlines()
    assert lines[0] == "#[Histogram log format version 1.3]"
    assert lines[1].startswith("#[StartTime: 1700000000.000 (seconds since epoch), ")
    assert lines[2].split(",")[0] == '"StartTimestamp"'
    assert lines[3].startswith("Tag=a.t.calm.r0,1700000000.000,1.000,1.000,HISTFAAA")
    assert lines[4].startswith("Tag=b.t.calm.r0,1700000001.000,1.000,0.000,HISTFAAA")


def test_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run-0.hlog"
    write_hlog(path, 0.0, [Interval(tag="a.t.calm.r0", start_s=0.0, length_s=1.0, pairs=())])
    path.write_text(path.read_text()[:-9] + "\n")
    with pytest.raises(FormatError, match="line 4"):
        list(read_intervals(path))
