"""What ``locust -f loadgen/locustfile.py`` takes beside locust's own options, and what it passes on to tailgate."""

from __future__ import annotations

import argparse
from typing import Any

from locust.argument_parser import LocustArgumentParser

# Locust's own words that already mean what we need: --profile names the traffic, --host the server's URL, and
# --users is the level of the load in percent.
WRITTEN_LEVEL_PERCENT = 100
VALUES = {
    "engine": "engine sheet: a catalogue name or a path",
    "sla": "SLA sheet: a catalogue name or a path",
    "url": "a server that already runs (as --host), instead of --engine",
    "model": "the model's name at --url",
    "seed": "seed of the schedule, instead of the profile's",
    "runs": "runs of the same schedule, instead of the SLA's",
    "out": "new or empty directory for the run, instead of runs/",
    "baseline": "run directory or pinned name to compare with",
    "dcgm": "URL of a DCGM exporter that watches the server's GPUs",
    "api-key-env": "environment variable that holds the server's API key",
}
FLAGS = {
    "quick": "one short run, point evidence",
    "strict": "a broken `should` fails too",
}
DISTRIBUTED = {"master": "--master", "worker": "--worker", "processes": "--processes"}


def add_options(parser: LocustArgumentParser) -> argparse.Namespace:
    """Add our options to locust's and return what they parse to now.

    Exits with status 2 if locust is to run over several processes or machines.
    """
    for name, words in VALUES.items():
        parser.add_argument(f"--{name}", metavar="<text>", help=words)
    for name, words in FLAGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=words)
    parser.add_argument(
        "--generators", type=_generators, default=1, metavar="<int>", help="generator processes"
    )
    parser.add_argument("--channel", type=int, help=argparse.SUPPRESS, include_in_web_ui=False)
    parser.set_defaults(num_users=WRITTEN_LEVEL_PERCENT, spawn_rate=WRITTEN_LEVEL_PERCENT)
    options: argparse.Namespace = parser.parse_known_args()[0]
    for dest, option in DISTRIBUTED.items():
        if getattr(options, dest):
            parser.error(
                f"{option}: running over several locust processes or machines comes with a later release;"
                " --generators N uses more cores of this machine"
            )
    return options


def tailgate_arguments(options: argparse.Namespace, level_percent: int) -> list[str]:
    """Return the arguments of ``tailgate run`` that locust's options stand for.

    A field left empty in the web page counts as not given.
    """
    given: dict[str, Any] = {
        name: getattr(options, name.replace("-", "_"))
        for name in ("profile", *VALUES, "generators")
    }
    given["url"] = given["url"] or options.host
    given["load"] = level_percent
    arguments = [
        word
        for name, value in given.items()
        if value not in (None, "")
        for word in (f"--{name}", str(value))
    ]
    return arguments + [f"--{name}" for name in FLAGS if getattr(options, name)]


def _generators(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"at least one generator, not {count}")
    return count
