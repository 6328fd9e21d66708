"""Play a profile against a server of the tests and return what was left behind."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns

from loadgen.frames import Final, Job, Progress
from loadgen.generator.player import Player
from loadgen.generator.target import Target
from profiles.profile import read_profile
from reports.rows import read_rows
from reports.samples import HEALTH, read_samples
from slas.evidence import HealthSample, RequestRow

SHORT = """\
version: 1
seed: 3
warmup: 100ms
duration: 400ms
drain: {drain}
timeouts: {{connect: {connect}, first_token: {first_token}, idle: {idle}, total: {total}}}
{more}
tenants:
{tenants}
"""
OPEN = "  chat: {rate: 40/s, arrivals: {model: constant}, prompt_tokens: 8, output_tokens: 4}"
CLOSED = "  batch: {concurrency: 2, prompt_tokens: 8, output_tokens: 4}"


@dataclass(slots=True)
class Played:
    final: Final
    rows: list[RequestRow]
    health: list[HealthSample]
    progress: list[Progress]
    player: Player


async def play(
    folder: Path,
    url: str,
    *,
    tenants: str = OPEN,
    more: str = "",
    stop_after_s: float | None = None,
    lane: int = 0,
    lanes: int = 1,
    start_in_ns: int = 50_000_000,
    api_key: str | None = None,
    timeouts: dict[str, str] | None = None,
    drain: str = "1s",
    run: int = 0,
    readable: bool = True,
) -> Played:
    limits = {"connect": "1s", "first_token": "1s", "idle": "1s", "total": "5s", **(timeouts or {})}
    sheet = folder / "profile.yaml"
    sheet.write_text(SHORT.format(tenants=tenants, more=more, drain=drain, **limits))
    profile, _ = read_profile(sheet)
    job = Job(
        run=run,
        lane=lane,
        lanes=lanes,
        worker="local",
        run_dir=str(folder),
        profile_path=str(sheet),
        seed=profile.seed,
        level_percent=100,
        quick=False,
        url=url,
        model="m",
        api_key_env=None,
        salt="s4lt",
        start_ns=monotonic_ns() + start_in_ns,
    )
    progress: list[Progress] = []
    player = Player(job, profile, Target(url=url, model="m", api_key=api_key), progress.append)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, context: player.fault(context.get("exception") or RuntimeError(), "test")
    )
    if stop_after_s is not None:
        loop.call_later(stop_after_s, player.stop, "enough")
    final = await player.play()
    if not readable:
        return Played(final, [], [], progress, player)
    stored = list(read_rows(folder / "requests" / f"local-{lane}.jsonl.gz"))
    health = list(read_samples(folder / "health" / f"local-{lane}.jsonl.gz", HEALTH))
    rows = [row for row in stored if row.run == run]
    assert final.rows == len(rows)
    return Played(final, rows, health, progress, player)
