"""An engine from its spec to its end: started and watched, proved ready, stopped without a trace."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from launchers.cause import PORT_IN_USE, recognise
from launchers.command import Command, FromEnv
from launchers.engine import Engine, LaunchError, engines
from launchers.fetch import UnreachableError, fetch, root
from launchers.marked import kill_marked
from launchers.place import Place, Tree, places
from launchers.ready import (
    OnWait,
    Proof,
    Server,
    check_port_is_free,
    log_tail,
    prove_attached,
    prove_started,
)
from launchers.scrape import Scrape, says_something
from launchers.secret import api_key
from launchers.spec import EngineSpec
from launchers.watch import Watch
from profiles.sheet import RefusalError
from reports.manifest import Gpu
from reports.rundir import RunDir

RUN_MARK = "TAILGATE_RUN_ID"
PART_MARK = "TAILGATE_PART"
ORDER = "CUDA_DEVICE_ORDER"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# SIGTERM to SIGKILL; a CI job that is cancelled has 7.5 s for all of its tidying
GRACE_S = 5.0
ATTEMPTS = 3
SCRAPE_WITHIN_S = 5.0
IDLE_EVERY_S = 0.25
SECOND_NS = 1_000_000_000
SETTLE_NS = 2 * SECOND_NS


class Running:
    """An engine that is ready, and the samplers that watch it. ``url`` is the server's root, without /v1.

    ``warnings`` are for the report; ``invalid`` names faults of our own and is complete after ``stop``.
    ``pid`` is None for an attached engine, ``gpus`` is empty without a memory source.
    """

    def __init__(
        self,
        *,
        server: Server,
        proof: Proof,
        simulated: bool,
        argv: tuple[str, ...],
        version: str | None,
        engine_metrics: bool,
        warnings: tuple[str, ...],
        tree: Tree | None,
        watches: tuple[Watch, ...],
        marks: Mapping[str, str],
        log: Path,
    ) -> None:
        self.url = server.url
        self.model = server.model
        self.simulated = simulated
        self.argv = argv
        self.version = version
        self.ready_ns = proof.ready_ns
        self.engine_metrics = engine_metrics
        self.pid = None if tree is None else tree.pid
        self.gpus: tuple[Gpu, ...] = tuple(gpu for watch in watches for gpu in watch.gpus)
        self.warnings = warnings
        self.invalid: tuple[str, ...] = ()
        self._tree = tree
        self._watches = watches
        self._marks = marks
        self._log = log
        self._stopped = False
        atexit.register(self.stop)

    def poll(self) -> str | None:
        """Return None while the engine runs, else how it ended, with the cause if its log has a known one.

        Any end before ``stop`` is a fault, one with status 0 too.
        """
        if self._tree is None or self._stopped:
            return None
        ended = self._tree.poll()
        if ended is None:
            return None
        cause = recognise(log_tail(self._log))
        return f"engine {ended}" if cause is None else f"engine {ended}: {cause.name}"

    def wait_idle(self, timeout_ns: int) -> bool | None:
        """Return True once the engine's own metrics show no request running or waiting; False at the timeout.

        None if they never told, after ``SETTLE_NS`` (at most the timeout): our own requests are over by then, and
        of others nothing can be seen.
        """
        start_ns = time.monotonic_ns()
        until_ns = start_ns + timeout_ns
        settled_ns = min(until_ns, start_ns + SETTLE_NS)
        told = False
        while True:
            try:
                page = fetch(f"{self.url}/metrics", within_s=SCRAPE_WITHIN_S)
                text = page.body.decode("utf-8", "replace") if page.status == 200 else ""
                now = Scrape().read(text, 0)
                if now.running == 0 and now.waiting == 0:
                    return True
                told = told or now.running is not None or now.waiting is not None
            except UnreachableError:
                if self.poll() is not None:
                    return False
            now_ns = time.monotonic_ns()
            if not told and now_ns >= settled_ns:
                return None
            if now_ns >= until_ns:
                return False
            time.sleep(IDLE_EVERY_S)

    def stop(self) -> None:
        """End samplers and engine and see that no process is left; what is left is a warning. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self.stop)
        for watch in self._watches:
            fault = watch.stop()
            if fault is not None:
                self.invalid += (fault,)
            # what a sampler learned after the engine was ready
            self.warnings += tuple(said for said in watch.warnings if said not in self.warnings)
        if self._tree is not None:
            left = _end(self._tree, self._marks)
            if left is not None:
                self.warnings += (left,)


def launch(
    spec: EngineSpec,
    run_dir: RunDir,
    *,
    run_id: str,
    api_key_env: str | None = None,
    on_wait: OnWait | None = None,
) -> Running:
    """Start the engine of ``spec`` (or attach to it), with its samplers, and return it when it is proved ready.

    The samplers are there before the engine, so that memory has a baseline. The engine's words go to
    ``engine/stdout.log`` of the run. Every process has TAILGATE_RUN_ID in its environment.
    Raises LaunchError (exit code 3); nothing is left running then.
    """
    if api_key_env is not None:
        try:
            api_key(api_key_env)
        except RefusalError as refusal:
            raise LaunchError(refusal.fault, refusal.mend) from refusal
    sitting = _Sitting(
        spec=spec,
        kind=engines()[spec.engine],
        run_dir=run_dir,
        run_id=run_id,
        key_env=api_key_env,
        on_wait=on_wait,
    )
    return sitting.started() if sitting.kind.started else sitting.attached()


def dry_run(spec: EngineSpec) -> Command | None:
    """Return what ``launch`` would start, on a port that is free now; None if the engine is attached."""
    kind = engines()[spec.engine]
    if not kind.started:
        return None
    port = spec.port or places()[spec.place.kind]().free_port()
    return _command(spec, kind, port)


def _command(spec: EngineSpec, kind: type[Engine], port: int) -> Command:
    command = kind.command(spec, port)
    telemetry = spec.telemetry
    counted = telemetry.memory == "nvml" or telemetry.dcgm_url is not None
    if not counted or ORDER in os.environ or ORDER in command.env:
        return command
    # NVML and DCGM count GPUs along the PCI bus; CUDA, unless told so, from the fastest
    return replace(command, env={**command.env, ORDER: "PCI_BUS_ID"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sitting:
    """What one call of ``launch`` was given."""

    spec: EngineSpec
    kind: type[Engine]
    run_dir: RunDir
    run_id: str
    key_env: str | None
    on_wait: OnWait | None

    def attached(self) -> Running:
        assert self.spec.url is not None
        server = self._server(root(self.spec.url))
        host = urlsplit(server.url).hostname or "attached"
        watches = self._watches(server.url, host, None)
        with _undone(watches):
            proof = prove_attached(
                server, within_ns=self.spec.ready_within_ns, on_wait=self.on_wait
            )
            return self._running(server, proof, (), None, watches)

    def started(self) -> Running:
        place = places()[self.spec.place.kind]()
        attempt = 1
        while True:
            try:
                return self._started_once(place)
            except LaunchError as fault:
                # a port that was free when it was picked may be lost to somebody else before it is bound
                lost = PORT_IN_USE in fault.cause or "which is not the engine" in fault.cause
                if self.spec.port is not None or not lost or attempt == ATTEMPTS:
                    raise
                attempt += 1

    def _started_once(self, place: Place) -> Running:
        port = self.spec.port if self.spec.port is not None else place.free_port()
        check_port_is_free(place, port)
        server = self._server(f"http://{place.host}:{port}")
        command = self._command(port)
        log = self.run_dir.engine_log
        watches = self._watches(server.url, place.node, command)
        with _undone(watches):
            marks = self._marks("engine")
            tree = place.start(command, marks=marks, log=log, grace_s=GRACE_S)
            try:
                proof = prove_started(
                    server,
                    place=place,
                    tree=tree,
                    port=port,
                    log=log,
                    within_ns=self.spec.ready_within_ns,
                    on_wait=self.on_wait,
                )
                return self._running(server, proof, command.argv, tree, watches)
            except BaseException:
                _end(tree, marks)
                raise

    def _command(self, port: int) -> Command:
        command = _command(self.spec, self.kind, port)
        for file in command.files:
            self.run_dir.write_atomic(f"engine/{file.name}", file.text.encode())
        return command.with_files_in(self.run_dir.engine)

    def _server(self, url: str) -> Server:
        key = None if self.key_env is None else api_key(self.key_env)
        return Server(
            url=url,
            model=self.spec.served_as,
            health=self.kind.health,
            key_env=self.key_env,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
        )

    def _marks(self, part: str) -> dict[str, str]:
        return {RUN_MARK: self.run_id, PART_MARK: part}

    def _watches(self, url: str, node: str, command: Command | None) -> tuple[Watch, ...]:
        telemetry = self.spec.telemetry
        marks = self._marks("sampler")
        every = ("--every-ns", str(telemetry.every_ns))
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", node)
        watches: list[Watch] = []
        log = self.run_dir.engine / "samplers.log"
        with _undone(watches):
            if telemetry.memory != "none":
                words = ["memory", "--out", str(self.run_dir.memory_of(name)), *every]
                words += ("--node", name, "--source", telemetry.memory)
                if telemetry.memory == "dcgm":
                    words += ("--url", telemetry.dcgm_url or f"{url}{self.kind.dcgm_path}")
                words += self._watched(command)
                watches.append(Watch("the memory sampler", words, marks, log))
            words = ["metrics", "--out", str(self.run_dir.engine_metrics), *every]
            words += ("--url", f"{url}/metrics")
            watches.append(Watch("the metrics sampler", words, marks, log))
            for watch in watches:
                watch.await_ready()
        return tuple(watches)

    def _watched(self, command: Command | None) -> tuple[str, ...]:
        telemetry, count = self.spec.telemetry, str(self.spec.gpus)
        if telemetry.gpus:
            return ("--gpus", ",".join(map(str, telemetry.gpus)))
        if command is None:
            return ("--least", count)
        if telemetry.memory == "dcgm" and telemetry.dcgm_url is None:
            return ("--first", count)  # the engine's own page knows no CUDA_VISIBLE_DEVICES
        told = command.env.get(VISIBLE)
        if isinstance(told, FromEnv):
            told = os.environ[told.name]
        visible = os.environ.get(VISIBLE) if told is None else told
        first = ("--first", count)
        return first if visible is None else (*first, f"--visible={visible}")

    def _running(
        self,
        server: Server,
        proof: Proof,
        argv: tuple[str, ...],
        tree: Tree | None,
        watches: tuple[Watch, ...],
    ) -> Running:
        warnings = list(proof.warnings)
        asked = self.spec.engine_version
        if asked is not None and proof.version is not None and not _fits(asked, proof.version):
            warnings.append(f"the sheet says version {asked}, and the engine is {proof.version}")
        metrics = _has_metrics(server.url)
        if not metrics:
            warnings.append(
                "the engine's /metrics shows nothing that is known: no kv, queue, preemptions"
            )
        for watch in watches:
            watch.await_gpus(within_s=2 * self.spec.telemetry.every_ns / SECOND_NS + 2)
            warnings += watch.warnings
        return Running(
            server=server,
            proof=proof,
            simulated=self.kind.simulated or proof.simulated,
            argv=argv,
            version=proof.version if proof.version is not None else asked,
            engine_metrics=metrics,
            warnings=tuple(warnings),
            tree=tree,
            watches=watches,
            marks=self._marks("engine"),
            log=self.run_dir.engine_log,
        )


@contextlib.contextmanager
def _undone(watches: Iterable[Watch]) -> Iterator[None]:
    """Stop the samplers if what they are for does not come about."""
    try:
        yield
    except BaseException:
        for watch in watches:
            watch.stop()
        raise


def _end(tree: Tree, marks: Mapping[str, str]) -> str | None:
    """End a tree; the marks in the environment are the second look, for what the first could not own."""
    left = tree.stop()
    strays = kill_marked(marks)
    if strays:
        words = (
            f"processes of the engine had escaped and were killed: {', '.join(map(str, strays))}"
        )
        left = words if left is None else f"{left}; {words}"
    return left


def _has_metrics(url: str) -> bool:
    try:
        page = fetch(f"{url}/metrics", within_s=SCRAPE_WITHIN_S)
    except UnreachableError:
        return False
    return page.status == 200 and says_something(
        Scrape().read(page.body.decode("utf-8", "replace"), 0)
    )


def _fits(asked: str, found: str) -> bool:
    """Say whether a version is the one asked for, as far as that was written out.

    >>> _fits("0.33", "0.33.1"), _fits("0.3", "0.33.1"), _fits("0.32.0", "0.32.0+cpu")
    (True, False, True)
    """
    return found == asked or (found.startswith(asked) and not found[len(asked)].isdigit())
