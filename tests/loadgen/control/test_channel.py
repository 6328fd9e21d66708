"""Channels in a process of their own: gevent must not enter the interpreter that runs the other tests."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import os, socket as plain
import gevent
from gevent import socket
from loadgen.control.channel import Channel, ChannelError
from loadgen.frames import Quit, Stop, encode
"""


def run(script: str) -> None:
    subprocess.run([sys.executable, "-P", "-c", PRELUDE + script], timeout=60, check=True)


def test_frames_arrive_whole_however_they_are_cut() -> None:
    run("""
ours, theirs = Channel.pair()
line = encode(Stop(why="\\u2028 and \\n")) + encode(Quit(exit_code=5))
def speak():
    for byte in line:
        theirs.send(bytes([byte]))
        gevent.sleep(0)
    theirs.close()
gevent.spawn(speak)
assert list(ours.frames()) == [Stop(why="\\u2028 and \\n"), Quit(exit_code=5)]
""")


def test_long_frames_of_two_greenlets_do_not_mix() -> None:
    run("""
ours, theirs = Channel.pair()
reader = Channel(theirs)
theirs.setblocking(True); os.set_blocking(theirs.fileno(), False)
stops = [Stop(why=letter * 3_000_000) for letter in "abc"]
senders = [gevent.spawn(ours.send, stop) for stop in stops]
heard = []
for frame in reader.frames():
    heard.append(frame)
    if len(heard) == 3:
        break
assert sorted(heard, key=lambda stop: stop.why[0]) == stops
gevent.joinall(senders, raise_error=True)
""")


def test_the_end_for_a_child_blocks_and_ours_is_not_inherited() -> None:
    run("""
ours, theirs = Channel.pair()
assert os.get_blocking(theirs.fileno())
left, right = plain.socketpair()
os.set_inheritable(left.fileno(), True)
descriptor = left.detach()
adopted = Channel.adopt(descriptor)
assert not os.get_inheritable(descriptor)
right.sendall(encode(Quit(exit_code=1)))
assert next(adopted.frames()) == Quit(exit_code=1)
""")


def test_a_lost_peer_is_told_apart_from_a_bad_word() -> None:
    run("""
ours, theirs = Channel.pair()
theirs.close()
assert list(ours.frames()) == []
try:
    ours.send(Quit(exit_code=0))
except ChannelError:
    pass
else:
    raise SystemExit("sent to nobody")
ours, theirs = Channel.pair()
theirs.send(b"[1]\\n")
try:
    list(ours.frames())
except ValueError as fault:
    assert "not a frame" in str(fault)
else:
    raise SystemExit("heard nonsense")
""")


def test_close_ends_a_read_in_another_greenlet() -> None:
    run("""
ours, theirs = Channel.pair()
reading = gevent.spawn(lambda: list(ours.frames()))
gevent.sleep(0.01)
ours.close()
assert reading.get(timeout=30) == []
""")
