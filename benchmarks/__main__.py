"""Compares stock Celery and queue_kit, and other task queues, by turns: ``python -m benchmarks [--quick] [--only PART]``.

Without parts of their own, whoever works at one of them would wait for all.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks import growth, queues, report, rivals, switches
from benchmarks.measures import PARTS, PREFORK, THREADS, Extent, Figures
from benchmarks.stand import Stand, worker_words
from benchmarks.systems import KIT, STOCK

FULL = Extent(rounds=3, jobs=10_000, idle_jobs=500, batches=20, backlog=1_000_000)
QUICK = Extent(rounds=3, jobs=2_000, idle_jobs=150, batches=5, backlog=50_000)

#: What there is beside the comparison with stock Celery, which is all that `--quick` measures unless it is asked for more.
FURTHER = {"peers": rivals.run, "queues": queues.run, "guarantees": switches.run, "growth": growth.run}


def main() -> int:
    """Measure what was asked for, print it, write results.json; 0 if no ratio is under its floor."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer and shorter rounds; without --only, of stock alone")
    options.add_argument("--only", nargs="+", choices=["stock", *FURTHER], help="these parts and no other")
    given = options.parse_args()
    parts = given.only or (["stock"] if given.quick else ["stock", *FURTHER])
    began, fallen = time.monotonic(), []
    with Stand() as stand:
        if "stock" in parts:
            fallen = against_stock(stand, QUICK if given.quick else FULL)
        for name in (name for name in FURTHER if name in parts):
            text, results = FURTHER[name](stand, quick=given.quick)
            report.write_part(name, results)
            print(f"\n{name}, after {time.monotonic() - began:.0f} s:\n\n{text}", flush=True)
    print(f"\n{time.monotonic() - began:.0f} s; written to {report.RESULTS.name}")
    print(*fallen, sep="\n", file=sys.stderr)
    return 1 if fallen else 0


def against_stock(stand: Stand, extent: Extent) -> list[str]:
    """Stock Celery and queue_kit alone, in all that both can do; return what fell under its floor."""
    about = describe(stand, extent)
    print("\n".join(f"{name}: {value}" for name, value in about.items()))
    print(f"what is run, by turns:\n{commands(extent)}\n", flush=True)
    lines = measured(stand, extent)
    report.write(lines, about)
    print(f"\n{report.table(lines)}\n\n{report.verdicts(lines)}", flush=True)
    return report.under_floor(lines)


def measured(stand: Stand, extent: Extent) -> dict[str, report.Line]:
    """All rounds; as many again, while a ratio is under its floor: the machine may have been busy."""
    rounds = []
    for number in range(1, 2 * extent.rounds + 1):
        rounds.append(round_of_both(stand, extent, number))
        lines = report.summarise(rounds)
        if number >= extent.rounds and not report.under_floor(lines):
            break
    return lines


def round_of_both(stand: Stand, extent: Extent, number: int) -> tuple[Figures, Figures]:
    """Each part for stock, then for ours, so that what slows the machine down for a while slows both."""
    stock, ours = Figures(), Figures()
    for part in PARTS:
        for system, figures in ((STOCK, stock), (KIT, ours)):
            figures.update(part(stand, system, extent))
    says = ", ".join(
        f"{name} {ours[name]:,.0f} to {stock[name]:,.0f}" for name in ("enqueue", "drain_prefork", "drain_threads")
    )
    print(f"round {number}, queue_kit to stock: {says}", flush=True)
    return stock, ours


def describe(stand: Stand, extent: Extent) -> dict[str, str]:
    """What a reader needs to judge the figures."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("celery", "kombu", "redis", "hiredis"))
    server = stand.client.info("server")["redis_version"]
    return {
        "machine": f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()}",
        "software": f"Python {platform.python_version()}, {packages}, Redis server {server}",
        "extent": f"{extent.rounds} rounds of {extent.jobs:,} jobs of 100 bytes that do nothing, {extent.idle_jobs:,} idle ones",
        "enqueue_many": f"{extent.batches} calls with 1,000 jobs each, to stock Celery's sends one by one",
        "scale_1m": f"ours with {extent.backlog:,} waiting and {extent.backlog // 10:,} delayed, to ours with {extent.jobs:,}",
        "load": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors when it began",
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def commands(extent: Extent) -> str:
    """What is run for each system, to be repeated by hand against any Redis that CELERY_BROKER_URL names."""
    words: list[Sequence[object]] = []
    for system in (STOCK, KIT):
        words += [("benchmarks.producer", system.app, "burst", extent.jobs)]
        words += [worker_words(system, pool) for pool in (PREFORK, THREADS)]
        words += [("benchmarks.producer", system.app, "trickle", extent.idle_jobs)]
    for what, jobs in (("batch", extent.batches * 1000), ("bare", extent.jobs), ("backlog", extent.backlog)):
        words.append(("benchmarks.producer", KIT.app, what, jobs))
    return "\n".join(f"  python -m {' '.join(map(str, line))}" for line in words)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
