"""The server: routes, what each answers, and the life of a request from its bytes to its last token."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from launchers.sim.alarm import Alarm
from launchers.sim.engine import Engine
from launchers.sim.events import Events, compact, whole
from launchers.sim.fault import Faults
from launchers.sim.kv import chain
from launchers.sim.metrics import Metrics, dcgm_page, uuid_of
from launchers.sim.preset import MIB, Preset
from launchers.sim.request import Asked, Kind, Reader, RequestError, error
from launchers.sim.scheduler import Generation, Policy, Scheduler
from launchers.sim.stream import BentStream, Owner, PlainStream, Recorder, WholeReply
from launchers.sim.text import PLAIN, UNICODE
from launchers.sim.truth import Truth
from launchers.sim.wire import Connection, HttpRequest

_BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."  # fmt: skip
_STATS_EVERY_S = 10.0
_SWEEP_EVERY_S = 0.5
_S = 1e-9

log = logging.getLogger("tailgate.sim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server as asked for. ``die_*`` end the process with ``die_status``, as a crash would."""

    host: str
    port: int
    preset: Preset
    gpus: int
    seed: int
    models: tuple[str, ...]
    policy: Policy
    keep_alive_ns: int
    api_key: str | None
    truth: Path | None
    faults: Faults
    unicode: bool
    die_after_ns: int | None
    die_after_requests: int | None
    die_status: int


class Server:
    """An OpenAI-compatible server on one event loop; made inside the running loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._faults = settings.faults
        preset = settings.preset
        scheduler = Scheduler(
            preset, gpus=settings.gpus, seed=settings.seed, policy=settings.policy
        )
        self._metrics = Metrics(scheduler, model=settings.models[0])
        self._engine = Engine(
            scheduler,
            self._metrics,
            wake=partial(Alarm, asyncio.get_running_loop()),
            clock=time.monotonic_ns,
        )
        self._reader = Reader(
            preset=preset,
            models=settings.models,
            seed=settings.seed,
            vocabulary=UNICODE if settings.unicode else PLAIN,
        )
        self._version = version("tailgate")
        self._fingerprint = f"tailgate-sim-{self._version}-{preset.name}"
        self._truth = Truth(settings.truth) if settings.truth is not None else None
        self._connections: set[Connection] = set()
        self._pinged: list[Owner] = []
        self._number = 0
        self._created_s = int(datetime.now(UTC).timestamp())
        self._started_ns = time.monotonic_ns()
        self._logged = (0, 0)
        self._quiet = True
        self._pages: dict[str, tuple[str, Callable[[Connection, HttpRequest], None]]] = {
            "/health": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/version": ("GET", self._show_version),
            "/v1/models": ("GET", self._show_models),
            "/metrics": ("GET", self._show_metrics),
            "/dcgm/metrics": ("GET", self._show_dcgm),
            "/tailgate/sim": ("GET", self._show_sim),
            "/tailgate/sim/fault": ("POST", self._set_fault),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
        }

    def connect(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self._serve, self._register, self._settings.preset.name)

    async def run(self, listening: socket.socket) -> None:
        """Serve on a bound socket until cancelled."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.connect, sock=listening, backlog=1024)
        log.info(
            "Starting simulated server on http://%s:%d",
            self._settings.host,
            listening.getsockname()[1],
        )
        log.info("Application startup complete.")
        if self._settings.die_after_ns is not None:
            loop.call_later(self._settings.die_after_ns * _S, self._die)
        tasks = [
            asyncio.ensure_future(work) for work in (self._sweep(), self._stats(), self._ping())
        ]
        try:
            await server.serve_forever()
        finally:
            for task in tasks:
                task.cancel()
            server.close()
            self._engine.close()
            for connection in list(self._connections):
                connection.cut()
            if self._truth is not None:
                self._truth.close()

    # requests

    def _serve(self, connection: Connection, request: HttpRequest) -> None:
        page = self._pages.get(request.path)
        if page is None:
            connection.reply(404, b'{"detail":"Not Found"}')
            return
        method, answer = page
        if request.method != method:
            connection.reply(405, b'{"detail":"Method Not Allowed"}', extra=f"allow: {method}\r\n")
            return
        key = self._settings.api_key
        if (
            key is not None
            and request.path.startswith("/v1")
            and request.headers.get("authorization") != f"Bearer {key}"
        ):
            connection.reply(401, b'{"error":"Unauthorized"}')
            return
        answer(connection, request)

    def _chat(self, connection: Connection, request: HttpRequest) -> None:
        self._generate("chat", connection, request)

    def _completions(self, connection: Connection, request: HttpRequest) -> None:
        self._generate("completions", connection, request)

    def _generate(self, kind: Kind, connection: Connection, request: HttpRequest) -> None:
        number = self._number
        self._number = number + 1
        settings, faults = self._settings, self._faults
        die_after = settings.die_after_requests
        if die_after is not None and number + 1 >= faults.spare + die_after:
            self._die()
        if faults.hit(faults.refuse, number):
            self._overload(connection, faults.refuse_status)
            return
        try:
            asked = self._reader.read(kind, request.body)
        except RequestError as refusal:
            connection.reply(refusal.status, refusal.body)
            return
        queued_most = settings.preset.limits.queued
        if queued_most is not None and self._engine.waiting >= queued_most:
            self._metrics.rejected["max_num_queued_reqs"] += 1
            self._overload(connection, 503)
            return
        generation = Generation(
            number=number,
            arrived_ns=request.received_ns + settings.preset.timing.intake_ns,
            prompt_tokens=len(asked.words),
            output_tokens=asked.output_tokens,
            hashes=chain(asked.words, settings.preset.block_tokens),
            priority=asked.priority,
            finish=asked.finish,
        )
        identity = request.headers.get("x-request-id")
        recorder = (
            Recorder(self._truth, identity, request.received_ns)
            if self._truth is not None
            else None
        )
        generation.owner = self._owner(connection, asked, generation, recorder, identity, number)

        def lost() -> None:
            self._engine.abort(generation)
            if recorder is not None:
                recorder.close()

        connection.lost = lost
        self._engine.submit(generation)

    def _owner(
        self,
        connection: Connection,
        asked: Asked,
        generation: Generation,
        recorder: Recorder | None,
        identity: str | None,
        number: int,
    ) -> Owner:
        prefix = "chatcmpl" if asked.kind == "chat" else "cmpl"
        name = f"{prefix}-{identity or f'sim{self._settings.seed:x}-{number:x}'}"
        created_s = self._created_s + (time.monotonic_ns() - self._started_ns) // 1_000_000_000
        faults = self._faults
        if not asked.stream:
            return WholeReply(
                connection,
                lambda: whole(
                    asked,
                    identity=name,
                    created_s=created_s,
                    fingerprint=self._fingerprint,
                    reasoning_tokens=faults.reasoning,
                ),
                recorder,
                asked.output_tokens,
            )
        connection.start_stream()
        events = Events(asked, identity=name, created_s=created_s, fingerprint=self._fingerprint)
        if not faults.bends(number) and not asked.usage_everywhere:
            stream: Owner = PlainStream(connection, asked, events, recorder)
        else:
            stream = BentStream(
                connection,
                asked,
                events,
                recorder,
                faults=faults,
                number=number,
                abort=lambda: self._engine.abort(generation),
            )
        if faults.ping_every_ns:
            self._pinged.append(stream)
        return stream

    def _overload(self, connection: Connection, status: int) -> None:
        kind = "Service Unavailable" if status == 503 else "Too Many Requests" if status == 429 else "InternalServerError"  # fmt: skip
        connection.reply(status, compact(error(_BUSY, kind, None, status)))

    # pages

    def _health(self, connection: Connection, request: HttpRequest) -> None:
        connection.reply(200, b"", None)

    def _show_version(self, connection: Connection, request: HttpRequest) -> None:
        connection.reply(200, compact({"version": self._version, "simulated": True}))

    def _show_models(self, connection: Connection, request: HttpRequest) -> None:
        models = [
            {
                "id": name,
                "object": "model",
                "created": self._created_s,
                "owned_by": "tailgate-sim",
                "root": f"simulated/{self._settings.preset.name}",
                "parent": None,
                "max_model_len": self._settings.preset.limits.context_tokens,
            }
            for name in self._settings.models
        ]
        connection.reply(200, compact({"object": "list", "data": models}))

    def _show_metrics(self, connection: Connection, request: HttpRequest) -> None:
        self._engine.settle()
        page = self._metrics.vllm_page().encode()
        connection.reply(200, page, "text/plain; version=0.0.4; charset=utf-8")

    def _show_dcgm(self, connection: Connection, request: HttpRequest) -> None:
        self._engine.settle()
        page = dcgm_page(
            self._engine.scheduler,
            gpus=self._settings.gpus,
            host=socket.gethostname(),
            up_ns=request.received_ns - self._started_ns,
            busy_share=self._engine.busy_share(request.received_ns),
        )
        connection.reply(200, page.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _show_sim(self, connection: Connection, request: HttpRequest) -> None:
        preset = self._settings.preset
        value = {
            "simulated": True,
            "preset": asdict(preset),
            "version": self._version,
            "seed": self._settings.seed,
            "models": self._settings.models,
            "scheduling": self._settings.policy,
            "gpus": [
                {"gpu": gpu, "uuid": uuid_of(gpu), "name": preset.card.name}
                for gpu in range(self._settings.gpus)
            ],
            "requests": self._number,
            "faults": asdict(self._faults),
        }
        connection.reply(200, compact(value))

    def _set_fault(self, connection: Connection, request: HttpRequest) -> None:
        try:
            changes = json.loads(request.body)
            if not isinstance(changes, dict):
                raise ValueError("send an object of fault names and values")
            self._faults = self._faults.changed(changes)
        except ValueError as fault:
            connection.reply(400, compact(error(str(fault), "BadRequestError", None, 400)))
            return
        connection.reply(200, compact(asdict(self._faults)))

    # the rest of its life

    def _register(self, connection: Connection, made: bool) -> None:
        if made:
            self._connections.add(connection)
        else:
            self._connections.discard(connection)

    def _die(self) -> None:
        log.error("EngineCore encountered a fatal error. (simulated, as asked for)")
        if self._truth is not None:
            self._truth.flush()
        logging.shutdown()
        os._exit(self._settings.die_status)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            if self._truth is not None:
                self._truth.flush()
            before_ns = time.monotonic_ns() - self._settings.keep_alive_ns
            for connection in list(self._connections):
                idle_since_ns = connection.idle_since_ns
                if idle_since_ns is not None and idle_since_ns < before_ns:
                    connection.close()

    async def _ping(self) -> None:
        while True:
            every_ns = self._faults.ping_every_ns
            await asyncio.sleep(every_ns * _S if every_ns else _SWEEP_EVERY_S)
            self._pinged = [stream for stream in self._pinged if stream.ping()]

    async def _stats(self) -> None:
        while True:
            await asyncio.sleep(_STATS_EVERY_S)
            metrics, scheduler = self._metrics, self._engine.scheduler
            now = (metrics.prompt_tokens, metrics.generation_tokens)
            quiet = now == self._logged and not scheduler.running
            if not (quiet and self._quiet):
                counts = scheduler.counts
                log.info(
                    "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s,"
                    " Running: %d reqs, Waiting: %d reqs, Preemptions: %d, GPU KV cache usage: %.1f%%,"
                    " Prefix cache hit rate: %.1f%%, GPU memory used: %d MiB",
                    (now[0] - self._logged[0]) / _STATS_EVERY_S,
                    (now[1] - self._logged[1]) / _STATS_EVERY_S,
                    len(scheduler.running),
                    self._engine.waiting,
                    counts.preemptions,
                    100 * scheduler.kv.usage_share,
                    100 * counts.prefix_hits / max(1, counts.prefix_queries),
                    scheduler.memory.used_bytes // MIB,
                )
            self._logged, self._quiet = now, quiet
