"""Other task queues beside stock Celery and queue_kit, by turns.

A rate that is compared with one rival says little of the field.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distributions, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import chart
from benchmarks.environments import HERE, NotInstalled, environment, node_modules
from benchmarks.measures import PREFORK, Figures, drain
from benchmarks.roster import PEERS, Peer
from benchmarks.stand import Stand, worker_words
from benchmarks.systems import KIT, STOCK, System
from deploy.demo.process import ROOT

PICTURE = ROOT / "docs" / "images" / "bench.svg"
JOBS = 4_000
DRAINS_WITHIN_S = 8  # who is not done by then has shown its rate


@dataclass(frozen=True)
class Entrant:
    """One that takes part: how it sends so many jobs, and its worker's command and environment."""

    system: System
    sender: Callable[[int], list[str]]
    worker: list[str]
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def loses(self) -> bool:
        return isinstance(self.system, Peer) and self.system.loses


def run(stand: Stand, *, quick: bool) -> tuple[str, dict[str, Any]]:
    """Measure all that install, and return the table and what belongs into results.json."""
    entrants, missing = enter(stand)
    print(commands(entrants), flush=True)
    rounds: dict[str, list[Figures]] = {entrant.system.name: [] for entrant in entrants}
    for number in range(1, (1 if quick else 3) + 1):
        for entrant in entrants:
            name = entrant.system.name
            if name not in missing:
                try:
                    rounds[name].append(measure(stand, entrant, 1_000 if quick else JOBS))
                except (RuntimeError, TimeoutError) as error:
                    missing[name] = f"failed: {str(error).strip().splitlines()[-1]}"
        print(f"round {number} of other task queues is done at {time.strftime('%H:%M:%S')}", flush=True)
    rows = summarise({name: rounds[name] for name in rounds if name not in missing})
    if not quick:
        picture(rows)
    losers = {entrant.system.name for entrant in entrants if entrant.loses}
    versions = {entrant.system.name: entrant.version for entrant in entrants}
    return table(rows, versions, losers, missing), {"systems": rows, "versions": versions, "missing": missing}


def measure(stand: Stand, entrant: Entrant, jobs: int) -> Figures:
    """Send to an empty server, then start the worker and let it drain."""
    stand.client.flushall()
    sent = stand.answer(entrant.sender(jobs), **entrant.environment)["per_s"]
    with stand.running(entrant.worker, **entrant.environment) as worker:
        taken = drain(stand, entrant.system, worker, jobs, within_s=DRAINS_WITHIN_S)
    return {"enqueue": sent, "drain": taken["drain"], "worker_cpu_us": taken["worker_cpu_us"]}


def enter(stand: Stand) -> tuple[list[Entrant], dict[str, str]]:
    """Stock Celery and queue_kit first, then whoever installs; and why the others do not."""
    entrants, missing = [_celery(system, name) for system, name in ((STOCK, "celery"), (KIT, "queue_kit"))], {}
    for peer in PEERS:
        try:
            entrants.append(_on_node(peer) if peer.worker[0] == "node" else _in_python(peer, stand))
        except NotInstalled as reason:
            missing[peer.name] = f"not installed: {reason}"
    return entrants, missing


def _celery(system: System, package: str) -> Entrant:
    def sender(jobs: int) -> list[str]:
        return [sys.executable, "-m", "benchmarks.producer", system.app, "burst", str(jobs)]

    number = version("celery") if package == "celery" else ""
    return Entrant(system, sender, [sys.executable, "-m", *worker_words(system, PREFORK)], number)


def _in_python(peer: Peer, stand: Stand) -> Entrant:
    bin_ = environment(peer.app, peer.python)

    def sender(jobs: int) -> list[str]:
        return [str(bin_ / "python"), "-m", "benchmarks.peers.send", peer.app, str(jobs)]

    words = [str(bin_ / peer.worker[0]), *(word.format(url=stand.url) for word in peer.worker[1:])]
    return Entrant(peer, sender, words, _version(bin_, peer.app))


def _on_node(peer: Peer) -> Entrant:
    modules, script = node_modules(), peer.worker[1]
    version_ = (HERE / "package.json").read_text("utf-8").split('"bullmq": "')[1].split('"')[0]
    environment_ = {"NODE_PATH": str(modules)}
    return Entrant(peer, lambda jobs: ["node", script, "send", str(jobs)], list(peer.worker), version_, environment_)


def _version(bin_: Path, module: str) -> str:
    (folder,) = (bin_.parent / "lib").glob("python*/site-packages")
    name = module.replace("_", "-")
    return next((found.version for found in distributions(path=[str(folder)]) if found.name.replace("_", "-") == name), "")


def commands(entrants: list[Entrant]) -> str:
    """What is run for each, to be repeated by hand against any Redis that CELERY_BROKER_URL names."""
    words = [" ".join(words) for one in entrants for words in (one.sender(JOBS), one.worker)]
    short = [line.replace(f"{ROOT}/", "").replace(sys.executable, "python") for line in words]
    return "\n  ".join(["other task queues, by turns:", *short])


def summarise(rounds: Mapping[str, list[Figures]]) -> dict[str, dict[str, float]]:
    """For each system its medians, and the medians of its ratios to stock in the same round; the fastest drain first."""
    rows = {}
    for name, figures in rounds.items():
        row = {key: median(figure[key] for figure in figures) for key in figures[0]}
        for key in ("enqueue", "drain"):
            pairs = zip(figures, rounds[STOCK.name], strict=True)
            row[f"{key}_ratio"] = median(ours[key] / stock[key] for ours, stock in pairs)
        rows[name] = row
    return dict(sorted(rows.items(), key=lambda item: -item[1]["drain"]))


def table(
    rows: Mapping[str, Mapping[str, float]], versions: Mapping[str, str], losers: set[str], missing: Mapping[str, str]
) -> str:
    """The figures as a table that Markdown takes too, with whoever is not in it and why."""
    lines = [
        "| system | enqueue/s | ÷ stock | drain/s, 3 processes | ÷ stock | worker's CPU a job, µs |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        said = f"{name} {versions[name]}".strip() + (" (a crash loses jobs)" if name in losers else "")
        enqueue, drained = (f"{row[key]:,.0f} | {row[f'{key}_ratio']:.2f}" for key in ("enqueue", "drain"))
        lines.append(f"| {said} | {enqueue} | {drained} | {row['worker_cpu_us']:,.0f} |")
    lines += [f"| {name} | {reason} | | | | |" for name, reason in missing.items()]
    return "\n".join(lines)


def picture(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Draw both rates of each system."""
    panels = {
        "drain, jobs/s, one worker group of 3 processes": {name: row["drain"] for name, row in rows.items()},
        "enqueue one by one, jobs/s": {name: row["enqueue"] for name, row in rows.items()},
    }
    PICTURE.write_text(chart.bars(panels, marked={KIT.name, STOCK.name}), "utf-8")
