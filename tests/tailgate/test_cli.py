"""The command line's own work: what it refuses, what it prints, and the code every answer ends in."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tailgate import cli
from tailgate.exits import Exit

PROFILE = """\
version: 1
warmup: 2s
duration: 10s
tenants:
  chat: {rate: 20/s, prompt_tokens: 10, output_tokens: 5}
  loop: {concurrency: 2, prompt_tokens: 10, output_tokens: 5}
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE)
    return path


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.answer(list(words))
    captured = capfd.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("run", "--profile", "smoke", "--sla", "smoke"), "--engine"),
        (
            ("run", "--engine", "a", "--url", "b", "--profile", "smoke", "--sla", "smoke"),
            "--engine",
        ),
        (("run", "--url", "http://x", "--profile", "smoke", "--sla", "smoke"), "--model"),
        (
            ("run", "--engine", "a", "--model", "m", "--profile", "smoke", "--sla", "smoke"),
            "--model",
        ),
        (
            (
                *("run", "--engine", "sim-static", "--profile", "smoke", "--sla", "smoke"),
                *("--quick", "--runs", "3"),
            ),
            "--quick",
        ),
        (
            (
                *("run", "--engine", "sim-static", "--profile", "smoke", "--sla", "smoke"),
                *("--api-key-env", "NOT_SET_ANYWHERE"),
            ),
            "NOT_SET_ANYWHERE",
        ),
        (("run", "--url", "x", "--model", "m", "--profile", "smoke", "--sla", "smoke"), "--url"),
        (
            (
                *("run", "--engine", "sim-static", "--profile", "smoke", "--sla", "smoke"),
                *("--dcgm", "nonsense"),
            ),
            "--dcgm",
        ),
        (("run", "--load", "0"), "--load"),
        (("no-such-command",), "no-such-command"),
        (("check", "no/such/run"), "no/such/run"),
        (("schedule", "no-such-profile"), "no-such-profile"),
        (("schema", "nonsense"), "nonsense"),
        (("baseline", "show", "no-such-pin"), "no-such-pin"),
        (("baseline", "pin", "no/such/run", "--name", "a"), "no/such/run"),
        (("launch", "no-such-engine", "--dry-run"), "no-such-engine"),
    ],
)
def test_a_wrong_word_is_exit_2_and_named(
    words: tuple[str, ...],
    fault: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)

    code, out, err = said(capfd, *words)

    assert code == Exit.USAGE
    assert fault in err
    assert "Traceback" not in out + err
    assert not list(tmp_path.iterdir())


def test_a_key_that_no_header_takes_is_told_by_its_variable_alone(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODD_KEY", "s3cret\nline")

    code, out, err = said(
        capfd,
        *("run", "--url", "http://127.0.0.1:1", "--model", "m", "--profile", "smoke"),
        *("--sla", "latency", "--api-key-env", "ODD_KEY"),
    )

    assert code == Exit.USAGE
    assert "ODD_KEY" in err
    assert "s3cret" not in out + err
    assert not list(tmp_path.iterdir())


def test_an_api_that_no_dialect_speaks_is_a_sheet_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sheet = tmp_path / "p.yaml"
    sheet.write_text(PROFILE.replace("rate: 20/s", "rate: 20/s, api: chatt"))

    code, _, err = said(
        capfd, "run", "--engine", "sim-static", "--profile", str(sheet), "--sla", "smoke"
    )

    assert code == Exit.USAGE
    assert "p.yaml:5:27: tenants.chat.api: unknown API 'chatt'" in err
    assert "did you mean 'chat'?" in err
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]


def test_every_command_has_help_with_an_example() -> None:
    def walk(group: click.Group, names: tuple[str, ...]) -> None:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                walk(command, (*names, name))
                continue
            shown = CliRunner().invoke(cli.tailgate, [*names, name, "--help"])
            assert shown.exit_code == 0, name
            assert "tailgate " + " ".join((*names, name)) in shown.output.partition("Example")[2]

    walk(cli.tailgate, ())


def test_schedule_as_json_is_the_plan(profile: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capfd, "schedule", str(profile), "--json", "--seed", "3")

    plan = json.loads(out)
    assert code == Exit.PASS
    assert plan["seed"] == 3
    assert [tenant["name"] for tenant in plan["tenants"]] == ["chat", "loop"]
    assert len(plan["schedule_sha256"]) == 64


def test_schedule_rows_are_the_planned_requests(
    profile: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capfd, "schedule", str(profile), "--rows", str(tmp_path / "rows"))

    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert code == Exit.PASS
    assert out == ""
    assert f"{len(rows):,} planned requests" in err
    assert set(rows[0]) == {
        *("tenant", "phase", "due_ns", "session", "turn", "prompt_tokens", "output_tokens"),
    }
    chat = [row for row in rows if row["tenant"] == "chat"]
    assert [row["due_ns"] for row in chat] == sorted(row["due_ns"] for row in chat)
    assert {row["phase"] for row in chat} == {"warmup", "measure"}
    assert all((row["due_ns"] < 2_000_000_000) == (row["phase"] == "warmup") for row in chat)


def test_schedule_draws_within_the_terminal(
    profile: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capfd, "schedule", str(profile))

    assert code == Exit.PASS
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "closed loop" in out
    assert "█" in out


@pytest.mark.parametrize("kind", ["profile", "sla", "engine"])
def test_schema_is_json_schema(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capfd, "schema", kind)

    assert code == Exit.PASS
    assert json.loads(out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_catalogue_lists_every_sheet_with_its_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = said(capfd, "catalogue", "--json")

    found = json.loads(out)
    assert code == Exit.PASS
    assert {"smoke", "bursty-multitenant", "azure-like-chat", "azure-like-code"} <= set(
        found["profile"]
    )
    assert {"smoke", "interactive", "batch", "seed-claims"} <= set(found["sla"])
    assert {"sim-dynamic", "sim-static"} <= set(found["engine"])
    assert all(line for entries in found.values() for line in entries.values())


def test_a_dry_run_says_what_would_be_started(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capfd, "launch", "sim-static", "--dry-run")

    assert code == Exit.PASS
    assert "launchers.sim" in out
