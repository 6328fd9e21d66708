"""One job from its first due request to its last row: send on time, wait, record, report."""

from __future__ import annotations

import asyncio
import errno
import heapq
import os
import ssl
import traceback
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from time import monotonic_ns
from typing import Final

import aiohttp

from loadgen.dialect import Dialect, dialect
from loadgen.frames import Final as FinalFrame
from loadgen.frames import Job, Progress
from loadgen.generator.connections import Connections
from loadgen.generator.exchange import Ending, Exchange, judge
from loadgen.generator.health import Probe
from loadgen.generator.lookahead import Lookahead
from loadgen.generator.pacer import Pacer
from loadgen.generator.process import freeze
from loadgen.generator.progress import Second
from loadgen.generator.recorder import Recorder
from loadgen.generator.reply import Mark, Reply, marks
from loadgen.generator.target import Target, request
from loadgen.generator.turns import Turns
from profiles.profile import Profile
from profiles.prompt import prompt_text
from profiles.schedule import PlannedRequest, lane_of, loops, unroll
from slas.evidence import NO_CONNECTION, HealthSample, Outcome

SECOND_NS: Final = 1_000_000_000
# the longest that making requests and rows may hold up the loop, and how often it may
SLICE_NS: Final = 200_000
BUSY_S: Final = 0.002
CALM_S: Final = 0.02
SWEEP_NS: Final = 100_000_000
# after a longer pause of ours, limits wait for as long as it was, up to a second
PAUSED_NS: Final = 50_000_000
# connections are opened for what is due this far ahead
AHEAD_NS: Final = 1_000_000_000
MOST_IDLE: Final = 4096
# A closed loop whose request failed waits at least this long: a server that refuses at once would otherwise
# have the loop do nothing but fail, and blind the instrument to everything else.
AFTER_FAILURE_NS: Final = 100_000_000
# what a host says when it has run out of something of ours
OURS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}
)


class Kind:
    """What all requests of a tenant share: dialect, marks and the head of the bytes."""

    __slots__ = ("dialect", "head", "marks")

    def __init__(self, spoken: Dialect, target: Target) -> None:
        self.dialect = spoken
        self.marks: tuple[Mark, ...] = marks(spoken)
        self.head = target.head(spoken)


class Player:
    """Plays one lane's share of one run.

    ``report`` takes a Progress frame a second. Every request that is due ends as exactly one row. Nothing is
    sent twice, and nothing is left out without a row and a reason.
    """

    def __init__(
        self,
        job: Job,
        profile: Profile,
        target: Target,
        report: Callable[[Progress], None],
    ) -> None:
        self._job = job
        self._profile = profile
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._start_ns = job.start_ns
        self._window_end_ns = job.start_ns + profile.warmup_ns + profile.duration_ns
        self._most_in_flight = _share(profile.max_in_flight, job)
        self._target = target
        self._kinds = {tenant.name: Kind(dialect(tenant.api), target) for tenant in profile.tenants}
        self._planned: Counter[str] = Counter()
        self._lookahead = Lookahead(self._unroll(), self._make)
        self._unprepared = deque(
            Turns(iter(loop.requests()), self._make)
            for loop in loops(profile, job.seed, job.level_percent)
            if lane_of(loop.session, job.lanes) == job.lane
        )
        self._later: list[tuple[int, int, Exchange]] = []
        self._second = Second(tenant.name for tenant in profile.tenants)
        self._recorder = Recorder(job, warmup_ns=profile.warmup_ns, second=self._second)
        self._connections = Connections(str(target.root), connect_ns=profile.timeouts.connect_ns)
        self._pacer = Pacer(self._loop, self._fire)
        self._probe: Probe | None = None
        self._open: dict[Exchange, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._filling: asyncio.Task[None] | None = None
        self._chore: asyncio.TimerHandle | None = None
        self._next_second_ns = self._start_ns + SECOND_NS
        self._chore_due_ns = self._chore_ns = monotonic_ns()
        self._next_sweep_ns = 0
        self._sweep_waits = False
        self._drain_end_ns = self._window_end_ns + profile.drain_ns
        self._stopped: str | None = None
        self._invalid: Counter[str] = Counter()
        self._bug: str | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._tokens = 0
        self._merged = 0
        self._launched = 0

    # ---- the schedule

    def _unroll(self) -> Iterator[PlannedRequest]:
        job = self._job
        for planned in unroll(self._profile, job.seed, job.level_percent):
            if lane_of(planned.session, job.lanes) == job.lane:
                self._planned[planned.tenant] += 1
                yield planned

    def _make(self, planned: PlannedRequest) -> Exchange:
        job = self._job
        kind = self._kinds[planned.tenant]
        prompt = prompt_text(
            salt=job.salt,
            seed=job.seed,
            tenant=planned.tenant,
            ordinal=planned.ordinal,
            tokens=planned.prompt_tokens,
        )
        body = kind.dialect.body(
            model=job.model, prompt=prompt, output_tokens=planned.output_tokens
        )
        data = request(kind.head, body, f"{job.salt}-{planned.tenant}-{planned.ordinal}")
        reply = Reply(kind.dialect, kind.marks, asked=planned.output_tokens)
        due_ns = 0 if planned.due_ns is None else self._start_ns + planned.due_ns
        return Exchange(planned, due_ns, data, reply)

    # ---- the run

    async def play(self) -> FinalFrame:
        """Play the job to its end and return its last word; every row is then on disk."""
        for turns in self._unprepared:
            exchange = turns.take()
            exchange.due_ns = self._start_ns + (exchange.planned.due_ns or 0)
            self._schedule(exchange)
        # before the start nobody minds a long slice; after it, the chores go on in short ones
        while self._lookahead.fill(
            max(monotonic_ns(), self._start_ns), monotonic_ns() + 50 * SLICE_NS
        ):
            await asyncio.sleep(0)
        self._top_up()
        freeze()
        self._probe = Probe(self._loop, max(self._start_ns, monotonic_ns()))
        self._chore_due_ns = monotonic_ns()
        self._chores()
        self._arm()
        await self._over
        return await self._close()

    async def _close(self) -> FinalFrame:
        end_ns = monotonic_ns()
        self._rest()
        self._cut(end_ns, "drain")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connections.close()
        for _ in self._lookahead.give_up():
            pass  # _unroll counts what was planned and is not to be sent
        self._recorder.work(monotonic_ns() + SECOND_NS)
        self._tick(monotonic_ns())
        await self._recorder.close()
        return self._final(end_ns)

    def _rest(self) -> None:
        self._pacer.close()
        if self._probe is not None:
            self._probe.close()
        if self._chore is not None:
            self._chore.cancel()
            self._chore = None

    def _final(self, end_ns: int) -> FinalFrame:
        invalid = [
            why if times == 1 else f"{why} ({times} times)" for why, times in self._invalid.items()
        ]
        return FinalFrame(
            run=self._job.run,
            lane=self._job.lane,
            finished=self._stopped is None,
            rows=self._recorder.rows,
            planned=dict(self._planned),
            end_ns=end_ns,
            invalid=(*invalid, *self._recorder.faults),
        )

    @property
    def rows(self) -> int:
        """How many rows were made."""
        return self._recorder.rows

    @property
    def bug(self) -> str | None:
        """The traceback of a fault of ours, if there was one."""
        return self._bug

    def stop(self, why: str) -> None:
        """Send nothing more: what was due already is unsent, what is open may take the drain to finish."""
        if self._stopped is not None:
            return
        self._stopped = why
        now_ns = monotonic_ns()
        self._pacer.rest()
        due_ns = self._lookahead.next_due_ns()
        while due_ns is not None and due_ns <= now_ns:
            self._unsent(self._lookahead.pop(), now_ns, f"stopped: {why}")
            due_ns = self._lookahead.next_due_ns()
        while self._later and self._later[0][0] <= now_ns:
            self._unsent(heapq.heappop(self._later)[2], now_ns, f"stopped: {why}")
        self._later.clear()
        self._window_end_ns = min(self._window_end_ns, now_ns)
        self._drain_end_ns = min(self._drain_end_ns, now_ns + self._profile.drain_ns)
        self._look_for_the_end(now_ns)

    def fault(self, error: BaseException, where: str) -> None:
        """Take note of a bug of ours: the run is invalid and ends."""
        if self._bug is None:
            self._bug = "".join(traceback.format_exception(error))
        self._invalid[f"a bug in the generator ({where}): {error!r}"] += 1
        self.stop("a bug in the generator")
        if not self._over.done():
            self._over.set_result(None)

    def abandon(self, why: str) -> None:
        """Write down what there is, without waiting for anything: nobody is left to report to."""
        self._rest()
        self._stopped = self._stopped or why
        self._cut(monotonic_ns(), "drain")
        self._recorder.close_now()

    # ---- sending

    def _schedule(self, exchange: Exchange) -> None:
        self._launched += 1
        heapq.heappush(self._later, (exchange.due_ns, self._launched, exchange))

    def _next_due_ns(self) -> int | None:
        if self._stopped is not None:
            return None
        open_ns = self._lookahead.next_due_ns()
        if not self._later:
            return open_ns
        closed_ns = self._later[0][0]
        return closed_ns if open_ns is None or closed_ns < open_ns else open_ns

    def _arm(self) -> None:
        due_ns = self._next_due_ns()
        if due_ns is not None:
            self._pacer.arm(due_ns)

    def _fire(self, now_ns: int) -> None:
        """Send everything that is due, in order."""
        while (due_ns := self._next_due_ns()) is not None and due_ns <= now_ns:
            if self._later and self._later[0][0] == due_ns:
                exchange = heapq.heappop(self._later)[2]
            else:
                exchange = self._lookahead.pop()
            self._launch(exchange, now_ns)
            now_ns = monotonic_ns()
        if due_ns is not None:
            self._pacer.arm(due_ns)

    def _launch(self, exchange: Exchange, now_ns: int) -> None:
        if self._most_in_flight is not None and len(self._open) >= self._most_in_flight:
            why = f"max_in_flight of {self._most_in_flight} was reached"
            self._invalid[why] += 1
            self._unsent(exchange, now_ns, why)
            return
        self._second.due[exchange.planned.tenant] += 1
        self._open[exchange] = None
        wire = self._connections.take()
        if wire is None:
            exchange.connecting_ns = now_ns
            exchange.task = self._spawn(self._connect(exchange), "connecting")
        else:
            exchange.reused = True
            wire.begin(exchange, self._ended, self._connections.give)
            self._sent(exchange)

    async def _connect(self, exchange: Exchange) -> None:
        try:
            wire = await self._connections.open()
        except (OSError, aiohttp.ClientError, TimeoutError) as fault:
            exchange.task = None
            if exchange.ending is None:
                self._not_connected(exchange, fault)
            return
        exchange.task = None
        if exchange.ending is not None:
            self._connections.give(wire)
            return
        assert exchange.connecting_ns is not None
        exchange.connect_ns = monotonic_ns() - exchange.connecting_ns
        wire.begin(exchange, self._ended, self._connections.give)
        self._sent(exchange)

    def _not_connected(self, exchange: Exchange, fault: Exception) -> None:
        now_ns = monotonic_ns()
        cause = getattr(fault, "os_error", fault)
        if isinstance(cause, OSError) and cause.errno in OURS:
            why = f"no connection could be opened on this host: {cause.strerror}"
            self._invalid[why] += 1
            ending = Ending(outcome=Outcome.UNSENT, stage="connect", why=why)
        else:
            ending = Ending(outcome=Outcome.REFUSED, stage="connect", why=_words(fault))
        self._end(exchange, now_ns, ending)

    def _sent(self, exchange: Exchange) -> None:
        self._second.sent[exchange.planned.tenant] += 1
        lateness_ns = exchange.lateness_ns()
        assert lateness_ns is not None
        self._second.lateness_max_ns = max(self._second.lateness_max_ns, lateness_ns)

    # ---- ending

    def _unsent(self, exchange: Exchange, now_ns: int, why: str) -> None:
        self._second.due[exchange.planned.tenant] += 1
        self._end(exchange, now_ns, Ending(outcome=Outcome.UNSENT, why=why))

    def _ended(self, exchange: Exchange, at_ns: int, lost: str | None) -> None:
        """Called by the wire, once for each exchange that it began and we did not abandon."""
        self._end(exchange, at_ns, judge(exchange.reply, lost=lost))

    def _end(self, exchange: Exchange, at_ns: int, ending: Ending) -> None:
        exchange.done_ns = at_ns
        exchange.ending = ending
        self._open.pop(exchange, None)
        self._tokens += len(exchange.reply.stamps) - exchange.tokens_seen
        self._merged += exchange.reply.merged - exchange.merged_seen
        self._recorder.add(exchange)
        if exchange.turns is not None:
            self._next_turn(exchange.turns, at_ns, failed=ending.outcome is not Outcome.COMPLETED)
        if at_ns >= self._window_end_ns:
            self._look_for_the_end(at_ns)

    def _next_turn(self, turns: Turns, done_ns: int, *, failed: bool) -> None:
        if self._stopped is not None:
            return
        exchange = turns.take()
        self._unprepared.append(turns)
        think_ns = exchange.planned.think_ns
        exchange.due_ns = done_ns + (max(think_ns, AFTER_FAILURE_NS) if failed else think_ns)
        if exchange.due_ns < self._window_end_ns:
            self._schedule(exchange)
            self._arm()

    def _look_for_the_end(self, now_ns: int) -> None:
        if self._over.done() or now_ns < self._window_end_ns:
            return
        if not self._open and self._next_due_ns() is None:
            self._over.set_result(None)

    def _cut(self, now_ns: int, stage: str) -> None:
        """End everything that is still open."""
        for exchange in tuple(self._open):
            self._time_out(exchange, now_ns, stage)

    def _time_out(self, exchange: Exchange, now_ns: int, stage: str) -> None:
        if exchange.task is not None:
            exchange.task.cancel()
        if exchange.wire is not None:
            exchange.wire.abandon()
            exchange.wire = None
        if self._bug is not None:
            # whatever went wrong may go wrong again: look at nothing that came
            why = "a bug in the generator"
            ending = Ending(outcome=Outcome.BROKEN, stage="generator", why=why)
        elif exchange.sent_ns is not None:
            exchange.reply.cut(now_ns)
            ending = judge(exchange.reply, overdue=stage)
        elif stage == "connect":
            limit_s = self._profile.timeouts.connect_ns / 1e9
            why = f"{NO_CONNECTION} {limit_s:g} s"
            ending = Ending(outcome=Outcome.REFUSED, stage=stage, why=why)
        else:
            ending = Ending(outcome=Outcome.TIMED_OUT, stage=stage, why="still connecting")
        self._end(exchange, now_ns, ending)

    # ---- between requests

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault(error, task.get_name())

    def _chores(self) -> None:
        """Do a slice of what need not be done on time, and say when to go on."""
        now_ns = monotonic_ns()
        # The sockets have been looked at since the last chores, and maybe not since now: a limit may only be
        # held against what would have been read by then.
        read_ns, self._chore_ns = self._chore_ns, now_ns
        paused_ns = now_ns - self._chore_due_ns
        if paused_ns > PAUSED_NS and not self._sweep_waits:
            # connections and replies that our pause held up have as long again to get on
            self._sweep_waits = True
            self._next_sweep_ns = max(self._next_sweep_ns, now_ns + min(paused_ns, SECOND_NS))
        if now_ns >= self._next_sweep_ns:
            self._next_sweep_ns = now_ns + SWEEP_NS
            self._sweep_waits = False
            self._sweep(now_ns, read_ns)
        if now_ns >= self._next_second_ns:
            self._tick(now_ns)
        until_ns = now_ns + SLICE_NS
        while self._unprepared and monotonic_ns() < until_ns:
            self._unprepared.popleft().prepare()
        busy = (
            self._lookahead.fill(max(now_ns, self._start_ns), until_ns)
            or self._recorder.work(monotonic_ns() + SLICE_NS)
            or bool(self._unprepared)
        )
        if not self._over.done():
            wait_s = BUSY_S if busy else CALM_S
            self._chore_due_ns = now_ns + int(wait_s * SECOND_NS)
            self._chore = self._loop.call_later(wait_s, self._chores)

    def _sweep(self, now_ns: int, read_ns: int) -> None:
        """Look for requests that were past a limit at ``read_ns``, every 100 ms: one timer for all, none for each."""
        for exchange in [each for each in self._open if each.look_again_ns <= read_ns]:
            stage = exchange.overdue(read_ns, self._profile.timeouts)
            if stage is not None:
                self._time_out(exchange, now_ns, stage)
        if read_ns >= self._drain_end_ns:
            self._cut(now_ns, "drain")
        self._connections.prune()
        self._top_up()
        self._look_for_the_end(now_ns)

    def _top_up(self) -> None:
        """Open connections for what is due within the next second, unless that is under way."""
        if self._filling is not None and not self._filling.done():
            return
        until_ns = max(monotonic_ns(), self._start_ns) + AHEAD_NS
        wanted = self._lookahead.due_within(until_ns, MOST_IDLE)
        wanted += sum(due_ns <= until_ns for due_ns, _, _ in self._later)
        if self._stopped is None and wanted > self._connections.idle:
            self._filling = self._spawn(
                self._connections.fill(min(wanted, MOST_IDLE)), "opening connections ahead"
            )

    def _tick(self, now_ns: int) -> None:
        """Send a second's progress up and its rows to disk."""
        self._next_second_ns += SECOND_NS
        if self._next_second_ns <= now_ns:
            self._next_second_ns = now_ns + SECOND_NS
        for exchange in self._open:
            reply = exchange.reply
            self._tokens += len(reply.stamps) - exchange.tokens_seen
            self._merged += reply.merged - exchange.merged_seen
            exchange.tokens_seen = len(reply.stamps)
            exchange.merged_seen = reply.merged
        lag_ns = self._probe.take() if self._probe is not None else ()
        events, reads = self._tokens, self._tokens - self._merged
        self._tokens = self._merged = 0
        at_ns = now_ns - self._start_ns
        lateness_max_ns = self._second.lateness_max_ns
        tenants, failures = self._second.take()
        self._report(
            Progress(
                run=self._job.run,
                lane=self._job.lane,
                at_ns=at_ns,
                in_flight=len(self._open),
                events=events,
                lateness_max_ns=lateness_max_ns,
                loop_lag_max_ns=max(lag_ns, default=0),
                tenants=tenants,
                failures=failures,
            )
        )
        self._recorder.flush(
            HealthSample(
                run=self._job.run,
                lane=f"{self._job.worker}-{self._job.lane}",
                at_ns=at_ns,
                loop_lag_ns=lag_ns,
                events=events,
                reads=reads,
                in_flight=len(self._open),
                run_queue_ns=None,
                steal_share=None,
            )
        )


def _share(most: int | None, job: Job) -> int | None:
    """Return this lane's part of the profile's max_in_flight; all lanes' parts make up the whole."""
    if most is None:
        return None
    return max(most // job.lanes + (job.lane < most % job.lanes), 1)


def _words(fault: Exception) -> str:
    """Return why no connection could be made, in the kernel's words where it has any."""
    if isinstance(fault, TimeoutError):
        return f"{NO_CONNECTION} the time allowed"
    cause = getattr(fault, "os_error", fault)
    if (
        isinstance(cause, OSError)
        and cause.errno in errno.errorcode
        and not isinstance(cause, ssl.SSLError)
    ):
        assert cause.errno is not None
        return f"cannot connect: {os.strerror(cause.errno)}"
    return str(fault)[:200] or type(fault).__name__
