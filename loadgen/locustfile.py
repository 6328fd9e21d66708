"""The door for locust: ``locust -f loadgen/locustfile.py --engine E --profile P --sla S [--headless]``.

It holds what locust looks for in a locustfile and nothing else; ``loadgen.control`` does the work.
"""

from __future__ import annotations

import gevent
from locust import User, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment
from locust.runners import Runner
from locust.web import WebUI

from loadgen.control.options import add_options
from loadgen.control.usher import Usher, prepare


class LoadPercent(User):
    """One percent of the profile's load. It only holds its place: generators make the traffic."""

    @task
    def hold(self) -> None:
        """Stay a second longer."""
        gevent.sleep(1)


def on_command_line(parser: LocustArgumentParser, **_: object) -> None:
    """Add tailgate's options; from here on, Ctrl-C is tailgate's when tailgate started us."""
    prepare(add_options(parser))


def on_init(environment: Environment, runner: Runner, web_ui: WebUI | None, **_: object) -> None:
    """Have locust's events led to sittings with tailgate."""
    Usher(environment, runner, web_ui)


events.init_command_line_parser.add_listener(on_command_line)
events.init.add_listener(on_init)
