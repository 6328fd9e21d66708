"""``locust -f loadgen/locustfile.py`` as a person types it, with everything real behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import loadgen

LOCUSTFILE = Path(loadgen.__file__).with_name("locustfile.py")
PROFILE = """
version: 1
warmup: 1s
duration: 3s
drain: 5s
tenants:
  chat: {rate: 10/s, prompt_tokens: 32, output_tokens: 8}
  code: {rate: 5/s, prompt_tokens: 32, output_tokens: 8}
"""
SLA = """
version: 1
must:
  - error_rate <= 50%
  - throughput.requests >= 1000/s
"""


def test_locust_by_itself_launches_plays_rules_and_exits_with_the_ruling(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "sla.yaml").write_text(SLA)
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "locust", "-f", str(LOCUSTFILE), "--headless"),
            *("--engine", "sim-static", "--profile", "profile.yaml", "--sla", "sla.yaml"),
            *("--generators", "2", "--out", "run"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert verdict["exit_code"] == done.returncode
    assert done.returncode == 99, done.stdout + done.stderr
    assert {path.name for path in (tmp_path / "run" / "requests").iterdir()} == {
        "local-0.jsonl.gz",
        "local-1.jsonl.gz",
    }
    assert "E2E      chat" in done.stderr
    assert "TTFT     code" in done.stderr
