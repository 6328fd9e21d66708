from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loadgen

from .stage import Locust

LOCUSTFILE = Path(loadgen.__file__).with_name("locustfile.py")


def locust(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "locust", "-f", str(LOCUSTFILE), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--master"], {}),
        (["--processes", "2"], {}),
        ([], {"LOCUST_MODE_WORKER": "true"}),
    ],
)
def test_several_locust_processes_are_refused(
    arguments: list[str], environment: dict[str, str]
) -> None:
    done = locust("--headless", *arguments, **environment)
    assert done.returncode == 2
    assert done.stderr.count("comes with a later release") == 1
    assert "Traceback" not in done.stderr


def test_no_generator_is_refused() -> None:
    done = locust("--headless", "--generators", "0")
    assert done.returncode == 2
    assert "at least one generator" in done.stderr


def test_a_channel_that_is_no_socket_is_a_clear_end() -> None:
    done = locust("--headless", "--channel", "0")
    assert done.returncode == 1
    assert "Socket operation on non-socket" in done.stderr


def test_options_reach_tailgate(tmp_path: Path) -> None:
    argv = tmp_path / "argv"
    given = (
        *("--headless", "--url", "http://127.0.0.1:1", "--model", "m", "--profile", "smoke"),
        *("--sla", "smoke", "--seed", "3", "--runs", "2", "--out", "somewhere"),
        *("--baseline", "main", "--quick", "--strict", "-u", "150", "--api-key-env", "KEY"),
    )
    script = {"early": 1, "status": 5, "argv": str(argv)}
    with Locust(*given, environment={"FAKE_TAILGATE": script}) as process:
        assert process.ended()[0] == 5
    run, for_locust, descriptor, *rest = json.loads(argv.read_text())
    assert (run, for_locust) == ("run", "--for-locust")
    assert int(descriptor) > 2
    assert rest == [
        *("--profile", "smoke", "--sla", "smoke", "--url", "http://127.0.0.1:1", "--model", "m"),
        *("--seed", "3", "--runs", "2", "--out", "somewhere", "--baseline", "main"),
        *("--api-key-env", "KEY", "--generators", "1", "--load", "150", "--quick", "--strict"),
    ]


def test_locusts_host_is_the_url(tmp_path: Path) -> None:
    argv = tmp_path / "argv"
    script = {"early": 1, "status": 2, "argv": str(argv)}
    with Locust("--headless", "-H", "http://h:1", environment={"FAKE_TAILGATE": script}) as process:
        assert process.ended()[0] == 2
    rest = json.loads(argv.read_text())[3:]
    assert rest == ["--url", "http://h:1", "--generators", "1", "--load", "100"]
