"""One worker with 200 queues beside one with one: what each queue adds to an idle worker is paid all day."""

from __future__ import annotations

import time
from statistics import median, quantiles
from typing import Any

from benchmarks.apps.tasks import queue_names
from benchmarks.measures import PREFORK, Figures, read
from benchmarks.stand import Stand
from benchmarks.systems import KIT

MANY = 200
GOAL = 1.2
MEASURES = {
    "worker_cpu_ms": "worker's CPU while idle, ms a second",
    "redis_cpu_ms": "Redis's CPU meanwhile, ms a second",
    "commands": "Redis commands meanwhile, a second",
    "p50_ms": "idle, call to start, p50 ms",
    "p99_ms": "idle, call to start, p99 ms",
}


def run(stand: Stand, *, quick: bool) -> tuple[str, dict[str, Any]]:
    """Measure both by turns, and return the table and what belongs into results.json."""
    idle_s, jobs, rounds = (4, 100, 1) if quick else (20, 400, 3)
    pairs = [(measure(stand, 1, idle_s, jobs), measure(stand, MANY, idle_s, jobs)) for _ in range(rounds)]
    rows = {}
    for name in MEASURES:
        one, many = (median(pair[side][name] for pair in pairs) for side in (0, 1))
        rows[name] = {"one": one, "many": many, "ratio": median(b[name] / a[name] if a[name] else 0 for a, b in pairs)}
    lines = [f"| on one worker of ours | 1 queue | {MANY} queues | ratio |", "|---|---:|---:|---:|"]
    lines += [f"| {says} | {' | '.join(f'{value:.2f}' for value in rows[name].values())} |" for name, says in MEASURES.items()]
    return "\n".join(lines), rows


def measure(stand: Stand, queues: int, idle_s: float, jobs: int) -> Figures:
    """Send single jobs to an idle worker, to a queue at random each, then leave it alone."""
    stand.client.flushall()
    with stand.worker(KIT, PREFORK, "--queues", ",".join(queue_names(queues))) as worker:
        waits = stand.produce(KIT, "spread", jobs, BENCH_QUEUES=str(queues))
        before, spent = read(stand, worker), _redis_s(stand)
        time.sleep(idle_s)
        after, redis_s = read(stand, worker), _redis_s(stand) - spent
    hundredths, passed = quantiles(waits, n=100, method="inclusive"), after.at - before.at
    return {
        "worker_cpu_ms": (after.cpu_s - before.cpu_s) * 1000 / passed,
        "redis_cpu_ms": redis_s * 1000 / passed,
        "commands": (after.commands - before.commands) / passed,
        "p50_ms": hundredths[49] * 1000,
        "p99_ms": hundredths[98] * 1000,
    }


def _redis_s(stand: Stand) -> float:
    used = stand.client.info("cpu")
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])
