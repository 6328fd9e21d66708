"""The command line: what can be asked, and how every answer ends in an exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from launchers.engine import LaunchError
from launchers.secret import api_key
from launchers.sim.command import sim
from launchers.spec import EngineSheet
from profiles.profile import ProfileSheet, read_profile
from profiles.schedule import LevelError
from profiles.sheet import RefusalError, Room, SheetError, catalogue, find, json_schema
from profiles.shelf import ShelfError
from profiles.summary import summarise
from profiles.tracerow import TraceError
from reports import baseline as baselines
from reports.fault import PaperError
from slas.sla import SlaSheet
from tailgate import run as runs
from tailgate.brief import Request
from tailgate.check import check_run, rerender, show_pin
from tailgate.exits import Exit
from tailgate.host import versions
from tailgate.interruption import Interrupted
from tailgate.launch import launch_only
from tailgate.plan import plan_json, plan_rows, show_plan
from tailgate.terminal import terminal, unplug, with_streams

# what a host says when it has run out of something: our run cannot go on, and the engine has no part in it
EXHAUSTED = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE),
        *(errno.ENOMEM, errno.EAGAIN, errno.EIO),
    }
)
SHEETS: dict[str, Any] = {"profile": ProfileSheet, "sla": SlaSheet, "engine": EngineSheet}
ROOMS: dict[Room, str] = {"profiles": "profile", "slas": "sla", "launchers": "engine"}


class Example(click.Command):
    """A command whose help ends with an example that runs."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example under the options."""
        with formatter.section("Example"):
            for line in self.example.strip().splitlines():
                formatter.write(
                    f"{'':>{formatter.current_indent}}{line}\n"
                )  # never wrapped: to be copied


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(versions()["tailgate"], prog_name="tailgate")
def tailgate() -> None:
    """Load-test an LLM serving engine under multi-tenant traffic and rule on its SLA.

    Exit codes: 0 every must holds, 2 usage or sheet error, 3 the engine did not become ready,
    4 INVALID (our own fault), 5 INCONCLUSIVE, 99 a promise is broken, 130/143 interrupted,
    1 a bug in tailgate.
    """


def example(text: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Register a command of ``tailgate`` whose help shows ``text``."""
    return tailgate.command(cls=Example, example=text)


# options that several commands share
with_load = click.option(
    "--load",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="PERCENT",
    help="Load level; 100 is the profile as written.",
)
with_baseline = click.option(
    "--baseline", metavar="B", help="Run directory or pin to compare with."
)
with_strict = click.option(
    "--strict", is_flag=True, help="A broken should is as bad as a broken must."
)
with_seed = click.option(
    "--seed", type=click.IntRange(0), help="Seed of the schedule (profile: seed)."
)


@example(
    "tailgate run --engine sim-static --profile smoke --sla smoke\n"
    "tailgate run --url http://127.0.0.1:8000 --model llama --profile my.yaml --sla my-sla.yaml"
)
@click.option("--engine", metavar="E", help="Engine sheet or catalogue name to start.")
@click.option("--url", metavar="U", help="A server that already runs: its root or its /v1.")
@click.option("--model", metavar="M", help="With --url: the model name that requests use.")
@click.option("--profile", required=True, metavar="P", help="Profile sheet or catalogue name.")
@click.option("--sla", required=True, metavar="S", help="SLA sheet or catalogue name.")
@click.option("--runs", type=click.IntRange(1, 100), help="Runs of the schedule (SLA sheet: runs).")
@with_seed
@with_load
@with_baseline
@click.option("--quick", is_flag=True, help="One run, point evidence, a short profile.")
@with_strict
@click.option("--out", metavar="DIR", help="The run's directory: a new or empty one.")
@click.option(
    "--generators",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Generator processes on this machine.",
)
@click.option("--dcgm", metavar="URL", help="A DCGM exporter's page that watches the GPUs.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key.")
@click.option("--for-locust", type=int, hidden=True)
def run(
    engine: str | None,
    url: str | None,
    model: str | None,
    profile: str,
    sla: str,
    runs: int | None,
    seed: int | None,
    load: int,
    baseline: str | None,
    quick: bool,
    strict: bool,
    out: str | None,
    generators: int,
    dcgm: str | None,
    api_key_env: str | None,
    for_locust: int | None,
) -> int:
    """Play a profile and rule on an SLA.

    Starts the engine (or attaches to --url), replays the profile's traffic at it, and rules.
    """
    if (engine is None) == (url is None):
        raise click.UsageError("give either --engine E, or --url U with --model M")
    if url is not None and model is None:
        raise click.UsageError("--url needs --model: the name that requests use")
    if url is None and model is not None:
        raise click.UsageError("--model goes with --url; an engine sheet names its own model")
    if quick and runs is not None and runs > 1:
        raise click.UsageError("--quick is one run; leave out --runs, or --quick")
    if out == "":
        raise click.UsageError("--out is empty; name a new or empty directory, or leave it out")
    if api_key_env is not None:
        api_key(api_key_env)  # an unfit key is refused before anything starts
    return _run(
        Request(
            engine=engine,
            url=url,
            model=model,
            profile=profile,
            sla=sla,
            runs=runs,
            seed=seed,
            load_percent=load,
            baseline=baseline,
            quick=quick,
            strict=strict,
            out=None if out is None else Path(out),
            generators=generators,
            dcgm_url=dcgm,
            api_key_env=api_key_env,
            for_locust=for_locust,
            argv=tuple(sys.argv[1:]),
        )
    )


def _run(request: Request) -> int:
    return runs.run(request, terminal())


@example("tailgate check runs/2026-11-30T17-41-05Z-7f3a --sla interactive")
@click.argument("run_dir", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--sla", metavar="S", help="Rule on this SLA instead of the run's own.")
@with_baseline
@with_strict
@click.option("--json", "as_json", is_flag=True, help="Print verdict.json instead of a table.")
def check(run_dir: Path, sla: str | None, baseline: str | None, strict: bool, as_json: bool) -> int:
    """Rule again on a stored run.

    No engine is needed; the derived files (report.html, verdict.json, ...) are made again.
    """
    ruled = check_run(run_dir, sla_name=sla, baseline_name=baseline, strict=strict)
    if as_json:
        click.echo((ruled.run_dir.path / "verdict.json").read_text(), nl=False)
    else:
        ruled.show(terminal())
    return ruled.exit_code


@example("tailgate report runs/2026-11-30T17-41-05Z-7f3a")
@click.argument("run_dir", metavar="RUN", type=click.Path(path_type=Path))
def report(run_dir: Path) -> int:
    """Write a run's report again.

    It rules on the run's own SLA and says where report.html is.
    """
    click.echo(rerender(run_dir))
    return Exit.PASS


@example("tailgate schedule bursty-multitenant\ntailgate schedule my.yaml --rows planned.jsonl")
@click.argument("profile", metavar="PROFILE")
@with_seed
@with_load
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--rows",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the planned requests, a JSON line each.",
)
def schedule(profile: str, seed: int | None, load: int, as_json: bool, rows: Path | None) -> int:
    """Show what a profile will send.

    Rates, burstiness, lengths, and the arrivals over time.
    """
    played, _ = read_profile(find(profile, "profiles"))
    used_seed = played.seed if seed is None else seed
    if rows is not None:
        count = plan_rows(played, used_seed, load, rows)
        click.echo(
            f"{count:,} planned requests in {rows}, warm-up and the first of each closed loop included",
            err=True,
        )
    summary = summarise(played, used_seed, load)
    if as_json:
        click.echo(json.dumps(plan_json(played, used_seed, load, summary), indent=2))
    elif rows is None:
        show_plan(terminal(), played, used_seed, load, summary)
    return Exit.PASS


@example("tailgate schema profile > profile.schema.json")
@click.argument("kind", type=click.Choice(sorted(SHEETS)))
def schema(kind: str) -> int:
    """Print the JSON Schema of a sheet, for editors."""
    click.echo(json.dumps(json_schema(SHEETS[kind]), indent=2))
    return Exit.PASS


@tailgate.command("catalogue", cls=Example, example="tailgate catalogue")
@click.option("--json", "as_json", is_flag=True, help="Print the catalogue as JSON.")
def list_catalogue(as_json: bool) -> int:
    """List the sheets that come along.

    Profiles, SLAs and engines, with a line each.
    """
    found = {kind: catalogue(room) for room, kind in ROOMS.items()}
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return Exit.PASS
    width = max(len(name) for entries in found.values() for name in entries)
    for kind, entries in found.items():
        click.echo(f"{kind}s")
        for name, line in sorted(entries.items()):
            click.echo(f"  {name:<{width}}  {line}")
    return Exit.PASS


@tailgate.group()
def baseline() -> None:
    """Pin runs to compare with.

    A pin is a small file in baselines/ of your project, made for git: tailgate baseline pin RUN --name main
    """


@baseline.command(
    cls=Example, example="tailgate baseline pin runs/2026-11-30T17-41-05Z-7f3a --name main"
)
@click.argument("run_dir", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--name", required=True, metavar="NAME", help="Name of the pin: [a-z0-9_-]+.")
@click.option("--replace", is_flag=True, help="Write over the pin of another run.")
def pin(run_dir: Path, name: str, replace: bool) -> int:
    """Keep what a whole run measured as baselines/NAME.json."""
    click.echo(baselines.pin(run_dir, name, replace=replace))
    return Exit.PASS


@baseline.command("list", cls=Example, example="tailgate baseline list")
def list_pins() -> int:
    """List the pins of this project, a line each."""
    for kept in baselines.pins():
        subject = kept.baseline.subject
        click.echo(
            f"{kept.name}  {kept.ruling}  {subject.engine} {subject.model}  {kept.profile}"
            f"  pinned {kept.pinned}"
        )
    return Exit.PASS


@baseline.command(cls=Example, example="tailgate baseline show main")
@click.argument("name", metavar="NAME")
def show(name: str) -> int:
    """Show what a pin is of and what it measured."""
    show_pin(terminal(), name)
    return Exit.PASS


tailgate.add_command(sim, "sim")


@example("tailgate launch sim-static --dry-run")
@click.argument("engine", metavar="ENGINE")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and start nothing.")
def launch(engine: str, dry_run: bool) -> int:
    """Start an engine and hold it.

    It is proved ready and stopped on Ctrl-C; --dry-run only prints the command.
    """
    return launch_only(terminal(), engine, dry_run=dry_run)


def main() -> None:
    """Run the command line and exit with DESIGN 5's code; nothing else calls sys.exit."""
    sys.exit(with_streams(lambda: answer(sys.argv[1:])))


def answer(argv: list[str]) -> int:
    """Return the exit code of one command line; every fault becomes one clear message."""
    err = terminal(stderr=True)
    for word in argv:
        try:
            word.encode()
        except UnicodeEncodeError:
            click.echo(f"tailgate: {os.fsencode(word)!r} is not UTF-8; write it in UTF-8", err=True)
            return Exit.USAGE
    try:
        return int(tailgate.main(argv, prog_name="tailgate", standalone_mode=False) or 0)
    except SheetError as error:
        click.echo(str(error), err=True)
        return Exit.USAGE
    except PaperError as error:
        click.echo(f"tailgate: {error}", err=True)
        return error.exit_code
    except LaunchError as error:
        click.echo(f"tailgate: {error}", err=True)
        return Exit.NOT_READY
    except (LevelError, RefusalError, ShelfError, TraceError) as error:
        click.echo(f"tailgate: {error}", err=True)
        return Exit.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code if error.exit_code != 1 else Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except Interrupted as stop:
        return stop.exit
    except BrokenPipeError:
        unplug(sys.stdout)
        return Exit.PASS
    except OSError as fault:
        click.echo(f"tailgate: {fault}", err=True)
        return Exit.INVALID if fault.errno in EXHAUSTED else Exit.USAGE
    except Exception:  # noqa: BLE001  # the outermost door: a bug is told as one, with its exit code
        err.print(traceback.format_exc(), markup=False, highlight=False)
        click.echo(
            "tailgate: this is a bug in tailgate; please report it with the lines above", err=True
        )
        return Exit.BUG
