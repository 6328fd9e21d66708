"""``python -P -m loadgen.generator --channel FD``: one lane's generator, started by control."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys

import uvloop

from loadgen.generator.process import check_clean, settle
from loadgen.generator.service import Service


async def _serve(descriptor: int) -> int:
    return await Service().run(descriptor)


def main() -> int:
    """Serve the inherited socket until it ends; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -P -m loadgen.generator",
        description="One generator of tailgate's load; control starts it.",
    )
    parser.add_argument("--channel", type=int, required=True, help="inherited socket to control")
    options = parser.parse_args()
    logging.basicConfig(format="generator %(process)d: %(message)s", level=logging.INFO)
    # Ctrl-C is control's to hear: it stops us by a frame, and we drain
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    check_clean()
    settle()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options.channel))


if __name__ == "__main__":
    sys.exit(main())
