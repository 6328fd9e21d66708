"""The side of ``tailgate run --for-locust FD`` that locust sees, without engine, rows or verdict.

``FAKE_TAILGATE`` is JSON: ``said`` (the Quit's exit code; none: no Quit), ``status`` (its own exit status),
``profile`` (for the fake generators), ``argv`` (a file for its arguments), ``early`` (exit at once),
``launch_s`` (deaf for so long before the first job), ``kill_self`` after the first Progress, ``words`` (a file
that gets a line per frame).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from loadgen.frames import Final, Frame, Hello, Inbox, Job, Lost, Progress, Quit, Stop, encode


def job(lane: int, lanes: int, profile_path: str = "{}", run: int = 1) -> Job:
    return Job(
        run=run,
        lane=lane,
        lanes=lanes,
        worker="here",
        run_dir="/nowhere",
        profile_path=profile_path,
        seed=7,
        level_percent=100,
        quick=False,
        url="http://127.0.0.1:1",
        model="m",
        api_key_env=None,
        salt="s",
        start_ns=0,
    )


def frames(end: socket.socket) -> Iterator[Frame]:
    inbox = Inbox()
    while data := end.recv(1 << 16):
        yield from inbox.feed(data)


def main() -> int:
    script = json.loads(os.environ.get("FAKE_TAILGATE", "{}"))
    argv = sys.argv[1:]
    if "argv" in script:
        Path(script["argv"]).write_text(json.dumps(argv))
    status = int(script.get("status", script.get("said", 0)))
    if "early" in script:
        return status
    lanes = int(argv[argv.index("--generators") + 1])
    end = socket.socket(fileno=int(argv[argv.index("--for-locust") + 1]))
    deadline, parent = time.monotonic() + script.get("launch_s", 0), os.getppid()
    while time.monotonic() < deadline and os.getppid() == parent:
        time.sleep(0.1)
    for lane in range(lanes):
        end.sendall(encode(job(lane, lanes, json.dumps(script.get("profile", {})))))
    SIGNALS.end = end
    done = 0
    for frame in frames(end):
        if "words" in script:
            with Path(script["words"]).open("a") as words:
                words.write(f"{frame}\n")
        match frame:
            case Hello():
                pass
            case Progress():
                if "kill_self" in script:
                    os.kill(os.getpid(), signal.SIGKILL)
            case Stop():
                end.sendall(encode(frame))
            case Final():
                done += 1
            case Lost(worker="control"):
                end.sendall(encode(Stop(why="lost")))
            case Lost():
                done += 1
            case _:
                raise ValueError(frame)
        if done == lanes:
            break
    if "said" in script:
        end.sendall(encode(Quit(exit_code=script["said"])))
    return status


class Signals:
    """As the real one: at once before the first job, a drain at the first signal, none at the second."""

    def __init__(self) -> None:
        self.end: socket.socket | None = None
        self.came = 0

    def __call__(self, signum: int, _: object) -> None:
        self.came += 1
        if self.end is None:
            os._exit(128 + signum)
        if self.came == 1:
            self.end.sendall(encode(Stop(why=signal.Signals(signum).name)))
        else:
            self.end.sendall(encode(Quit(exit_code=128 + signum)))
            os._exit(128 + signum)


SIGNALS = Signals()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, SIGNALS)
    signal.signal(signal.SIGTERM, SIGNALS)
    sys.exit(main())
