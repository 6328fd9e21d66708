"""Proof that a server is the one that was asked for, and that it works: five steps, none of which is a log line.

1. Before the start nobody listens on the port.  2. The listener belongs to the tree that was started.
3. /health answers 200.  4. /v1/models names the model.  5. One real completion of one token.

An attached server is asked 3 to 5 only, and one that is merely busy (429, 5xx) is what is to be measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launchers.cause import recognise
from launchers.engine import LaunchError
from launchers.fetch import Reply, UnreachableError, fetch
from launchers.listener import Listener
from launchers.place import Place, Tree
from profiles.sheet import shown
from profiles.units import format_duration

TAIL_LINES = 20
# far enough back for the root cause, which stands above the traceback that ends the log
SEARCHED_BYTES = 64 << 10
PROBE_WITHIN_S = 10.0
COMPLETION_WITHIN_S = 120.0
LEAST_PROBE_S = 1.0
ATTACHED_COMPLETION_WITHIN_S = 30.0
POLL_EVERY_S = 0.1
SECOND_NS = 1_000_000_000
TELL_AFTER_NS = 1 * SECOND_NS
TELL_EVERY_NS = 10 * SECOND_NS

OnWait = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Whom to ask and as whom: the root URL, the model's name in requests, the key's variable if any."""

    url: str
    model: str
    health: bool
    key_env: str | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a server that is ready said of itself; ``ready_ns`` is this host's monotonic clock."""

    ready_ns: int
    version: str | None
    simulated: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One step's outcome: ``yes``, ``later`` (not now), ``no`` (never), or ``silence``; and why."""

    outcome: Literal["yes", "later", "no", "silence"]
    why: str = ""
    mend: str = ""


class Waiting:
    """Decides what of a wait is worth a line: nothing in its first second, then what is new, or 10 s old."""

    def __init__(self) -> None:
        self._told = ""
        self._told_ns = 0

    def is_news(self, why: str, passed_ns: int) -> bool:
        """Say whether to tell, ``passed_ns`` after the wait began, that it goes on because of ``why``."""
        repeated = why == self._told and passed_ns - self._told_ns < TELL_EVERY_NS
        if passed_ns < TELL_AFTER_NS or repeated:
            return False
        self._told, self._told_ns = why, passed_ns
        return True


def check_port_is_free(place: Place, port: int) -> None:
    """Step 1.

    Raises LaunchError that names the process which has the port.
    """
    found = place.listeners(port)
    if found:
        raise LaunchError(
            f"port {port} is taken by {found[0]}",
            "end that process, or leave port: out so that a free one is picked",
        )


def prove_started(
    server: Server,
    *,
    place: Place,
    tree: Tree,
    port: int,
    log: Path,
    within_ns: int,
    on_wait: OnWait | None,
) -> Proof:
    """Steps 2 to 5, asked until they hold; the deadline counts from now.

    Raises LaunchError at once when the process ends or cannot become what was asked for, and at the deadline.
    """
    began_ns = time.monotonic_ns()
    waiting = Waiting()
    while True:
        ended = tree.poll()
        passed_ns = time.monotonic_ns() - began_ns
        passed = format_duration(passed_ns)
        if ended is not None:
            raise _with_log(
                f"the engine {ended} after {passed}, before it was ready", log, "read its log"
            )
        left_s = max(LEAST_PROBE_S, (within_ns - passed_ns) / SECOND_NS)
        answer = _steps(server, place, tree, port, time.monotonic() + left_s)
        if answer.outcome == "yes":
            return _proof(server, ())
        if answer.outcome == "no":
            raise _with_log(answer.why, log, answer.mend, trust_log=False)
        if passed_ns > within_ns:
            raise _with_log(
                f"the engine was not ready after {passed}: {answer.why}",
                log,
                "raise ready_within: if it was still loading",
            )
        if on_wait is not None and waiting.is_news(answer.why, passed_ns):
            on_wait(f"waiting for the engine: {answer.why} ({passed})")
        time.sleep(POLL_EVERY_S)


def prove_attached(server: Server, *, within_ns: int, on_wait: OnWait | None) -> Proof:
    """Steps 3 to 5 of a server that runs already; ``within_ns`` is how long it may be unreachable.

    Raises LaunchError if nobody answers, or if our key or model is refused.
    """
    began_ns = time.monotonic_ns()
    waiting = Waiting()
    while True:
        answers = _attached_steps(server)
        for answer in answers:
            if answer.outcome == "no":
                raise LaunchError(answer.why, answer.mend)
        silent = all(answer.outcome == "silence" for answer in answers)
        passed_ns = time.monotonic_ns() - began_ns
        if answers[-1].outcome == "yes" or passed_ns >= within_ns:
            break
        if on_wait is not None and waiting.is_news(answers[-1].why, passed_ns):
            on_wait(f"waiting for {server.url}: {answers[-1].why} ({format_duration(passed_ns)})")
        time.sleep(1)
    if silent:
        raise LaunchError(
            f"{server.url} is unreachable: {answers[0].why}",
            "check the address, and that the server runs and lets this machine in",
        )
    return _proof(server, tuple(a.why for a in answers if a.why))


def log_tail(log: Path) -> tuple[str, ...]:
    """Return the last lines of a log, as far back as a root cause is looked for; none if there is no log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - SEARCHED_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())


def _with_log(what: str, log: Path, mend: str, *, trust_log: bool = True) -> LaunchError:
    lines = log_tail(log)
    cause = recognise(lines) if trust_log else None
    if cause is not None:
        what, mend = f"{what}: {cause.name}", cause.mend
    return LaunchError(what, f"{mend} ({log})" if lines else mend, lines[-TAIL_LINES:])


def _steps(server: Server, place: Place, tree: Tree, port: int, until_s: float) -> Answer:
    health = _health(server, _left_s(until_s, PROBE_WITHIN_S))
    if health.outcome == "silence":
        return Answer(outcome="later", why=f"nobody answers on port {port} yet")
    owner = _owner(place.listeners(port), tree, port)
    if owner.outcome != "yes":
        return owner
    if health.outcome != "yes":
        return health
    models = _models(server, _left_s(until_s, PROBE_WITHIN_S))
    if models.outcome != "yes":
        return models
    return _completion(server, _left_s(until_s, COMPLETION_WITHIN_S))


def _left_s(until_s: float, most_s: float) -> float:
    """Return how long a probe may take: until then, and at most and at least so long."""
    return max(LEAST_PROBE_S, min(most_s, until_s - time.monotonic()))


def _attached_steps(server: Server) -> tuple[Answer, ...]:
    health = _health(server, PROBE_WITHIN_S)
    if health.outcome == "silence":
        return (health,)
    models = _models(server, PROBE_WITHIN_S)
    return (health, models, _completion(server, ATTACHED_COMPLETION_WITHIN_S))


def _owner(found: tuple[Listener, ...], tree: Tree, port: int) -> Answer:
    for listener in found:
        if listener.pid is not None and not tree.owns(listener.pid):
            return Answer(
                outcome="no",
                why=f"port {port} is answered by {listener}, which is not the engine that was started",
                mend="end that process, or leave port: out so that a free one is picked",
            )
    if not any(listener.pid is not None for listener in found):
        return Answer(outcome="later", why=f"the listener on port {port} cannot be named")
    return Answer(outcome="yes")


def _health(server: Server, within_s: float) -> Answer:
    try:
        status = fetch(f"{server.url}/health", within_s=within_s).status
    except UnreachableError as fault:
        if fault.stage == "connect":
            return Answer(outcome="silence", why=str(fault))
        return Answer(outcome="later", why=f"/health: {fault}")
    if status == 200 or (not server.health and 400 <= status < 500 and status != 429):
        # not every server has the page; the next steps ask more than it could tell
        return Answer(outcome="yes")
    return Answer(outcome="later", why=f"/health answers {status}")


def _models(server: Server, within_s: float) -> Answer:
    try:
        reply = fetch(f"{server.url}/v1/models", headers=server.headers, within_s=within_s)
        offered = _names(reply) if reply.status == 200 else ()
    except UnreachableError as fault:
        return Answer(outcome="later", why=f"/v1/models: {fault}")
    if reply.status in (401, 403):
        return _key_refused(server, reply)
    if reply.status != 200:
        if reply.status == 429 or reply.status >= 500:
            return Answer(outcome="later", why=f"/v1/models answers {reply.status}")
        return Answer(outcome="yes", why=f"the server lists no models (/v1/models: {reply.status})")
    if server.model in offered:
        return Answer(outcome="yes")
    if not offered:
        return Answer(outcome="later", why="/v1/models names no model")
    return Answer(
        outcome="no",
        why=f"the server does not offer the model {server.model!r}; it offers {_listed(offered)}",
        mend=f"ask for {shown(offered[0])}, or for another of these",
    )


def _completion(server: Server, within_s: float) -> Answer:
    asked = {"model": server.model, "max_tokens": 1, "temperature": 0}
    refusals: list[str] = []
    later: list[str] = []
    statuses = set()
    until_s = time.monotonic() + within_s
    for path, prompt in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/completions", {"prompt": "Hello"}),
    ):
        try:
            reply = fetch(
                f"{server.url}{path}",
                body={**asked, **prompt},
                headers=server.headers,
                within_s=_left_s(until_s, within_s),
            )
            answered = reply.status == 200 and _answered(reply)
        except UnreachableError as fault:
            later.append(f"a request for one token to {path}: {fault}")
            continue
        statuses.add(reply.status)
        if answered:
            return Answer(outcome="yes")
        if reply.status in (401, 403):
            return _key_refused(server, reply)
        said = f"{path} answers {reply.status} to a request for one token: {reply.excerpt}"
        (later if reply.status == 429 or reply.status >= 500 else refusals).append(said)
    if later:
        return Answer(outcome="later", why=later[0])
    if statuses == {404}:
        return Answer(
            outcome="no",
            why=f"the server does not know the model {server.model!r}: {refusals[-1]}",
            mend="check the model's name and that the address is that of an OpenAI-compatible server",
        )
    return Answer(outcome="no", why="; ".join(refusals), mend="mend what the server objects to")


def _key_refused(server: Server, reply: Reply) -> Answer:
    if server.key_env is None:
        why = f"the server wants a key ({reply.status}), and none was given"
        mend = "export it in a variable and name that: --api-key-env NAME"
    else:
        why = (
            f"the server refuses the key in {server.key_env} for {server.model!r} ({reply.status})"
        )
        mend = f"check what {server.key_env} holds"
    return Answer(outcome="no", why=why, mend=mend)


def _names(reply: Reply) -> tuple[str, ...]:
    body = reply.json()
    listed = body.get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        return ()
    return tuple(str(item["id"]) for item in listed if isinstance(item, dict) and "id" in item)


def _listed(names: tuple[str, ...]) -> str:
    first = ", ".join(shown(name) for name in names[:8])
    return first if len(names) <= 8 else f"{first} and {len(names) - 8} more"


def _answered(reply: Reply) -> bool:
    body = reply.json()
    return isinstance(body, dict) and bool(body.get("choices"))


def _proof(server: Server, warnings: tuple[str, ...]) -> Proof:
    ready_ns = time.monotonic_ns()
    version, unread_version = _told(server, "/version", "version")
    simulated, unread_sim = _told(server, "/tailgate/sim", "simulated")
    return Proof(
        ready_ns=ready_ns,
        version=version if isinstance(version, str) else None,
        simulated=simulated is True,
        warnings=(*warnings, *unread_version, *unread_sim),
    )


def _told(server: Server, path: str, name: str) -> tuple[object, tuple[str, ...]]:
    """Return one field of a page that not every server has, and a warning if it could not be read."""
    try:
        reply = fetch(f"{server.url}{path}", within_s=PROBE_WITHIN_S)
        body = reply.json() if reply.status == 200 else None
    except UnreachableError as fault:
        return None, (f"{path}: {fault}",)
    return (body.get(name) if isinstance(body, dict) else None), ()
