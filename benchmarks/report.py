"""Turns the rounds into a table, a verdict on the goals, and results.json; the figures of one system alone are not shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.measures import Figures

RESULTS = Path(__file__).with_name("results.json")

#: What is shown of each figure, in this order: its name in results.json, and what it is.
SHOWN = {
    "enqueue": "enqueue one by one, jobs/s",
    "drain_prefork": "drain, prefork 3, jobs/s",
    "drain_threads": "drain, threads 4, jobs/s",
    "idle_p50": "idle, call to start, p50 ms",
    "idle_p99": "idle, call to start, p99 ms",
    "round_trips": "Redis round trips a job",
    "commands": "Redis commands a job, those in scripts too",
    "bytes_waiting": "bytes a waiting job, event stream apart",
    "bytes_events": "bytes of a waiting job's events",
    "enqueue_cpu_us": "sender's CPU a job, µs",
    "cpu_prefork_us": "worker's CPU a job, prefork, µs",
    "cpu_threads_us": "worker's CPU a job, threads, µs",
}


@dataclass(frozen=True)
class Line:
    """One figure: both medians, and the median of the rounds' ratios, which drift of the machine moves less than either."""

    stock: float
    queue_kit: float
    ratio: float | None


@dataclass(frozen=True)
class Goal:
    """What a line has to reach."""

    name: str
    says: str
    met: Callable[[Line], bool]


GOALS = (
    Goal("enqueue", "enqueue at least 1.0 x stock", lambda line: (line.ratio or 0) >= 1.0),
    Goal("drain_prefork", "drain on prefork at least 1.3 x stock", lambda line: (line.ratio or 0) >= 1.3),
    Goal("drain_threads", "drain on threads at least 1.3 x stock", lambda line: (line.ratio or 0) >= 1.3),
    Goal("round_trips", "at most 3 round trips a job", lambda line: line.queue_kit <= 3),
)


def summarise(rounds: Sequence[tuple[Figures, Figures]]) -> dict[str, Line]:
    """One line for each figure, from the rounds of stock and ours."""
    lines = {}
    for name in SHOWN:
        stock, ours = [a[name] for a, _ in rounds], [b[name] for _, b in rounds]
        ratio = median(b / a for a, b in zip(stock, ours, strict=True)) if all(stock) else None
        lines[name] = Line(median(stock), median(ours), ratio)
    return lines


def table(lines: dict[str, Line]) -> str:
    """The figures as a table that Markdown takes too."""
    rows = [
        f"| {'measure':44} | {'stock':>9} | {'queue_kit':>9} | {'ratio':>6} |",
        f"|{'-' * 46}|{'-' * 10}:|{'-' * 10}:|{'-' * 7}:|",
    ]
    for name, says in SHOWN.items():
        line = lines[name]
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        rows.append(f"| {says:44} | {_short(line.stock):>9} | {_short(line.queue_kit):>9} | {ratio:>6} |")
    return "\n".join(rows)


def verdicts(lines: dict[str, Line]) -> tuple[str, bool]:
    """A line with a tick or a cross for each goal, and whether all are met."""
    met = [goal.met(lines[goal.name]) for goal in GOALS]
    marks = [f"{'✓' if good else '✗'} {goal.says}" for goal, good in zip(GOALS, met, strict=True)]
    return "\n".join(marks), all(met)


def write(lines: dict[str, Line], about: dict[str, str]) -> None:
    """Write results.json: each measure by its name, and what it was measured on under `about`."""
    measures = {name: asdict(line) for name, line in lines.items()}
    RESULTS.write_text(json.dumps({**measures, "about": about}, indent=2) + "\n")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
