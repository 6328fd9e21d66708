"""Values that a run may hold, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from slas.evidence import EngineSample, HealthSample, MemorySample, Outcome, Phase, RequestRow

_ns = st.integers(0, 10**15)
_maybe_ns = st.none() | _ns
# servers say anything: line separators, control characters, any script
_words = st.none() | st.text(st.characters(codec="utf-8"), max_size=30)
_gaps = st.lists(st.tuples(_ns, st.integers(1, 500)), max_size=8)


@st.composite
def rows(draw: st.DrawFn) -> RequestRow:
    gaps = draw(_gaps)
    return RequestRow(
        run=draw(st.integers(0, 9)),
        tenant=draw(st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=12)),
        phase=draw(st.sampled_from(Phase)),
        burst=draw(st.booleans()),
        ordinal=draw(st.integers(0, 10**9)),
        session=draw(st.text(max_size=12)),
        turn=draw(st.integers(0, 50)),
        due_ns=draw(_ns),
        connect_ns=draw(_maybe_ns),
        sent_ns=draw(_maybe_ns),
        first_ns=draw(_maybe_ns),
        output_first_ns=draw(_maybe_ns),
        last_ns=draw(_maybe_ns),
        done_ns=draw(_ns),
        outcome=draw(st.sampled_from(Outcome)),
        status=draw(st.none() | st.integers(100, 599)),
        stage=draw(_words),
        why=draw(_words),
        finish=draw(_words),
        prompt_tokens=draw(st.none() | st.integers(0, 10**6)),
        output_tokens=draw(st.integers(0, 10**6)),
        client_tokens=draw(st.none() | st.integers(0, 10**6)),
        output_planned=draw(st.integers(0, 10**6)),
        usage_from=draw(st.sampled_from(("server", "client"))),
        gaps_ns=tuple(ns for ns, _ in gaps),
        gap_tokens=tuple(tokens for _, tokens in gaps),
        reused_connection=draw(st.booleans()),
    )


memory_samples = st.builds(
    MemorySample,
    before_ns=_ns,
    after_ns=_ns,
    node=st.text(max_size=12),
    gpu=st.integers(0, 15),
    used_bytes=_maybe_ns,
    total_bytes=_maybe_ns,
    why=_words,
)
_number = st.none() | st.floats(0, 1e12)
engine_samples = st.builds(
    EngineSample,
    at_ns=_ns,
    kv_usage_share=_number,
    running=_number,
    waiting=_number,
    preemptions=_number,
    queue_seconds_sum=_number,
    queue_seconds_count=_number,
)
health_samples = st.builds(
    HealthSample,
    run=st.integers(0, 9),
    lane=st.text(max_size=12),
    at_ns=_ns,
    loop_lag_ns=st.lists(_ns, max_size=8).map(tuple),
    events=_ns,
    reads=_ns,
    in_flight=_ns,
    run_queue_ns=_maybe_ns,
    steal_share=st.none() | st.floats(0, 1),
)
