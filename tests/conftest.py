"""What holds for every test: under CI=true a skip is a failure, unless the test is marked gpu or vllm."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

# two shared cores are noisy: how long an example takes says nothing about it
settings.register_profile("noisy", deadline=None)
settings.load_profile("noisy")

MAY_SKIP = frozenset({"gpu", "vllm"})


def _skips(reporter: Any) -> list[str]:
    lines = []
    for report in reporter.stats.get("skipped", []):
        if MAY_SKIP.isdisjoint(getattr(report, "keywords", ())):  # a skipped module has none
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            lines.append(f"{report.nodeid}: {why}")
    return lines


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in CI in which something was skipped: what CI does not run, nobody runs."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None or not _skips(reporter):
        return
    if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the skips that failed the session."""
    if os.environ.get("CI") == "true" and (skips := _skips(terminalreporter)):
        terminalreporter.section("skipped, which CI counts as failed", red=True)
        for line in skips:
            terminalreporter.line(line)
