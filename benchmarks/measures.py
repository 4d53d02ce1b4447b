"""The measures, each of one system on an empty server; what they share is how Redis and a worker are read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import quantiles

import psutil

from benchmarks.stand import Pool, Stand
from benchmarks.systems import KIT, QUEUE, System
from deploy.demo.waiting import wait_until
from queue_kit.store import Ledger, Moves

PREFORK, THREADS = Pool("prefork", 3), Pool("threads", 4)
LOOK_EVERY_S = 0.01
STARTS_WITHIN_S = 30
DRAINS_WITHIN_S = 300

MOVES = Moves("qwk")

Figures = dict[str, float]


@dataclass(frozen=True)
class Extent:
    """How much is measured. ``batches``: of a thousand jobs; ``backlog``: jobs in the long queue."""

    rounds: int
    jobs: int
    idle_jobs: int
    batches: int
    backlog: int


@dataclass(frozen=True)
class Reading:
    """Redis's and a worker's own counters at one instant."""

    commands: int
    reads: int
    memory: int
    cpu_s: float = 0.0
    at: float = field(default_factory=time.perf_counter)


def read(stand: Stand, worker: psutil.Process | None = None) -> Reading:
    """Read the counters. A worker's are those of its process and of its children, those that are gone too."""
    stats = stand.client.info("everything")
    family = [worker, *worker.children(recursive=True)] if worker else []
    cpu_s = sum(map(_spent_s, family))
    return Reading(stats["total_commands_processed"], stats["total_reads_processed"], stats["used_memory"], cpu_s)


def _spent_s(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.NoSuchProcess:  # a child of RQ's, which lives for one job; its parent has it counted
        return 0.0
    return spent.user + spent.system + spent.children_user + spent.children_system


def script_us(stand: Stand) -> float:
    """Time in scripts since the counters were reset, by Redis's own clock: steadier than any rate."""
    stats = stand.client.info("commandstats")
    return sum(float(stats.get(f"cmdstat_{name}", {}).get("usec", 0)) for name in ("evalsha", "eval"))


def fill(stand: Stand, system: System, jobs: int) -> Figures:
    """Send jobs to an empty server, nobody taking them: the rate, and what a job costs Redis in trips, commands, bytes."""
    stand.client.flushall()
    before = read(stand)
    sent = stand.produce(system, "burst", jobs)
    after = read(stand)
    events = (stand.client.memory_usage(system.events, samples=0) or 0) if system.events else 0
    return {
        "enqueue": sent["per_s"],
        "enqueue_cpu_us": sent["cpu_us"],
        "add_trips": (after.reads - before.reads) / jobs,
        "add_commands": (after.commands - before.commands) / jobs,
        "bytes_waiting": (after.memory - before.memory - events) / jobs,
        "bytes_events": events / jobs,
    }


def drain(
    stand: Stand, system: System, worker: psutil.Process, jobs: int, beyond: int = 0, within_s: float = DRAINS_WITHIN_S
) -> Figures:
    """Let a worker take jobs that wait: from the first look that finds one settled to the one that finds only those left that
    lie ``beyond`` them, or for as long as it may take.
    """
    looks = 0

    def left() -> int:
        nonlocal looks
        looks += 1
        return system.left(stand.client) - beyond

    wait_until(lambda: left() < jobs, "the first job is done", STARTS_WITHIN_S)
    looks, begun = 0, left()
    before = read(stand, worker)
    while (rest := left()) > 0 and time.perf_counter() - before.at < within_s:
        time.sleep(LOOK_EVERY_S)
    after = read(stand, worker)
    begun -= rest
    if not begun:
        raise RuntimeError("no job was left when it was looked at first: are they counted where they are?")
    per_look = len(system.counts)
    return {
        "drain": begun / (after.at - before.at),
        "take_trips": (after.reads - before.reads - looks) / begun,
        "take_commands": (after.commands - before.commands - looks * per_look) / begun,
        "worker_cpu_us": (after.cpu_s - before.cpu_s) / begun * 1e6,
    }


def drain_backlog(stand: Stand, worker: psutil.Process, jobs: int, backlog: int) -> Figures:
    """Let a worker of ours take jobs while many more wait behind them, and others are delayed. It is held off while they come."""
    control = Ledger(stand.client)
    control.run(MOVES.pause(QUEUE, paused=True))
    stand.produce(KIT, "backlog", backlog)
    control.run(MOVES.pause(QUEUE, paused=False))
    return {"drain_backlog": drain(stand, KIT, worker, backlog, backlog - jobs)["drain"]}


def sending(stand: Stand, system: System, extent: Extent) -> Figures:
    """Send many at once, and as bare round trips; stock Celery has no other way than one by one."""
    if system is not KIT:
        return {}
    figures = {}
    for what, jobs in (("batch", extent.batches * 1000), ("bare", extent.jobs)):
        stand.client.flushall()
        figures[what] = stand.produce(system, what, jobs)["per_s"]
    return figures


def idle_latency(stand: Stand, system: System, jobs: int) -> Figures:
    """How long a job takes from the sender's call to its start in a worker that has nothing else to do, in ms."""
    waits_ms = [wait_s * 1000 for wait_s in stand.produce(system, "trickle", jobs)]
    hundredths = quantiles(waits_ms, n=100, method="inclusive")
    return {"idle_p50": hundredths[49], "idle_p99": hundredths[98]}


def on_prefork(stand: Stand, system: System, extent: Extent) -> Figures:
    """Send, drain with processes, then one job at a time, and at last from a long queue."""
    sent = fill(stand, system, extent.jobs)
    with stand.worker(system, PREFORK) as worker:
        taken = drain(stand, system, worker, extent.jobs)
        idle = idle_latency(stand, system, extent.idle_jobs)
        long = drain_backlog(stand, worker, extent.jobs, extent.backlog) if system is KIT else {}
    return {
        **sent,
        **idle,
        **long,
        "drain_prefork": taken["drain"],
        "cpu_prefork_us": taken["worker_cpu_us"],
        "round_trips": sent["add_trips"] + taken["take_trips"],
        "commands": sent["add_commands"] + taken["take_commands"],
    }


def on_threads(stand: Stand, system: System, extent: Extent) -> Figures:
    """Drain with threads."""
    fill(stand, system, extent.jobs)
    with stand.worker(system, THREADS) as worker:
        taken = drain(stand, system, worker, extent.jobs)
    return {"drain_threads": taken["drain"], "cpu_threads_us": taken["worker_cpu_us"]}


#: What a round consists of; each part is measured for one system, then for the other.
PARTS = (on_prefork, on_threads, sending)
