from __future__ import annotations

import pytest

from loadgen.generator.sse import EventStream


def at_boundary(stream: EventStream) -> bool:
    return stream.at_boundary


def whole(data: bytes) -> list[bytes]:
    return EventStream(most_events=1000).feed(data)


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a \n\n", [b" a "]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b": ping\n\n", []),
        (b":\n:\n\ndata: a\n\n", [b"a"]),
        (b"event: x\nid: 1\nretry: 5\n\n", []),
        (b"event: error\ndata: a\n\n", [b"a"]),
        (b"data\n\n", [b""]),
        (b"data: \n\n", [b""]),
        (b"database: x\n\n", []),
        (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\ndata: cut off", [b"a"]),
        ("data: a\u2028b\u0085c\n\n".encode(), ["a\u2028b\u0085c".encode()]),
        (b"data: a\x00b\x0bc\x1cd\n\n", [b"a\x00b\x0bc\x1cd"]),
    ],
)
def test_what_the_specification_says(data: bytes, events: list[bytes]) -> None:
    assert whole(data) == events


@pytest.mark.parametrize(
    "data",
    [
        b"data: a\r\n\r\ndata: b\r\n\r\n",
        b"data: a\r\rdata: b\r\r",
        "\ufeffdata: é…\n: c\n\ndata: 😀\ndata:x\n\n".encode(),
    ],
)
def test_cut_anywhere_it_is_the_same(data: bytes) -> None:
    expected = whole(data)
    assert len(expected) == 2
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            stream = EventStream(most_events=1000)
            parts = (data[:first], data[first:second], data[second:])
            assert [event for part in parts for event in stream.feed(part)] == expected


def test_an_event_is_out_with_the_byte_that_ends_it() -> None:
    stream = EventStream(most_events=1000)
    assert not at_boundary(stream)
    assert stream.feed(b"data: a\n") == []
    assert not at_boundary(stream)
    assert stream.feed(b"\n") == [b"a"]
    assert at_boundary(stream)
    assert stream.feed(b"data: b\r\r") == [b"b"]
    assert not at_boundary(stream), "a line feed may still belong to the last carriage return"
