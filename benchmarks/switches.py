"""Each guarantee switched off in turn, to see what it costs; all of them together hide which one is dear."""

from __future__ import annotations

from statistics import median
from typing import Any

import psutil

from benchmarks.measures import MOVES, PREFORK, Figures, drain, script_us
from benchmarks.stand import Stand
from benchmarks.systems import CUT, QUEUE
from queue_kit.store import Ledger

GUARANTEES = {
    "events": "event stream",
    "history": "history: records of completed jobs, attempts that failed",
    "dead_letters": "dead letters",
    "dedup": "deduplication",
}
GOAL = 5.0  # percent
#: What a round measures, and of which guarantees it says anything beyond that of plain jobs.
COLUMNS = {
    "enqueue": "enqueue",
    "drain": "drain",
    "redis_us": "Redis's CPU",
    "drain_failing": "drain of jobs that fail",
    "enqueue_keyed": "enqueue with a key",
}
_OF_TIME = {"redis_us"}  # less is better, so its cost is the other way round


def run(stand: Stand, *, quick: bool) -> tuple[str, dict[str, Any]]:
    """Measure all on, then each one off, by turns; return the table and what belongs into results.json."""
    jobs, rounds = (500, 1) if quick else (4_000, 5)
    measured: dict[str, list[Figures]] = {name: [] for name in ("", *GUARANTEES)}
    names = list(measured)
    for turn in range(rounds):  # each has each place once: a machine is slower at some times than at others
        for name in names[turn:] + names[:turn]:
            measured[name].append(measure(stand, name, jobs))
    rows = {name: costs(measured[""], measured[name]) for name in GUARANTEES}
    return table(rows), {"percent": rows, "all_on": {key: median(m[key] for m in measured[""]) for key in COLUMNS}}


def measure(stand: Stand, without: str, jobs: int) -> Figures:
    """Send and drain jobs that do nothing, then such as fail, then send such as have a key."""
    cut = {"BENCH_WITHOUT": without}
    stand.client.flushall()
    stand.client.config_resetstat()
    enqueue = stand.produce(CUT, "burst", jobs, **cut)["per_s"]
    with stand.worker(CUT, PREFORK, **cut) as worker:
        drained = drain(stand, CUT, worker, jobs)["drain"]
        redis_us = script_us(stand) / jobs
        failing = _drain_failing(stand, worker, jobs // 4, cut)
    keyed = stand.produce(CUT, "keyed", jobs // 2, **cut)["per_s"]
    return {"enqueue": enqueue, "drain": drained, "redis_us": redis_us, "drain_failing": failing, "enqueue_keyed": keyed}


def _drain_failing(stand: Stand, worker: psutil.Process, jobs: int, cut: dict[str, str]) -> float:
    control = Ledger(stand.client)
    control.run(MOVES.pause(QUEUE, paused=True))
    stand.produce(CUT, "failing", jobs, **cut)
    control.run(MOVES.pause(QUEUE, paused=False))
    return drain(stand, CUT, worker, jobs)["drain"]


def costs(on: list[Figures], off: list[Figures]) -> dict[str, float]:
    """For each column what the guarantee costs, in percent. The best of the rounds are compared: what else the machine does only
    ever slows a round down, by more than a guarantee costs.
    """
    percent = {}
    for key in COLUMNS:
        best = min if key in _OF_TIME else max
        with_it, without = (best(figures[key] for figures in rounds) for rounds in (on, off))
        percent[key] = (1 - (without / with_it if key in _OF_TIME else with_it / without)) * 100
    return percent


def table(rows: dict[str, dict[str, float]]) -> str:
    """The costs as a table that Markdown takes too."""
    lines = [f"| cost of, in % | {' | '.join(COLUMNS.values())} |", f"|---|{'---:|' * len(COLUMNS)}"]
    lines += [f"| {says} | {' | '.join(f'{rows[name][key]:.1f}' for key in COLUMNS)} |" for name, says in GUARANTEES.items()]
    return "\n".join(lines)
