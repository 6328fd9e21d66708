"""The locust process as ``tailgate run`` sees it: started or adopted, spoken to in frames, ended."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import loadgen
from loadgen.frames import Frame, Hello, Inbox, Lost, Quit, Stop, encode

LOCUSTFILE = Path(loadgen.__file__).with_name("locustfile.py")
HELLO_WITHIN_S = 60.0
GONE_WITHIN_S = 15.0


class TrafficError(Exception):
    """The load could not be made: our own fault, so the run is INVALID."""


class Traffic:
    """One locust process with ``lanes`` generators behind it."""

    def __init__(
        self, channel: socket.socket, process: subprocess.Popen[bytes] | None, log: Path | None
    ) -> None:
        self._channel = channel
        self._process = process
        self._log = log
        self._inbox = Inbox()
        self.wire = "unknown"

    @classmethod
    def start(cls, *, lanes: int, log: Path, environment: Mapping[str, str]) -> Traffic:
        """Start locust headless on a socketpair; its own words go to ``log``.

        It gets a process group of its own, so that Ctrl-C reaches it as our word and not from the terminal, and
        none of the settings that the user keeps for locust in the environment or in the working directory.
        """
        ours, theirs = socket.socketpair()
        argv = [
            *(sys.executable, "-P", "-m", "locust", "-f", str(LOCUSTFILE), "--headless"),
            *("--channel", str(theirs.fileno()), "--generators", str(lanes)),
        ]
        with log.open("ab") as words:
            process = subprocess.Popen(
                argv,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                env={**_without_locust_settings(), **environment},
                cwd=log.parent,
                process_group=0,
            )
        theirs.close()
        return cls(ours, process, log)

    @classmethod
    def adopt(cls, descriptor: int) -> Traffic:
        """Speak with the locust process that started us and holds the other end of ``descriptor``."""
        return cls(socket.socket(fileno=descriptor), None, None)

    def await_hello(self, lanes: int) -> None:
        """Return when every generator has said that it is up.

        Raises TrafficError if one does not in time.
        """
        deadline = time.monotonic() + HELLO_WITHIN_S
        up = 0
        while up < lanes:
            for frame in self.receive(0.2):
                if isinstance(frame, Hello):
                    up += 1
                    self.wire = frame.wire
                elif isinstance(frame, Stop):
                    raise TrafficError(f"stopped before the first request: {frame.why}")
                elif isinstance(frame, Lost):
                    raise TrafficError(f"{frame.worker}: {frame.why}{self._last_words()}")
            if time.monotonic() > deadline:
                raise TrafficError(
                    f"{up} of {lanes} generators were up after {HELLO_WITHIN_S:.0f} s"
                    f"{self._last_words()}"
                )

    def send(self, frame: Frame) -> None:
        """Send one frame.

        Raises TrafficError if locust is gone.
        """
        try:
            self._channel.sendall(encode(frame))
        except OSError as fault:
            raise TrafficError(
                f"the locust process is gone ({fault}){self._last_words()}"
            ) from None

    def receive(self, within_s: float) -> list[Frame]:
        """Return the frames that arrive within the time; none is an answer too.

        Raises TrafficError if locust is gone or speaks nonsense.
        """
        readable, _, _ = select.select([self._channel], [], [], within_s)
        if not readable:
            return []
        try:
            data = self._channel.recv(1 << 20)
        except OSError as fault:
            raise TrafficError(
                f"the locust process is gone ({fault}){self._last_words()}"
            ) from None
        if not data:
            raise TrafficError(
                f"the locust process is gone{self._exit_words()}{self._last_words()}"
            )
        try:
            return self._inbox.feed(data)
        except ValueError as fault:
            raise TrafficError(f"the locust process spoke no frame: {fault}") from fault

    def quit(self, exit_code: int) -> None:
        """End locust and wait until it is gone; it is killed when it does not go. May be called twice."""
        with contextlib.suppress(OSError):  # it is gone already, which is what was asked
            self._channel.sendall(encode(Quit(exit_code=exit_code)))
        if self._process is not None:
            try:
                self._process.wait(GONE_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._channel.close()

    def _exit_words(self) -> str:
        if self._process is None:
            return ""
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            return ""
        return f" (exit status {status})"

    def _last_words(self) -> str:
        if self._log is None or not self._log.exists():
            return ""
        lines = self._log.read_text(errors="replace").splitlines()[-5:]
        return "".join(f"\n  {line}" for line in lines)


def _without_locust_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
