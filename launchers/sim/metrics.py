"""What the engine counts, and its two pages: vLLM's metric names, and a DCGM exporter's for its GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from launchers.sim.preset import MIB
from launchers.sim.scheduler import Generation, Scheduler, Step

_S = 1e-9
_LATENCY_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)  # fmt: skip
_FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)  # fmt: skip
_BETWEEN_TOKENS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)  # fmt: skip
_ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_REQUEST_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
_FINISHED = ("stop", "length", "abort", "error", "repetition")
_REJECTED = ("max_num_queued_reqs", "max_num_queued_tokens")


class Histogram:
    """Prometheus' cumulative histogram."""

    def __init__(self, name: str, help_text: str, edges: Sequence[float]) -> None:
        self.name = name
        self._help = help_text
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value`` as often as it was seen."""
        self._counts[bisect_left(self._edges, value)] += times
        self.sum += value * times
        self.count += times

    def lines(self, labels: str) -> Iterable[str]:
        """The text format; ``labels`` come without braces."""
        yield f"# HELP {self.name} {self._help}"
        yield f"# TYPE {self.name} histogram"
        total = 0
        for edge, count in zip((*self._edges, float("inf")), self._counts, strict=True):
            total += count
            shown = "+Inf" if edge == float("inf") else repr(float(edge))
            yield f'{self.name}_bucket{{{labels},le="{shown}"}} {float(total)}'
        yield f"{self.name}_count{{{labels}}} {float(self.count)}"
        yield f"{self.name}_sum{{{labels}}} {self.sum!r}"


class Metrics:
    """The counters that the engine feeds, step by step and request by request."""

    def __init__(self, scheduler: Scheduler, *, model: str) -> None:
        self._scheduler = scheduler
        self._intake_ns = scheduler.preset.timing.intake_ns
        self._labels = f'engine="0",model_name="{_escape(model)}"'
        self._model = f'model_name="{_escape(model)}"'
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished = dict.fromkeys(_FINISHED, 0)
        self.rejected = dict.fromkeys(_REJECTED, 0)
        self.requests = 0
        self.queued = 0
        self.lag_worst_ns = 0
        self.resyncs = 0
        self.first_token = Histogram(
            "vllm:time_to_first_token_seconds", "Time to first token.", _FIRST_TOKEN_S
        )
        self.between_tokens = Histogram(
            "vllm:inter_token_latency_seconds", "Inter-token latency.", _BETWEEN_TOKENS_S
        )
        self.per_token = Histogram(
            "vllm:request_time_per_output_token_seconds",
            "Time per output token of a request.",
            _BETWEEN_TOKENS_S,
        )
        self.e2e = Histogram("vllm:e2e_request_latency_seconds", "End-to-end latency.", _LATENCY_S)
        self.queue = Histogram(
            "vllm:request_queue_time_seconds", "Time in the waiting queue.", _LATENCY_S
        )
        self.prefill = Histogram(
            "vllm:request_prefill_time_seconds", "Time from scheduled to first token.", _LATENCY_S
        )
        self.decode = Histogram(
            "vllm:request_decode_time_seconds", "Time from first to last token.", _LATENCY_S
        )
        self.inference = Histogram(
            "vllm:request_inference_time_seconds", "Time from scheduled to last token.", _LATENCY_S
        )
        self.iteration = Histogram(
            "vllm:iteration_tokens_total", "Tokens computed in a step.", _ITERATION_TOKENS
        )
        self.request_prompt = Histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a request.", _REQUEST_TOKENS
        )
        self.request_generation = Histogram(
            "vllm:request_generation_tokens", "Output tokens of a request.", _REQUEST_TOKENS
        )
        self.request_preemptions = Histogram(
            "vllm:request_num_preemptions", "Preemptions of a request.", _PREEMPTIONS
        )

    def step(self, step: Step, got: Sequence[Generation]) -> None:
        """Count a finished step and the tokens that came out of it."""
        self.generation_tokens += len(got)
        self.iteration.observe(step.prompt_tokens + len(step.decoding))
        if step.regular_gaps:
            self.between_tokens.observe((step.end_ns - step.start_ns) * _S, step.regular_gaps)
        for gap_ns in step.odd_gaps_ns:
            self.between_tokens.observe(gap_ns * _S)
        for generation, _ in step.prefilling:
            if generation.produced == 1 and generation.first_token_ns == step.end_ns:
                self.prompt_tokens += generation.prompt_tokens
                self.cached_tokens += generation.cached
                self.first_token.observe(
                    (step.end_ns - generation.arrived_ns + self._intake_ns) * _S
                )

    def finish(self, generation: Generation) -> None:
        """Count a request that has got all its tokens."""
        self.finished[generation.finish] += 1
        first_ns, last_ns = generation.first_token_ns, generation.last_token_ns
        scheduled_ns = generation.first_scheduled_ns
        assert first_ns is not None
        assert scheduled_ns is not None
        self.queue.observe((scheduled_ns - generation.arrived_ns) * _S)
        self.prefill.observe((first_ns - scheduled_ns) * _S)
        self.decode.observe((last_ns - first_ns) * _S)
        self.inference.observe((last_ns - scheduled_ns) * _S)
        self.e2e.observe((last_ns - generation.arrived_ns + self._intake_ns) * _S)
        if generation.produced > 1:
            self.per_token.observe((last_ns - first_ns) * _S / (generation.produced - 1))
        self.request_prompt.observe(generation.prompt_tokens)
        self.request_generation.observe(generation.produced)
        self.request_preemptions.observe(generation.preemptions)

    def vllm_page(self) -> str:
        """``GET /metrics``: vLLM's names, and our own that say what is simulated."""
        scheduler, labels = self._scheduler, self._labels
        preset, counts = scheduler.preset, scheduler.counts
        blocks = scheduler.memory.ceiling_blocks
        lines: list[str] = []

        def put(name: str, kind: str, help_text: str, *values: tuple[str, float]) -> None:
            lines.append(f"# HELP {name} {help_text}")
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(f"{name}{{{tags}}} {float(value)!r}" for tags, value in values)

        put(
            "tailgate_sim_info",
            "gauge",
            "This engine and its GPUs are simulated.",
            (f'preset="{preset.name}",simulated="true"', 1),
        )
        put(
            "tailgate_sim_lag_seconds_max",
            "gauge",
            "The most that a step came out later than simulated.",
            (labels, self.lag_worst_ns * _S),
        )
        put(
            "tailgate_sim_resyncs_total",
            "counter",
            "How often the simulation fell a second behind and gave the time up.",
            (labels, self.resyncs),
        )
        waiting = len(scheduler.waiting) + self.queued
        put("vllm:num_requests_running", "gauge", "Number of requests in the batch.", (labels, len(scheduler.running)))  # fmt: skip
        put("vllm:num_requests_waiting", "gauge", "Number of requests waiting.", (labels, waiting))
        put(
            "vllm:num_requests_waiting_by_reason",
            "gauge",
            "Number of requests waiting, by reason.",
            (f'{labels},reason="capacity"', waiting),
            (f'{labels},reason="deferred"', 0),
        )
        put("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent.", (labels, scheduler.kv.usage_share))  # fmt: skip
        put(
            "vllm:cache_config_info",
            "gauge",
            "The KV cache's configuration.",
            (
                f'{labels},block_size="{preset.block_tokens}",num_gpu_blocks="{blocks}"',
                1,
            ),
        )
        put("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", (labels, counts.prefix_queries))  # fmt: skip
        put("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", (labels, counts.prefix_hits))  # fmt: skip
        put("vllm:num_preemptions_total", "counter", "Preemptions.", (labels, counts.preemptions))
        put("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", (labels, self.prompt_tokens))  # fmt: skip
        put(
            "vllm:prompt_tokens_by_source_total",
            "counter",
            "Prompt tokens by source.",
            (f'{labels},source="local_compute"', self.prompt_tokens - self.cached_tokens),
            (f'{labels},source="local_cache_hit"', self.cached_tokens),
            (f'{labels},source="external_kv_transfer"', 0),
        )
        put("vllm:prompt_tokens_cached_total", "counter", "Prompt tokens from the cache.", (labels, self.cached_tokens))  # fmt: skip
        put("vllm:generation_tokens_total", "counter", "Output tokens.", (labels, self.generation_tokens))  # fmt: skip
        put(
            "vllm:request_success_total",
            "counter",
            "Requests finished, by reason.",
            *((f'{labels},finished_reason="{name}"', count) for name, count in self.finished.items()),
        )  # fmt: skip
        put(
            "vllm:admission_rejections_total",
            "counter",
            "Requests refused because the queue was full.",
            *((f'{self._model},reason="{name}"', count) for name, count in self.rejected.items()),
        )  # fmt: skip
        for histogram in (
            self.request_prompt,
            self.request_generation,
            self.iteration,
            self.first_token,
            self.between_tokens,
            self.per_token,
            self.e2e,
            self.queue,
            self.inference,
            self.prefill,
            self.decode,
            self.request_preemptions,
        ):
            lines.extend(histogram.lines(labels))
        return "\n".join(lines) + "\n"


def uuid_of(gpu: int) -> str:
    """The made-up UUID of a simulated GPU."""
    return f"GPU-51a10000-0000-4000-8000-{gpu:012x}"


def dcgm_page(scheduler: Scheduler, *, gpus: int, host: str, up_ns: int, busy_share: float) -> str:
    """``GET /dcgm/metrics``: the simulated GPUs as a DCGM exporter would show them, memory in MiB.

    ``up_ns`` is how long the engine has run and ``busy_share`` how much of the last second its GPUs worked.
    Energy is idle power over the whole time and the rest over the time that steps took.
    """
    card = scheduler.preset.card
    used_mib = scheduler.memory.used_bytes / MIB
    reserved_mib = card.reserved_bytes / MIB
    total_mib = card.total_bytes / MIB
    busy_ns = min(up_ns, scheduler.counts.busy_ns)
    energy_mj = 1e3 * _S * (card.idle_w * up_ns + (card.busy_w - card.idle_w) * busy_ns)
    power_w = card.idle_w + (card.busy_w - card.idle_w) * busy_share
    values: tuple[tuple[str, str, str, float], ...] = (
        ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", round(used_mib)),
        ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", round(total_mib) - round(used_mib) - round(reserved_mib)),
        ("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", round(reserved_mib)),
        ("DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory in all (in MiB).", round(total_mib)),
        ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", round(100 * busy_share)),
        ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", round(power_w, 3)),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the start (in mJ).", round(energy_mj)),
    )  # fmt: skip
    lines: list[str] = []
    for name, kind, help_text, value in values:
        lines.append(f"# HELP {name} {help_text}")
        lines.append(f"# TYPE {name} {kind}")
        for gpu in range(gpus):
            lines.append(
                f'{name}{{gpu="{gpu}",UUID="{uuid_of(gpu)}",device="sim{gpu}",'
                f'modelName="{card.name}",Hostname="{_escape(host)}",simulated="true"}} {value}'
            )
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
