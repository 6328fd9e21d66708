from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from profiles.profile import read_profile
from profiles.schedule import planned_counts
from profiles.summary import dispersion, gap_cv, summarise

S = 10**9
TEXT = """\
version: 1
warmup: 5s
duration: 61s
surges: [{at: 0s, for: 6100ms, factor: 11, tenants: [chat]}]
tenants:
  chat: {rate: 10/s, prompt_tokens: {median: 512, p95: 2000}, output_tokens: 5}
  rare: {rate: 1/h}
  batch: {concurrency: 3, api: completions}
"""


def test_a_schedule_in_figures(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(TEXT)
    profile, _ = read_profile(path)
    summary = summarise(profile, 7, 200)
    chat, rare, batch = summary.tenants
    assert (chat.name, chat.arrivals, chat.concurrency) == ("chat", "poisson", None)
    assert chat.planned_rate_hz == pytest.approx(40)
    assert chat.realised_rate_hz == pytest.approx(40, rel=0.1)
    assert chat.warmup_requests is not None
    assert chat.measured_requests is not None
    counts = planned_counts(profile, 7, 200)
    assert chat.warmup_requests + chat.measured_requests == counts["chat"]
    assert sum(chat.arrivals_per_second) == counts["chat"]
    assert len(chat.arrivals_per_second) == 66
    assert chat.dispersion[60] is None
    assert chat.dispersion[1] is not None
    assert chat.prompt_tokens is not None
    assert chat.prompt_tokens.p50 == pytest.approx(512, rel=0.1)
    assert chat.prompt_tokens.p95 == pytest.approx(2000, rel=0.15)
    assert chat.output_tokens is not None
    assert (chat.output_tokens.p50, chat.output_tokens.max) == (5, 5)
    assert (rare.measured_requests, rare.gap_cv, rare.dispersion[1]) == (0, None, None)
    assert rare.prompt_tokens is None
    assert (batch.concurrency, batch.realised_rate_hz, batch.arrivals_per_second) == (6, None, ())
    assert batch.prompt_tokens is not None
    body = json.loads(json.dumps(summary.to_json()))
    assert body["tenants"][0]["dispersion"].keys() == {"1s", "10s", "60s"}
    assert body["tenants"][0]["prompt_tokens"].keys() == {"p50", "p95", "max"}


def test_figures_of_known_instants() -> None:
    even = np.arange(0, 100 * S, S // 10)
    assert gap_cv(even) == 0
    assert dispersion(even, 100 * S, S) == 0
    assert dispersion(even, 100 * S, 60 * S) is None
    assert gap_cv(even[:2]) is None
    assert gap_cv(np.zeros(5, dtype=np.int64)) is None
    assert dispersion(np.empty(0, dtype=np.int64), 100 * S, S) is None
    # counts 4, 0, 4, 0, ... : mean 2, variance 4 n / (n - 1)
    volleys = np.repeat(np.arange(0, 100, 2) * S, 4)
    assert dispersion(volleys, 100 * S, S) == pytest.approx(2 * 100 / 99)
