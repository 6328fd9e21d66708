"""An engine by itself: shown without being started, or started and held until Ctrl-C."""

from __future__ import annotations

import shlex
import time

from rich.console import Console

from launchers import launch as launches
from launchers.spec import read_engine
from profiles.sheet import find
from reports.rundir import RunDir
from tailgate.exits import Exit
from tailgate.interruption import Interrupted, Interruption

LOOK_EVERY_S = 0.5


def launch_only(console: Console, engine: str, *, dry_run: bool) -> int:
    """Start the engine of a sheet and hold it until a signal; with ``dry_run`` only say what would be started.

    Raises SheetError and LaunchError.
    """
    spec, _ = read_engine(find(engine, "launchers"))
    if dry_run:
        command = launches.dry_run(spec)
        if command is None:
            console.print(f"nothing is started: {spec.url} already runs", markup=False)
            return Exit.PASS
        console.print(str(command), markup=False, highlight=False, soft_wrap=True)
        for file in command.files:
            console.print(f"--- {file.name}\n{file.text}", markup=False, highlight=False)
        return Exit.PASS
    run_dir = RunDir.create()
    with Interruption() as interruption:
        try:
            running = launches.launch(
                spec,
                run_dir,
                run_id=run_dir.path.name,
                on_wait=lambda words: console.print(words, markup=False, highlight=False),
            )
        except Interrupted as stop:
            return stop.exit
        try:
            console.print(f"{running.model} at {running.url}", markup=False, highlight=False)
            console.print(shlex.join(running.argv), markup=False, highlight=False, soft_wrap=True)
            with interruption.noted():
                while interruption.signum is None:
                    if (fault := running.poll()) is not None:
                        console.print(f"the engine is gone: {fault}", markup=False)
                        return Exit.NOT_READY
                    time.sleep(LOOK_EVERY_S)
            return Exit.PASS
        finally:
            running.stop()
