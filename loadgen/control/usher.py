"""The usher: leads locust's events to a sitting, and the sitting's end back to locust.

Locust logs a listener's exception and goes on, and with no exit code set it makes one up. So the code is 1
until a sitting gives another, every listener is guarded, and no verdict is made in a listener.
"""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import Callable
from functools import partial

import gevent
from gevent import Greenlet
from locust.env import Environment
from locust.runners import STATE_STOPPED, Runner
from locust.stats import CSV_STATS_INTERVAL_SEC
from locust.web import WebUI

from loadgen.control import statistics
from loadgen.control.lease import die_with_parent
from loadgen.control.options import tailgate_arguments
from loadgen.control.sitting import BUG, Sitting

OTHER_SHUTDOWN_S = 30.0

log = logging.getLogger(__name__)


def prepare(options: argparse.Namespace) -> None:
    """Before locust starts: a locust that tailgate started lives and dies by its channel, not by Ctrl-C."""
    if options.channel is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent()


class Usher:
    """One locust process, its sittings one after the other."""

    def __init__(self, environment: Environment, runner: Runner, web_ui: WebUI | None) -> None:
        options = environment.parsed_options
        if options is None:
            raise ValueError("locust started without a command line")
        self._environment = environment
        self._runner = runner
        self._web_ui = web_ui
        self._options = options
        self._opening: Greenlet | None = None
        self._sitting: Sitting | None = None
        self._level_percent = 0
        self._leaving = False
        self._quitting = False
        self._held = 0
        environment.process_exit_code = BUG if web_ui is None else 0
        if options.channel is not None:
            # tailgate alone says when it ends
            options.run_time = None
        else:
            self._ctrl_c = gevent.signal_handler(signal.SIGINT, self._guarded(self._leave))
        # tailgate's own lines tell how it goes; locust's table every two seconds is there for who asks
        options.only_summary = options.only_summary or not options.print_stats
        events = environment.events
        events.test_start.add_listener(self._guarded(self._begin))
        events.spawning_complete.add_listener(self._guarded(self._check_level))
        events.test_stopping.add_listener(self._guarded(self._hold_stop))
        events.quitting.add_listener(self._guarded(self._hold_quit))

    def _guarded(self, listener: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: object, **kwargs: object) -> None:
            try:
                listener(*args, **kwargs)
            except Exception as fault:  # noqa: BLE001  # a door: locust would log it and go on
                self._fault(listener, fault)

        return guarded

    def _fault(self, listener: Callable[..., None], fault: Exception) -> None:
        log.error("a bug in tailgate, in %s", listener.__name__, exc_info=fault)
        self._environment.process_exit_code = BUG
        if self._sitting is not None and not self._sitting.over.is_set():
            self._sitting.fault(f"a bug in control: {fault!r}")
        elif self._web_ui is None:
            gevent.spawn(self._runner.quit)

    def _begin(self, **_: object) -> None:
        if self._open_sitting() is not None:
            raise RuntimeError("a run began before the one before had ended")
        self._level_percent = self._runner.target_user_count
        self._environment.process_exit_code = BUG
        # locust may kill the greenlet that runs this listener, and children are half started then
        self._opening = gevent.spawn(self._guarded(self._sit))

    def _sit(self) -> None:
        sit = (
            partial(Sitting.adopt, self._options.channel)
            if self._options.channel is not None
            else partial(Sitting.summon, tailgate_arguments(self._options, self._level_percent))
        )
        self._sitting = sit(
            generators=self._options.generators,
            record=partial(statistics.record, self._environment.stats),
            on_end=self._guarded(self._end),
        )

    def _open_sitting(self) -> Sitting | None:
        """Return the sitting that has not ended, once its processes are started."""
        if self._opening is not None:
            self._opening.join()
        return None if self._sitting is None or self._sitting.over.is_set() else self._sitting

    def _check_level(self, user_count: int, **_: object) -> None:
        if user_count != self._level_percent:
            log.warning(
                "the level stays %d %%: changing it in mid-run comes with a later release",
                self._level_percent,
            )

    def _hold_stop(self, **_: object) -> None:
        """Hold locust's stop until tailgate has drained and ruled."""
        sitting = self._open_sitting()
        if sitting is not None:
            sitting.stop("locust was told to stop")
            self._wait(sitting)

    def _hold_quit(self, **_: object) -> None:
        """Hold locust's exit for the same; only SIGTERM comes here with a sitting still open."""
        again, self._quitting = self._quitting, True
        sitting = self._open_sitting()
        if sitting is not None:
            sitting.interrupt(signal.SIGTERM)
            self._wait(sitting)
        if again and gevent.getcurrent() is not gevent.get_hub().parent:
            # a second SIGTERM: let the shutdown that is under way end this process, and this greenlet with it
            gevent.sleep(OTHER_SHUTDOWN_S)
        if self._options.csv_prefix:
            gevent.sleep(CSV_STATS_INTERVAL_SEC + 0.2)  # else --csv misses the last second

    def _wait(self, sitting: Sitting) -> None:
        self._held += 1
        try:
            sitting.over.wait()
        finally:
            self._held -= 1

    def _leave(self, **_: object) -> None:
        """Ctrl-C: end the sitting, then locust; a second one does not wait for open requests."""
        self._leaving = True
        sitting = self._open_sitting()
        if sitting is not None:
            sitting.interrupt(signal.SIGINT)
        else:
            self._quit()

    def _end(self, sitting: Sitting) -> None:
        self._environment.process_exit_code = sitting.exit_code
        if not self._environment.stats.entries:
            # locust's empty tables would only push tailgate's reason out of sight
            logging.getLogger("locust.stats_logger").disabled = True
        if self._held:
            return  # locust is stopping or quitting already and goes on now
        if self._web_ui is None or self._leaving:
            self._quit()
        elif self._runner.state != STATE_STOPPED:
            self._runner.stop()

    def _quit(self) -> None:
        self._runner.quit()
        if self._web_ui is not None:
            self._web_ui.stop()
