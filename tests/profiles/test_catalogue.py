"""The catalogue's profiles against the traces they say they are like, figure by figure.

The traces' figures were taken from the whole files of the "Azure LLM Inference Dataset 2023" (percentiles by
rank = ceil(p n), dispersion = variance / mean of the counts in bins); tolerances are shares of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from profiles.profile import SECOND_NS, read_profile
from profiles.schedule import unroll
from profiles.sheet import find

SEEDS = 60
PERCENTS = (10, 50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a trace shows: requests/s, CV of gaps, dispersion at 1, 10 and 60 s, tokens at ``PERCENTS`` and mean."""

    rate_hz: float
    gap_cv: float
    dispersion: tuple[float, float, float]
    prompt_tokens: tuple[float, float, float, float]
    prompt_mean: float
    output_tokens: tuple[float, float, float, float]
    output_mean: float


CHAT = Figures(
    rate_hz=5.53,
    gap_cv=1.09,
    dispersion=(1.39, 3.87, 16.4),
    prompt_tokens=(207, 1020, 2735, 4142),
    prompt_mean=1155,
    output_tokens=(54, 129, 424, 601),
    output_mean=211,
)
CODE = Figures(
    rate_hz=2.57,
    gap_cv=13.2,
    dispersion=(13.2, 71.9, 166.9),
    prompt_tokens=(147, 1469, 5194, 7436),
    prompt_mean=2048,
    output_tokens=(7, 13, 55, 252),
    output_mean=27.9,
)


def planned(name: str) -> Figures:
    """Return the same figures of a profile, pooled over seeds."""
    profile, _ = read_profile(find(name, "profiles"))
    gaps_ns, prompts, outputs = [], [], []
    counts: dict[int, list[int]] = {1: [], 10: [], 60: []}
    for seed in range(SEEDS):
        rows = [row for row in unroll(profile, seed) if row.due_ns is not None]
        prompts += [row.prompt_tokens for row in rows]
        outputs += [row.output_tokens for row in rows]
        due_ns = np.array([row.due_ns for row in rows], dtype=np.int64) - profile.warmup_ns
        due_ns = due_ns[due_ns >= 0]
        gaps_ns += np.diff(due_ns).tolist()
        for bin_s, found in counts.items():
            bins = profile.duration_ns // (bin_s * SECOND_NS)
            found += np.bincount(due_ns // (bin_s * SECOND_NS), minlength=bins).tolist()
    p10, p50, p90, p99 = np.percentile(prompts, PERCENTS).tolist()
    q10, q50, q90, q99 = np.percentile(outputs, PERCENTS).tolist()
    idc_1, idc_10, idc_60 = (float(np.var(found) / np.mean(found)) for found in counts.values())
    return Figures(
        rate_hz=float(np.mean(counts[1])),
        gap_cv=float(np.std(gaps_ns) / np.mean(gaps_ns)),
        dispersion=(idc_1, idc_10, idc_60),
        prompt_tokens=(p10, p50, p90, p99),
        prompt_mean=float(np.mean(prompts)),
        output_tokens=(q10, q50, q90, q99),
        output_mean=float(np.mean(outputs)),
    )


def test_azure_like_chat_is_like_the_conversation_trace() -> None:
    found = planned("azure-like-chat")
    assert found.rate_hz == pytest.approx(CHAT.rate_hz, rel=0.02)
    assert found.gap_cv == pytest.approx(CHAT.gap_cv, rel=0.05)
    assert found.dispersion == pytest.approx(CHAT.dispersion, rel=0.15)
    assert found.prompt_tokens[:3] == pytest.approx(CHAT.prompt_tokens[:3], rel=0.02)
    assert found.prompt_tokens[3] == pytest.approx(CHAT.prompt_tokens[3], rel=0.10)
    assert found.prompt_mean == pytest.approx(CHAT.prompt_mean, rel=0.05)
    assert found.output_tokens == pytest.approx(CHAT.output_tokens, rel=0.02)
    assert found.output_mean == pytest.approx(CHAT.output_mean, rel=0.02)


def test_azure_like_code_is_like_the_code_trace() -> None:
    found = planned("azure-like-code")
    # 60 windows of 3 minutes hold some 850 spells: the sampling error alone is a tenth
    assert found.rate_hz == pytest.approx(CODE.rate_hz, rel=0.15)
    assert found.gap_cv == pytest.approx(CODE.gap_cv, rel=0.15)
    assert found.dispersion == pytest.approx(CODE.dispersion, rel=0.20)
    assert found.prompt_tokens == pytest.approx(CODE.prompt_tokens, rel=0.05)
    assert found.prompt_mean == pytest.approx(CODE.prompt_mean, rel=0.03)
    assert found.output_tokens == pytest.approx(CODE.output_tokens, rel=0.05)
    # between p99 and the largest of 1899 tokens the trace is emptier than the profile
    assert found.output_mean == pytest.approx(CODE.output_mean, rel=0.20)
