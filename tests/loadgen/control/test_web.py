"""Locust's own page, driven by its own endpoints: press start, see rows, press stop, leave by Ctrl-C."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import urllib.parse
from pathlib import Path
from typing import Any

from .stage import Locust, wait_until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Page:
    """What a browser would do."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, **form: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                method,
                path,
                urllib.parse.urlencode(form),
                {"Content-Type": "application/x-www-form-urlencoded"},
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            return answer.read()
        finally:
            connection.close()

    def up(self) -> bool:
        try:
            self.ask("GET", "/")
        except OSError:
            return False
        return True

    def stats(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.ask("GET", "/stats/requests"))
        return answer

    def state(self) -> str:
        return str(self.stats()["state"])

    def rows(self) -> dict[str, int]:
        return {
            f"{row['method']} {row['name']}": row["num_requests"] for row in self.stats()["stats"]
        }


def frames(words: Path) -> str:
    return words.read_text() if words.exists() else ""


def test_press_start_see_rows_press_stop_and_start_again(tmp_path: Path) -> None:
    words, argv, port = tmp_path / "words", tmp_path / "argv", free_port()
    script = {
        "said": 99,
        "words": str(words),
        "argv": str(argv),
        "profile": {"seconds": 600},
    }
    arguments = ("--web-host", "127.0.0.1", "--web-port", str(port), "--engine", "sim-static")
    with Locust(*arguments, environment={"FAKE_TAILGATE": script}) as locust:
        page = Page(port)
        wait_until(page.up, "the page is up")
        form = page.ask("GET", "/").decode()
        assert "sim-static" in form, "the form offers tailgate's options"
        assert page.state() == "ready"
        page.ask(
            *("POST", "/swarm"),
            user_count="50",
            spawn_rate="50",
            profile="smoke",
            sla="smoke",
            seed="",
            quick="true",
        )
        wait_until(lambda: page.rows().get("E2E chat", 0) > 0, "rows of the tenant")
        assert page.state() == "running"
        assert json.loads(argv.read_text())[3:] == [
            *("--profile", "smoke", "--engine", "sim-static", "--sla", "smoke"),
            *("--generators", "1", "--load", "50", "--quick"),
        ]
        page.ask("POST", "/stop")
        wait_until(lambda: page.state() == "stopped", "locust forgets its cached answer")
        assert "Stop(why='locust was told to stop')" in frames(words)
        assert "finished=False" in frames(words)

        words.unlink()
        page.ask("POST", "/swarm", user_count="100", spawn_rate="100")
        wait_until(lambda: "Progress" in frames(words), "a second run")
        locust.process.send_signal(signal.SIGINT)
        assert locust.ended()[0] == 130


def test_a_run_that_ends_leaves_the_page_up_and_its_exit_code(tmp_path: Path) -> None:
    port = free_port()
    script = {"said": 99, "profile": {"seconds": 0.2}}
    arguments = ("--web-host", "127.0.0.1", "--web-port", str(port), "--autostart")
    with Locust(*arguments, environment={"FAKE_TAILGATE": script}) as locust:
        page = Page(port)
        wait_until(page.up, "the page is up")
        wait_until(lambda: page.state() == "stopped", "the run is over")
        assert page.rows()["E2E chat"] > 0
        locust.process.send_signal(signal.SIGINT)
        assert locust.ended()[0] == 99


def test_a_page_on_which_nothing_ran_exits_with_0() -> None:
    port = free_port()
    with Locust("--web-host", "127.0.0.1", "--web-port", str(port)) as locust:
        wait_until(Page(port).up, "the page is up")
        locust.process.send_signal(signal.SIGINT)
        assert locust.ended()[0] == 0
