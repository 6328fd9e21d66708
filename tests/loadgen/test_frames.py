from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.frames import (
    FRAMES,
    LONGEST_LINE_BYTES,
    Final,
    Frame,
    Hello,
    Inbox,
    Job,
    Lost,
    Progress,
    Quit,
    Stop,
    TenantProgress,
    decode,
    encode,
)

COUNTS = st.integers(0, 1 << 60)
PAIRS = st.lists(st.tuples(COUNTS, COUNTS), max_size=3).map(tuple)
TENANTS = st.builds(
    TenantProgress,
    due=COUNTS,
    sent=COUNTS,
    completed=COUNTS,
    failed=COUNTS,
    ttft=PAIRS,
    itl=PAIRS,
    tpot=PAIRS,
    e2e=PAIRS,
)
FAILURES = st.lists(st.tuples(st.text(), st.text(), st.text(), COUNTS), max_size=3).map(tuple)
PLAYED: tuple[st.SearchStrategy[Frame], ...] = (
    st.builds(Job),
    st.builds(Stop),
    st.builds(Quit),
    st.builds(Hello),
    st.builds(Lost),
    st.builds(
        Progress,
        tenants=st.dictionaries(st.text(), TENANTS, max_size=3),
        failures=FAILURES,
    ),
    st.builds(Final, invalid=st.lists(st.text(), max_size=3).map(tuple)),
)
ANY_FRAME = st.one_of(PLAYED)


def test_every_kind_of_frame_is_tried() -> None:
    assert len(PLAYED) == len(FRAMES)


@given(ANY_FRAME)
def test_a_frame_comes_back_the_same(frame: Frame) -> None:
    line = encode(frame)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == frame


@given(st.lists(ANY_FRAME, max_size=4), st.lists(st.integers(0, 4000), max_size=8))
def test_frames_come_back_however_their_bytes_are_cut(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode(frame) for frame in frames)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    inbox = Inbox()
    heard = [frame for start, end in pairwise(edges) for frame in inbox.feed(data[start:end])]
    assert heard == frames


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b"3",
        b"\xff",
        b'{"frame":"Gossip"}',
        b'{"frame":["Quit"],"exit_code":0}',
        b'{"frame":"Quit"}',
        b'{"frame":"Quit","exit_code":0,"more":1}',
        b'{"frame":"Progress","tenants":{"a":{"due":1}},"failures":[]}',
        b'{"frame":"Final","invalid":3}',
    ],
)
def test_what_is_no_frame_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_a_line_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no frame"):
        Inbox().feed(b"x" * (LONGEST_LINE_BYTES + 1))
