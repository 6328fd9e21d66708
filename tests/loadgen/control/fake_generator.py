"""A generator that sends nothing: says what a real one says, and misbehaves as the job's profile_path asks.

``profile_path`` is JSON: ``seconds`` until its Final, ``drain_s`` after a Stop, ``deaf`` (no Final after a Stop),
``crash`` (exit status, at the job), ``nonsense`` (a line that is no frame). It has nothing in flight once stopped.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

from loadgen.frames import (
    Final,
    Frame,
    Hello,
    Inbox,
    Job,
    Progress,
    Stop,
    TenantProgress,
    encode,
)

TICK_S = 0.1


class FakeGenerator:
    def __init__(self, descriptor: int) -> None:
        self.end = socket.socket(fileno=descriptor)
        self.inbox = Inbox()
        self.job: Job | None = None
        self.script: dict[str, float] = {}
        self.final_at = 0.0
        self.finished = True
        self.seconds = 0

    def say(self, frame: Frame) -> None:
        self.end.sendall(encode(frame))

    def heed(self, frame: Frame) -> None:
        match frame:
            case Job():
                self.job = frame
                self.script = json.loads(frame.profile_path)
                self.final_at = time.monotonic() + self.script.get("seconds", 0.3)
                self.finished = True
                self.seconds = 0
                if "crash" in self.script:
                    sys.exit(int(self.script["crash"]))
                if "nonsense" in self.script:
                    self.end.sendall(b'{"frame":"Gossip"}\n')
            case Stop() if self.job is not None and "deaf" not in self.script:
                self.finished = False
                self.final_at = time.monotonic() + self.script.get("drain_s", 0.0)
            case Stop():
                pass
            case _:
                raise ValueError(frame)

    def tick(self) -> None:
        if self.job is None:
            return
        self.seconds += 1
        second = TenantProgress(
            due=3,
            sent=3,
            completed=2,
            failed=1,
            ttft=((100, 2),),
            itl=((50, 8),),
            tpot=((50, 2),),
            e2e=((2000, 1), (3000, 1)),
        )
        self.say(
            Progress(
                run=self.job.run,
                lane=self.job.lane,
                at_ns=0,
                in_flight=1 if self.finished else 0,
                events=10,
                lateness_max_ns=0,
                loop_lag_max_ns=0,
                tenants={"chat": second},
                failures=(("chat", "refused", "503", 1),),
            )
        )
        if time.monotonic() >= self.final_at:
            self.say(
                Final(
                    run=self.job.run,
                    lane=self.job.lane,
                    finished=self.finished,
                    rows=3 * self.seconds,
                    planned={"chat": 3 * self.seconds},
                    end_ns=0,
                )
            )
            self.job = None

    def serve(self) -> None:
        self.say(Hello(pid=os.getpid(), loop="fake", wire="fake"))
        while True:
            readable, _, _ = select.select([self.end], [], [], TICK_S)
            if readable:
                data = self.end.recv(1 << 16)
                if not data:
                    return
                for frame in self.inbox.feed(data):
                    self.heed(frame)
            self.tick()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    FakeGenerator(int(sys.argv[sys.argv.index("--channel") + 1])).serve()
