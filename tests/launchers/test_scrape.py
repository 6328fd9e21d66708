from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.scrape import (
    KV_USAGE,
    PREEMPTIONS,
    QUEUE_COUNT,
    QUEUE_SUM,
    RUNNING,
    WAITING,
    Scrape,
    says_something,
    series,
)
from slas.evidence import EngineSample

PAGE = Path(__file__).with_name("fixtures") / "vllm-0.32.0-cpu.metrics"

names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,20}", fullmatch=True)
keys = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True)
# a page is read line by line, and other line ends than \n stand in no label of a real exporter
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"]))


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(names, st.dictionaries(keys, st.one_of(texts, st.just('a\n"\\,}={'))), st.floats())
def test_what_is_written_is_read(name: str, labels: dict[str, str], value: float) -> None:
    inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
    line = f"{name}{{{inside}}} {value!r}\n" if labels else f"{name} {value!r}\n"
    (read,) = series(f"# HELP {name} some words {{}}\n# TYPE {name} gauge\n{line}")
    assert (read.name, read.labels) == (name, labels)
    assert read.value == value or (math.isnan(read.value) and math.isnan(value))


@given(st.text())
def test_no_page_breaks_the_reader(page: str) -> None:
    list(series(page))
    Scrape().read(page, 0)


def test_a_page_of_a_real_vllm() -> None:
    sample = Scrape().read(PAGE.read_text(), 5)
    assert sample.at_ns == 5
    assert (sample.running, sample.waiting, sample.preemptions) == (3.0, 0.0, 0.0)
    assert sample.kv_usage_share == 0.0
    assert sample.queue_seconds_count == 21.0
    assert sample.queue_seconds_sum == pytest.approx(3.3412e-4, rel=1e-3)
    assert says_something(sample)


def test_what_the_engine_does_not_say_is_none() -> None:
    sample = Scrape().read("process_cpu_seconds_total 4\n", 0)
    assert sample.kv_usage_share is None
    assert sample.running is None
    assert sample.preemptions is None
    assert not says_something(sample)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1"])
def test_what_is_no_amount_is_no_value(value: str) -> None:
    names = (*KV_USAGE, *RUNNING, *WAITING, *PREEMPTIONS, *QUEUE_SUM, *QUEUE_COUNT)
    sample = Scrape().read("".join(f"{name} {value}\n" for name in names), 5)
    assert sample == EngineSample(
        at_ns=5, kv_usage_share=None, running=None, waiting=None, preemptions=None
    )
    assert not says_something(sample)


def test_one_engine_without_an_amount_leaves_the_sum_unsaid() -> None:
    scrape = Scrape()
    page = "".join(
        f'{name}{{engine="{engine}"}} {value}\n'
        for name in (*RUNNING, *PREEMPTIONS, KV_USAGE[0])
        for engine, value in ((0, "1"), (1, "NaN"))
    )
    sample = scrape.read(page, 0)
    assert (sample.running, sample.preemptions, sample.kv_usage_share) == (None, None, None)
    assert scrape.read(page.replace("NaN", "2"), 0).preemptions == 3


def test_the_old_names_are_read_and_the_new_ones_win() -> None:
    old = "vllm:gpu_cache_usage_perc 0.5\nvllm:num_preemptions 2\n"
    sample = Scrape().read(old, 0)
    assert (sample.kv_usage_share, sample.preemptions) == (0.5, 2.0)
    assert Scrape().read(f"{old}vllm:kv_cache_usage_perc 0.6\n", 0).kv_usage_share == 0.6


def test_several_engines_add_up_and_the_fullest_cache_counts() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{i}"}} {i}\n'
        f'vllm:num_preemptions_total{{engine="{i}"}} {i}\n'
        f'vllm:kv_cache_usage_perc{{engine="{i}"}} 0.{i}\n'
        for i in range(1, 4)
    )
    sample = Scrape().read(page, 0)
    assert (sample.running, sample.preemptions, sample.kv_usage_share) == (6.0, 6.0, 0.3)


def test_a_counter_that_was_set_back_goes_on() -> None:
    scrape = Scrape()
    seen = [
        scrape.read(f"vllm:num_preemptions_total {raw}\n", 0).preemptions
        for raw in (3, 5, 1, 1, 4, 0)
    ]
    assert seen == [3, 5, 6, 6, 9, 9]


@given(st.lists(st.lists(st.integers(0, 100), min_size=2, max_size=2), min_size=1))
def test_a_counter_never_falls(pages: list[list[int]]) -> None:
    scrape = Scrape()
    last = 0.0
    for raws in pages:
        page = "".join(
            f'vllm:num_preemptions_total{{engine="{i}"}} {raw}\n' for i, raw in enumerate(raws)
        )
        now = scrape.read(page, 0).preemptions
        assert now is not None
        assert now >= last
        assert now >= sum(raws)
        last = now


def test_a_counter_of_a_lost_worker_is_kept() -> None:
    scrape = Scrape()
    both = 'vllm:num_preemptions_total{engine="0"} 2\nvllm:num_preemptions_total{engine="1"} 3\n'
    assert scrape.read(both, 0).preemptions == 5
    assert scrape.read('vllm:num_preemptions_total{engine="0"} 4\n', 0).preemptions == 7


def test_a_page_of_blanks_where_labels_belong_is_read_in_one_pass() -> None:
    [one] = series('x{a="1",' + " " * 300_000 + "!} 3")
    assert (one.labels, one.value) == ({"a": "1"}, 3.0)
