"""How far the generator's stamps are from the truth, by a server that keeps its own record.

``python -m benchmarks.accuracy --help``; README.md says how to read it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import truth
from benchmarks.generator import started
from loadgen.frames import Final, Job
from reports.rows import read_rows
from reports.rundir import RunDir
from reports.samples import HEALTH, read_samples
from slas.evidence import HealthSample, Outcome, RequestRow

TTFT_LIMIT_MS = 1.0
ITL_LIMIT_MS = 0.5
# beyond these the host, not the generator, is what is measured
WAIT_SHARE_LIMIT = 0.005
STEAL_SHARE_LIMIT = 0.005
SALT = "bench"
WITHIN, OUTSIDE, UNFIT = 0, 1, 3

PROFILE = """\
version: 1
seed: {seed}
warmup: 2s
duration: {duration}s
drain: 20s
tenants:
  bench: {{rate: {rate}/s, prompt_tokens: {prompt}, output_tokens: {tokens}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Client less server, in ns: per request for ``ttft``, ``lateness`` and ``arrival``, per token gap for ``itl``.

    ``ttft`` is sent to first token against request read to first write; ``arrival`` is due to request read.
    """

    ttft: NDArray[np.int64]
    itl: NDArray[np.int64]
    lateness: NDArray[np.int64]
    arrival: NDArray[np.int64]


def stamps_of(row: RequestRow) -> list[int]:
    """Return a stamp per token: all tokens of one read have that read's."""
    assert row.first_ns is not None
    first = row.output_tokens - sum(row.gap_tokens)
    stamps = [row.first_ns] * first
    at_ns = row.first_ns
    for gap_ns, tokens in zip(row.gaps_ns, row.gap_tokens, strict=True):
        at_ns += gap_ns
        stamps += [at_ns] * tokens
    return stamps


def compare(rows: list[RequestRow], seen: dict[str, truth.Served], start_ns: int) -> Errors:
    """Return the errors of every request, matched by its id and token by token."""
    ttft, itl, lateness, arrival = [], [], [], []
    for row in rows:
        served = seen[f"{SALT}-{row.tenant}-{row.ordinal}"]
        assert row.sent_ns is not None
        assert row.first_ns is not None
        stamps = stamps_of(row)
        assert len(stamps) == len(served.written_ns), "a token was lost or made up"
        ttft.append((row.first_ns - row.sent_ns) - (served.written_ns[0] - served.read_ns))
        lateness.append(row.sent_ns - row.due_ns - (row.connect_ns or 0))
        arrival.append(served.read_ns - start_ns - row.due_ns)
        itl += [
            (ours[1] - ours[0]) - (theirs[1] - theirs[0])
            for ours, theirs in zip(pairwise(stamps), pairwise(served.written_ns), strict=True)
        ]
    return Errors(
        ttft=np.array(ttft),
        itl=np.array(itl),
        lateness=np.array(lateness),
        arrival=np.array(arrival),
    )


def real_time(pid: int, core: int | None, priority: int) -> str:
    """Pin a process and raise it above everything else, as far as the host allows; return what was done."""
    done = []
    if core is not None:
        os.sched_setaffinity(pid, {core})
        done.append(f"core {core}")
    if priority:
        try:
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(priority))
            done.append(f"SCHED_RR {priority}")
        except PermissionError:
            done.append("SCHED_RR refused")
    return ", ".join(done) or "as it is"


def starved(health: list[HealthSample]) -> tuple[float, float]:
    """Return the shares of time for which the generator waited for a core, and the hypervisor took the CPUs."""
    waits = [sample.run_queue_ns for sample in health if sample.run_queue_ns is not None]
    steals = [sample.steal_share for sample in health if sample.steal_share is not None]
    return sum(waits) / (len(health) * 1e9), sum(steals) / max(len(steals), 1)


def line(name: str, errors_ns: NDArray[Any], limit_ms: float | None) -> str:
    """Return a line of the table: percentiles of the errors' size in ms."""
    sizes = np.abs(errors_ns) / 1e6
    p50, p90, p99, worst = np.percentile(sizes, (50, 90, 99, 100))
    limit = "" if limit_ms is None else f"p99 < {limit_ms:g}"
    return f"{name:<22}{len(sizes):>8}{p50:>9.3f}{p90:>9.3f}{p99:>9.3f}{worst:>9.3f}   {limit}"


def measure(
    options: argparse.Namespace, folder: Path
) -> tuple[Final, Errors, list[HealthSample], str]:
    """Play the benchmark once; return what was said, the errors, the health and the CPU used."""
    run_dir = RunDir.create(folder / "run")
    sheet = folder / "profile.yaml"
    rate_hz = options.events / options.tokens
    sheet.write_text(
        PROFILE.format(
            seed=options.seed,
            duration=options.seconds,
            rate=round(rate_hz, 3),
            prompt=options.prompt,
            tokens=options.tokens,
        )
    )
    record = folder / "truth.txt"
    program = truth.build(folder)
    with (
        truth.serving(program, record, ttft_us=options.ttft_us, itl_us=options.itl_us) as server,
        started() as generator,
    ):
        cores = sorted(os.sched_getaffinity(0))
        spread = len(cores) > 1 and not options.unpinned
        how = real_time(server.pid, cores[0] if spread else None, options.priority and 2)
        print(f"server:    {how}")
        how = real_time(generator.pid, cores[-1] if spread else None, options.priority)
        print(f"generator: {how}")
        before = cpu_ticks(generator.pid)
        job = Job(
            run=0,
            lane=0,
            lanes=1,
            worker="bench",
            run_dir=str(run_dir.path),
            profile_path=str(sheet),
            seed=options.seed,
            level_percent=100,
            quick=False,
            url=server.url,
            model="truth",
            api_key_env=None,
            salt=SALT,
            start_ns=monotonic_ns() + 2_000_000_000,
        )
        final = generator.play(job)
        cpu_s = (cpu_ticks(generator.pid) - before) / os.sysconf("SC_CLK_TCK")
    rows = list(read_rows(run_dir.rows_of("bench", 0)))
    bad = [row for row in rows if row.outcome is not Outcome.COMPLETED]
    assert not bad, bad[:3]
    assert len(rows) == final.planned["bench"]
    health = list(read_samples(run_dir.health_of("bench", 0), HEALTH))
    events = sum(row.output_tokens for row in rows)
    reads = sum(sample.reads for sample in health)
    cpu = (
        f"{len(rows)} requests, {events} events in {reads} reads; {cpu_s:.2f} CPU-s, "
        f"{events / cpu_s:,.0f} events per CPU-s"
    )
    return final, compare(rows, truth.read(record), job.start_ns), health, cpu


def cpu_ticks(pid: int) -> int:
    """Return the user and system time that a process has used, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--events", type=float, default=5000, help="tokens a second (5000)")
    parser.add_argument("--seconds", type=int, default=15, help="measured window (15)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens a request (64)")
    parser.add_argument("--prompt", type=int, default=64, help="prompt tokens (64)")
    parser.add_argument("--ttft-us", type=int, default=50_000, help="the server's TTFT (50000)")
    parser.add_argument("--itl-us", type=int, default=40_000, help="the server's ITL (40000)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--priority", type=int, default=1, help="SCHED_RR priority; 0 leaves it (1)"
    )
    parser.add_argument("--unpinned", action="store_true", help="leave both on every core")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        final, errors, health, cpu = measure(options, Path(folder))
    print(cpu)
    print(f"{'|client - server|, ms':<22}{'n':>8}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}")
    print(line("ttft (from sent)", errors.ttft, TTFT_LIMIT_MS))
    print(line("itl", errors.itl, ITL_LIMIT_MS))
    print(line("due to sent", errors.lateness, None))
    print(line("due to server's read", errors.arrival, None))
    lags = np.array([delay for sample in health for delay in sample.loop_lag_ns])
    print(line("loop lag", lags, None))
    for why in final.invalid:
        print(f"invalid: {why}")
    wait_share, steal_share = starved(health)
    print(f"waited for a core {wait_share:.3%} of the time; stolen {steal_share:.3%} of the CPUs")
    fit = wait_share < WAIT_SHARE_LIMIT and steal_share < STEAL_SHARE_LIMIT
    ttft_ms, itl_ms = (
        float(np.percentile(np.abs(each), 99)) / 1e6 for each in (errors.ttft, errors.itl)
    )
    within = ttft_ms < TTFT_LIMIT_MS and itl_ms < ITL_LIMIT_MS and not final.invalid
    verdict = "within the limits" if within else "outside the limits"
    print(verdict if fit else f"{verdict}, on a host that is not fit to say")
    return WITHIN if within else OUTSIDE if fit else UNFIT


if __name__ == "__main__":
    sys.exit(main())
