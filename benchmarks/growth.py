"""How the cost of a job's moves grows with what is there already: one figure at one size says nothing of the next size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

from redis import Redis

from benchmarks import walker
from benchmarks.measures import Figures, script_us
from benchmarks.stand import Stand
from benchmarks.systems import KIT
from deploy.demo.waiting import wait_until


@dataclass(frozen=True)
class Setting:
    """What is there while the moves are made, one of which grows."""

    waiting: int = 0
    delayed: int = 0
    queues: int = 1
    workers: int = 1
    payload_bytes: int = 100


STEPS = {
    "waiting": (0, 10_000, 100_000, 1_000_000),
    "delayed": (0, 10_000, 100_000),
    "queues": (1, 10, 100, 1_000),
    "workers": (1, 2, 4, 8),
    "payload_bytes": (100, 1_000, 10_000),
}
SAYS = {
    "waiting": "jobs waiting",
    "delayed": "jobs delayed",
    "queues": "queues",
    "workers": "workers, or senders",
    "payload_bytes": "bytes of payload",
}
assert SAYS.keys() == STEPS.keys() == {field.name for field in fields(Setting)}


def run(stand: Stand, *, quick: bool) -> tuple[str, dict[str, Any]]:
    """Measure each step, and return the tables and what belongs into results.json."""
    jobs, results, lines = 500 if quick else 4_000, {}, []
    for what, steps in STEPS.items():
        taken = [step for step in steps if not quick or step <= 10_000]
        rows = {step: measure(stand, replace(Setting(), **{what: step}), jobs) for step in taken}
        results[what] = {str(step): row for step, row in rows.items()}
        lines += [f"| {SAYS[what]} | add, jobs/s | Redis, µs | claim and complete, jobs/s | Redis, µs |", f"|{'---:|' * 5}"]
        lines += [
            f"| {step:,} | {row['add']:,.0f} | {row['add_us']:.0f} | {row['take']:,.0f} | {row['take_us']:.0f} |"
            for step, row in rows.items()
        ]
        lines.append("")
    return "\n".join(lines), results


def measure(stand: Stand, setting: Setting, jobs: int) -> Figures:
    """Fill the first queue as the setting says; then add jobs, and then take as many."""
    stand.client.flushall()
    for what, number in (("waiting", setting.waiting), ("delayed", setting.delayed)):
        if number:
            stand.produce(KIT, what, number)
    figures = {}
    for move in ("add", "take"):
        figures[move], figures[f"{move}_us"] = walk(stand, move, setting, jobs)
    return figures


def walk(stand: Stand, move: str, setting: Setting, jobs: int) -> tuple[float, float]:
    """Let as many processes as there are workers begin at once, and return jobs per second of all, and Redis's time for one."""
    share, numbers = jobs // setting.workers, (setting.queues, setting.payload_bytes)
    command = [sys.executable, "-m", "benchmarks.walker", move, *map(str, (share, *numbers))]
    with ThreadPoolExecutor(setting.workers) as threads:
        walks = [threads.submit(stand.answer, command) for _ in range(setting.workers)]
        wait_until(_blocked(stand.client, setting.workers), "all are ready", 60)
        stand.client.config_resetstat()
        stand.client.rpush(walker.GO, *range(setting.workers))
        answers = [walk.result() for walk in walks]
    moved = sum(answer["jobs"] for answer in answers)
    took_s = max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers)
    return moved / took_s, script_us(stand) / moved


def _blocked(client: Redis, number: int) -> Callable[[], bool]:
    return lambda: client.info("clients")["blocked_clients"] >= number
