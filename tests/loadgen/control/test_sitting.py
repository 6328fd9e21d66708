from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadgen.frames import Final, Hello, Lost, Progress, Quit, Stop

from .stage import HERE, Locust, alive, wait_until

RUN = ("--headless", "--engine", "sim-static", "--profile", "smoke", "--sla", "smoke")


def pids_in(words: Path) -> list[int]:
    return [
        int(line.split("pid=")[1].split(",")[0])
        for line in words.read_text().splitlines()
        if line.startswith("Hello")
    ]


def said(words: Path, frame: str) -> bool:
    return words.exists() and frame in words.read_text()


def test_when_tailgate_closes_its_end_nothing_is_left() -> None:
    with Locust(lanes=2) as locust:
        pids = [hello.pid for hello in locust.hear(Hello, 2)]
        locust.play({"seconds": 600}, {"seconds": 600})
        locust.hear(Progress)
        locust.end.close()
        code, words = locust.ended()
        assert code == 1
        assert "gone without a verdict" in words
        assert not any(alive(pid) for pid in pids)


def test_when_tailgate_is_killed_nothing_is_left(tmp_path: Path) -> None:
    # a parent that dies by SIGKILL, as tailgate may: it holds the channel open to the end
    tailgate = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(locustfile=str(HERE / "fake_locustfile.py"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert tailgate.stdout is not None
    pids = json.loads(tailgate.stdout.readline())
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    tailgate.kill()
    tailgate.wait()
    tailgate.stdout.close()
    wait_until(lambda: not any(alive(pid) for pid in pids), "locust and its generators are gone")


PARENT = """
import json, socket, subprocess, sys, time
from loadgen.frames import Hello, Inbox
ours, theirs = socket.socketpair()
locust = subprocess.Popen(
    [sys.executable, "-P", "-m", "locust", "-f", {locustfile!r}, "--headless",
     "--channel", str(theirs.fileno()), "--generators", "2"],
    pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
)
theirs.close()
inbox, pids = Inbox(), [locust.pid]
while len(pids) < 3:
    pids += [frame.pid for frame in inbox.feed(ours.recv(65536)) if isinstance(frame, Hello)]
print(json.dumps(pids), flush=True)
time.sleep(600)
"""


def test_ctrl_c_is_tailgates_when_it_started_locust() -> None:
    with Locust(lanes=1) as locust:
        locust.hear(Hello)
        locust.play({"seconds": 1})
        locust.hear(Progress)
        locust.process.send_signal(signal.SIGINT)
        (final,) = locust.hear(Final)
        assert final.finished
        assert not any(isinstance(frame, Stop) for frame in locust.heard)
        locust.say(Quit(exit_code=0))
        assert locust.ended()[0] == 0


def test_sigterm_goes_up_and_locust_waits_for_the_end() -> None:
    with Locust(lanes=1) as locust:
        locust.hear(Hello)
        locust.play({"seconds": 600})
        locust.hear(Progress)
        locust.process.send_signal(signal.SIGTERM)
        (stop,) = locust.hear(Stop)
        assert stop.why == "SIGTERM"
        locust.say(stop)
        (final,) = locust.hear(Final)
        assert not final.finished
        locust.say(Quit(exit_code=143))
        assert locust.ended()[0] == 143


def test_a_word_that_is_not_tailgates_ends_the_sitting() -> None:
    with Locust(lanes=1) as locust:
        locust.hear(Hello)
        locust.say(Hello(pid=1, loop="", wire=""))
        code, words = locust.ended()
        assert code == 1
        assert "not tailgate's to say" in words


def test_a_fault_of_control_reaches_tailgate_and_the_exit_code() -> None:
    with Locust(lanes=1, environment={"FAKE_BUG": "planted"}) as locust:
        locust.hear(Hello)
        locust.play({"seconds": 600})
        (lost,) = locust.hear(Lost)
        assert lost.worker == "control"
        assert "planted" in lost.why
        locust.say(Quit(exit_code=4))
        assert locust.ended()[0] == 1


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ({"said": 0}, 0),
        ({"said": 99, "status": 0}, 99),
        ({"said": 0, "status": 1}, 1),
        ({"early": 1, "status": 2}, 2),
        ({"early": 1, "status": 0}, 1),
        ({"status": 0}, 1),
        ({"said": 0, "kill_self": 1, "profile": {"seconds": 600}}, 1),
    ],
)
def test_alone_locust_starts_tailgate_and_takes_over_its_exit_code(
    script: dict[str, Any], code: int, tmp_path: Path
) -> None:
    words = tmp_path / "words"
    fake = {"FAKE_TAILGATE": {"words": str(words), **script}}
    with Locust(*RUN, "--generators", "2", environment=fake) as locust:
        assert locust.ended()[0] == code
    if "early" not in script:
        assert pids_in(words)
        assert not any(alive(pid) for pid in pids_in(words))


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_alone_a_signal_stops_the_run_and_keeps_it(
    signum: signal.Signals, code: int, tmp_path: Path
) -> None:
    words = tmp_path / "words"
    script = {"said": 4, "words": str(words), "profile": {"seconds": 600, "drain_s": 0.3}}
    with Locust(*RUN, environment={"FAKE_TAILGATE": script}) as locust:
        wait_until(lambda: said(words, "Progress"), "the run goes")
        locust.process.send_signal(signum)
        status, stderr = locust.ended()
        assert status == code
        assert stderr.count("Error report") == 1, "locust shut down twice"
    assert said(words, "Final(run=1, lane=0, finished=False")
    assert not any(alive(pid) for pid in pids_in(words))


def test_a_signal_ends_a_tailgate_that_waits_for_its_engine(tmp_path: Path) -> None:
    script = {"said": 0, "argv": str(tmp_path / "argv"), "launch_s": 600}
    with Locust(*RUN, environment={"FAKE_TAILGATE": script}) as locust:
        wait_until(lambda: (tmp_path / "argv").exists(), "tailgate is up")
        locust.process.send_signal(signal.SIGINT)
        assert locust.ended()[0] == 130


def test_a_second_ctrl_c_does_not_wait_for_the_drain(tmp_path: Path) -> None:
    words = tmp_path / "words"
    script = {"said": 4, "words": str(words), "profile": {"seconds": 600, "drain_s": 600}}
    with Locust(*RUN, environment={"FAKE_TAILGATE": script}) as locust:
        wait_until(lambda: said(words, "Progress"), "the run goes")
        locust.process.send_signal(signal.SIGINT)
        wait_until(lambda: said(words, "in_flight=0"), "the drain")
        locust.process.send_signal(signal.SIGINT)
        assert locust.ended()[0] == 130
    assert not said(words, "Final")
    assert not any(alive(pid) for pid in pids_in(words))


def test_a_second_sigterm_does_not_wait_for_the_drain() -> None:
    with Locust(lanes=1) as locust:
        locust.hear(Hello)
        locust.play({"seconds": 600, "deaf": 1})
        locust.hear(Progress)
        locust.process.send_signal(signal.SIGTERM)
        locust.say(*locust.hear(Stop))
        locust.process.send_signal(signal.SIGTERM)
        (lost,) = locust.hear(Lost)
        assert "second interrupt" in lost.why
        locust.say(Quit(exit_code=143))
        code, words = locust.ended()
        assert code == 143
        assert "Traceback" not in words
        assert words.count("Shutting down") == 1


def test_locusts_run_time_ends_even_a_tailgate_that_waits_for_its_engine() -> None:
    script = {"said": 0, "launch_s": 600}
    with Locust(*RUN, "-t", "1s", environment={"FAKE_TAILGATE": script}) as locust:
        assert locust.ended()[0] == 130


def test_a_killed_locust_leaves_no_generator(tmp_path: Path) -> None:
    words = tmp_path / "words"
    script = {"said": 4, "words": str(words), "profile": {"seconds": 600}}
    with Locust(*RUN, "--generators", "2", environment={"FAKE_TAILGATE": script}) as locust:
        wait_until(lambda: words.exists() and len(pids_in(words)) == 2, "two generators are up")
        os.kill(locust.process.pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in pids_in(words)), "the generators are gone")
