from __future__ import annotations

import re

from launchers.sim.metrics import Histogram, Metrics, dcgm_page
from launchers.sim.preset import DYNAMIC, STATIC
from launchers.sim.scheduler import Scheduler

from .models import generation, small

S = 1_000_000_000


def value(page: str, name: str, **labels: str) -> float:
    """The one sample of ``name`` that carries ``labels``."""
    found = []
    for line in page.splitlines():
        match = re.fullmatch(r"([^{ ]+)\{(.*)\} (\S+)", line)
        if match and match[1] == name:
            tags = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2]))
            if labels.items() <= tags.items():
                found.append(float(match[3]))
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_a_histogram_is_cumulative_and_an_edge_belongs_to_its_bucket() -> None:
    histogram = Histogram("h", "Help.", (1, 2))
    histogram.observe(1, times=2)
    histogram.observe(1.5)
    histogram.observe(99)
    page = "\n".join(histogram.lines('a="b"'))
    assert [value(page, "h_bucket", le=le) for le in ("1.0", "2.0", "+Inf")] == [2, 3, 4]
    assert value(page, "h_count", a="b") == 4
    assert value(page, "h_sum", a="b") == 102.5


def test_the_counters_follow_requests_through_the_engine() -> None:
    scheduler = Scheduler(STATIC)
    metrics = Metrics(scheduler, model='a"b')
    for number in range(3):
        scheduler.add(generation(number, 100, 10))
    now_ns = 0
    while (step := scheduler.begin(now_ns)) is not None:
        if step.start_ns == 0:
            page = metrics.vllm_page()
            assert value(page, "vllm:num_requests_running", engine="0") == 3
            assert value(page, "vllm:kv_cache_usage_perc") > 0
        got = scheduler.finish(step)
        metrics.step(step, got)
        for one in got:
            if one.gone:
                metrics.finish(one)
        now_ns = step.end_ns
    page = metrics.vllm_page()
    assert value(page, "vllm:prompt_tokens_total", model_name='a\\"b') == 300
    assert value(page, "vllm:generation_tokens_total") == 30
    assert value(page, "vllm:request_success_total", finished_reason="length") == 3
    assert value(page, "vllm:time_to_first_token_seconds_count") == 3
    assert value(page, "vllm:inter_token_latency_seconds_count") == 27
    assert value(page, "vllm:request_queue_time_seconds_count") == 3
    assert value(page, "vllm:num_requests_running") == 0
    assert value(page, "vllm:num_requests_waiting") == 0
    assert value(page, "vllm:num_preemptions_total") == 0
    assert value(page, "tailgate_sim_info", simulated="true", preset="static") == 1
    ttft = value(page, "vllm:time_to_first_token_seconds_sum")
    decode = value(page, "vllm:request_decode_time_seconds_sum")
    e2e = value(page, "vllm:e2e_request_latency_seconds_sum")
    assert abs(ttft + decode - e2e) < 1e-9
    between = value(page, "vllm:inter_token_latency_seconds_sum")
    assert abs(between - decode) < 1e-9


def test_a_prompt_of_several_steps_counts_once() -> None:
    scheduler = Scheduler(small(64, batched_tokens=50))
    metrics = Metrics(scheduler, model="m")
    scheduler.add(generation(0, 220, 2))
    now_ns = 0
    while (step := scheduler.begin(now_ns)) is not None:
        metrics.step(step, scheduler.finish(step))
        now_ns = step.end_ns
    page = metrics.vllm_page()
    assert value(page, "vllm:prompt_tokens_total") == 220
    assert value(page, "vllm:time_to_first_token_seconds_count") == 1
    assert value(page, "vllm:iteration_tokens_total_count") == 6
    assert value(page, "vllm:iteration_tokens_total_sum") == 221


def test_every_gpu_is_on_the_page_in_mib_and_says_that_it_is_simulated() -> None:
    scheduler = Scheduler(DYNAMIC, gpus=2)
    page = dcgm_page(scheduler, gpus=2, host="h", up_ns=10 * S, busy_share=0.5)
    for gpu in ("0", "1"):
        total = value(page, "DCGM_FI_DEV_FB_TOTAL", gpu=gpu)
        parts = [
            value(page, f"DCGM_FI_DEV_FB_{part}", gpu=gpu) for part in ("USED", "FREE", "RESERVED")
        ]
        assert total == sum(parts) == 24 * 1024
        assert abs(parts[0] - scheduler.memory.used_bytes / 2**20) <= 0.5
    assert value(page, "DCGM_FI_DEV_POWER_USAGE", gpu="0") == 89
    assert value(page, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu="0") == 28 * 10 * 1000
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert len({re.findall('UUID="([^"]+)"', line)[0] for line in samples}) == 2
    assert all('modelName="simulated' in line and 'simulated="true"' in line for line in samples)
