"""The command: its options, loading as an engine loads, and the process around the server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
import uvloop

from launchers.sim.fault import Faults
from launchers.sim.preset import PRESETS
from launchers.sim.server import Server, Settings
from profiles.units import UnitError, duration_ns
from profiles.units import share as read_share

log = logging.getLogger("tailgate.sim")


class _Quantity(click.ParamType[float]):
    """An option with a unit, read as everywhere in tailgate."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number behind the words, which may be a default that is a number already."""
        if not isinstance(value, str):
            return float(value) if isinstance(value, float) else int(value)
        try:
            return self._read(value)
        except UnitError as fault:
            self.fail(str(fault), param, ctx)


def _share(text: str) -> float:
    """5% or 0.05."""
    try:
        return float(text)
    except ValueError:
        return read_share(text)


DURATION = _Quantity("duration", duration_ns)
SHARE = _Quantity("share", _share)


class _WithExample(click.Command):
    """A command whose epilog is an example: a line to copy, never wrapped."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example under the options, as the other commands of tailgate do."""
        with formatter.section("Example"):
            formatter.write(f"{'':>{formatter.current_indent}}{self.epilog}\n")


@click.command(
    name="sim",
    cls=_WithExample,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="tailgate sim --port 8000 --preset dynamic",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, help="0 takes a free one.")
@click.option("--host", default="127.0.0.1")
@click.option(
    "--preset",
    "preset_name",
    type=click.Choice(list(PRESETS)),
    default="static",
    help="; ".join(f"{p.name}: {p.summary}" for p in PRESETS.values()),
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    default=1,
    help="GPUs that share the model's weights and KV cache.",
)
@click.option("--seed", type=int, default=0, help="Seeds step times and answers.")
@click.option(
    "--served-model-name",
    "models",
    multiple=True,
    default=("tailgate-sim",),
    help="Name that requests use; may be given again for an alias.",
)
@click.option(
    "--scheduling",
    type=click.Choice(["fcfs", "priority"]),
    default="priority",
    help="priority: lower numbers first.",
)
@click.option(
    "--max-queued",
    type=click.IntRange(0),
    default=None,
    help="Refuse with 503 beyond so many waiting requests.",
)
@click.option(
    "--max-sequences",
    type=click.IntRange(1),
    default=None,
    help="Running requests at most, instead of the preset's.",
)
@click.option(
    "--api-key", default=None, envvar="TAILGATE_SIM_API_KEY", help="Guard /v1 with this bearer key."
)
@click.option("--keep-alive", type=DURATION, default="5s", help="Close connections idle this long.")
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Append a JSON line a request: when it was received and when each token was written.",
)
@click.option("--ready-after", type=DURATION, default="0s", help="Load this long before listening.")
@click.option("--never-ready", is_flag=True, help="Load for ever.")
@click.option(
    "--fail-loading",
    metavar="MESSAGE",
    default=None,
    help="Exit 1 with this message instead of getting ready.",
)
@click.option("--die-after", type=DURATION, default=None, help="Exit so long after getting ready.")
@click.option(
    "--die-after-requests",
    type=click.IntRange(1),
    default=None,
    help="Exit when that many requests have come.",
)
@click.option(
    "--die-status",
    type=click.IntRange(0, 255),
    default=1,
    help="With this status; some engines die with 0.",
)
@click.option(
    "--spare",
    type=click.IntRange(0),
    default=0,
    help="Spare the first so many requests all faults, so that readiness can be proved.",
)
@click.option(
    "--refuse", type=SHARE, default=0.0, help="Share of requests refused at once: 5% or 0.05."
)
@click.option("--refuse-status", type=click.Choice(["429", "500", "503"]), default="503")
@click.option(
    "--error", type=SHARE, default=0.0, help="Share of streams that end with an error event."
)
@click.option(
    "--error-after", type=click.IntRange(0), default=3, help="... after so many tokens of it."
)
@click.option("--cut", type=SHARE, default=0.0, help="Share of streams whose connection is cut.")
@click.option(
    "--cut-after", type=click.IntRange(0), default=3, help="... after so many tokens of it."
)
@click.option("--stall", type=SHARE, default=0.0, help="Share of streams that stall once.")
@click.option(
    "--stall-after", type=click.IntRange(0), default=3, help="... after so many tokens of it."
)
@click.option("--stall-for", type=DURATION, default="1s", help="... and for how long.")
@click.option(
    "--empty", type=SHARE, default=0.0, help="Share of streams that end at once, without a token."
)
@click.option(
    "--pings", type=DURATION, default="0s", help="Send a comment into open streams this often."
)
@click.option("--coalesce", type=click.IntRange(1), default=1, help="Events in one write.")
@click.option("--split", is_flag=True, help="Cut events anywhere, over chunks and writes.")
@click.option("--crlf", is_flag=True, help="End the lines of events with CR LF.")
@click.option("--no-space", is_flag=True, help="Write data: without a space after it.")
@click.option("--no-usage", is_flag=True, help="Leave the usage out, asked for or not.")
@click.option("--no-done", is_flag=True, help="End streams without [DONE].")
@click.option(
    "--no-finish", is_flag=True, help="End streams without finish reason, usage and [DONE]."
)
@click.option("--tokens-per-chunk", type=click.IntRange(1), default=1, help="Tokens in one event.")
@click.option(
    "--reasoning", type=click.IntRange(0), default=0, help="First so many tokens come as reasoning."
)
@click.option("--unicode", is_flag=True, help="Answer in words that break careless readers.")
def sim(
    *,
    port: int,
    host: str,
    preset_name: str,
    gpus: int,
    seed: int,
    models: tuple[str, ...],
    scheduling: Literal["fcfs", "priority"],
    max_queued: int | None,
    max_sequences: int | None,
    api_key: str | None,
    keep_alive: int,
    truth: Path | None,
    ready_after: int,
    never_ready: bool,
    fail_loading: str | None,
    die_after: int | None,
    die_after_requests: int | None,
    die_status: int,
    refuse_status: str,
    stall_for: int,
    pings: int,
    unicode: bool,
    **faults: Any,
) -> None:
    """Serve a simulated LLM with faults.

    It has OpenAI's API and simulated GPUs, and shows faults on demand. Everything it reports says that it is simulated. Its metrics are on /metrics in vLLM's names, its GPUs'
    memory on /dcgm/metrics, and POST /tailgate/sim/fault changes the faults of requests to come.
    """
    preset = PRESETS[preset_name]
    limits = replace(
        preset.limits,
        queued=max_queued,
        sequences=max_sequences if max_sequences is not None else preset.limits.sequences,
    )
    try:
        chosen = Faults(
            refuse_status=int(refuse_status), stall_ns=stall_for, ping_every_ns=pings, **faults
        )
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    settings = Settings(
        host=host,
        port=port,
        preset=replace(preset, limits=limits),
        gpus=gpus,
        seed=seed,
        models=models,
        policy=scheduling,
        keep_alive_ns=keep_alive,
        api_key=api_key,
        truth=truth,
        faults=chosen,
        unicode=unicode,
        die_after_ns=die_after,
        die_after_requests=die_after_requests,
        die_status=die_status,
    )
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format="%(levelname)s %(asctime)s [tailgate-sim] %(message)s",
        datefmt="%m-%d %H:%M:%S",
        force=True,
    )
    with (
        contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        status = runner.run(_run(settings, None if never_ready else ready_after, fail_loading))
    raise SystemExit(status)


async def _run(settings: Settings, ready_after_ns: int | None, fail_loading: str | None) -> int:
    """Bind, load, serve until told to stop; returns the exit status."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # as vLLM does: bound before loading, so that a taken port fails early, and listening only after
    listening = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as fault:
        log.error("cannot bind %s:%d: %s", settings.host, settings.port, fault)
        return 1
    preset = settings.preset
    log.info("simulated engine, preset %s: %s", preset.name, preset.summary)
    log.info("Loading model weights took %.2f GiB (simulated)", preset.weights_bytes / (1 << 30))
    if fail_loading is not None:
        await _sleep(stop, ready_after_ns)
        log.error("EngineCore failed to start.")
        log.error("%s", fail_loading)
        log.error("RuntimeError: Engine core initialization failed. See root cause above.")
        return 1
    if await _sleep(stop, ready_after_ns):
        return 0
    try:
        server = Server(settings)
    except ValueError as fault:
        log.error("%s", fault)
        return 1
    # everything made so far stays; a collection that walks it would be a stall in somebody's stream
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    serving = asyncio.ensure_future(server.run(listening))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    log.info("[shutdown] API server: shutdown triggered")
    for task in (serving, stopping):
        task.cancel()
    await asyncio.gather(serving, stopping, return_exceptions=True)
    log.info("Application shutdown complete.")
    return 0


async def _sleep(stop: asyncio.Event, duration_ns_: int | None) -> bool:
    """Wait, for ever if None; True when told to stop meanwhile."""
    try:
        await asyncio.wait_for(stop.wait(), None if duration_ns_ is None else duration_ns_ / 1e9)
    except TimeoutError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> None:
    """The command on ``argv`` (default: the process's); ends the process with its exit status."""
    sim.main(args=list(argv) if argv is not None else None, prog_name="tailgate sim")
