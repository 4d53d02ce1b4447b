"""Turns the rounds into a table, a verdict on the goals, and results.json; the figures of one system alone are not shown."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measures import Figures

RESULTS = Path(__file__).with_name("results.json")

@dataclass(frozen=True)
class Row:
    """One measure: what it is, and the two figures that are compared, of stock Celery and of ours where nothing else is said."""

    says: str
    name: str
    base: str = ""
    of_stock: bool = True


ROWS = {
    "enqueue": Row("enqueue one by one, jobs/s", "enqueue"),
    "enqueue_many": Row("enqueue_many to stock one by one, jobs/s", "batch", "enqueue"),
    "enqueue_bare": Row("enqueue to its bare EVALSHA, jobs/s", "enqueue", "bare", of_stock=False),
    "drain_prefork": Row("drain, prefork 3, jobs/s", "drain_prefork"),
    "drain_threads": Row("drain, threads 4, jobs/s", "drain_threads"),
    "idle_p50": Row("idle, call to start, p50 ms", "idle_p50"),
    "idle_p99": Row("idle, call to start, p99 ms", "idle_p99"),
    "round_trips": Row("Redis round trips a job", "round_trips"),
    "commands": Row("Redis commands a job, those in scripts too", "commands"),
    "bytes_waiting": Row("bytes a waiting job, event stream apart", "bytes_waiting"),
    "bytes_events": Row("bytes of a waiting job's events", "bytes_events"),
    "scale_1m": Row("drain of a long queue to that of a short one", "drain_backlog", "drain_prefork", of_stock=False),
    "enqueue_cpu_us": Row("sender's CPU a job, µs", "enqueue_cpu_us"),
    "cpu_prefork_us": Row("worker's CPU a job, prefork, µs", "cpu_prefork_us"),
    "cpu_threads_us": Row("worker's CPU a job, threads, µs", "cpu_threads_us"),
}


@dataclass(frozen=True)
class Line:
    """One measure: both medians, and the median of the rounds' ratios, which drift of the machine moves less than either.

    ``stock`` is what ours is compared with, which for `enqueue_bare` and `scale_1m` is another figure of ours.
    """

    stock: float
    queue_kit: float
    ratio: float | None


@dataclass(frozen=True)
class Goal:
    """What a ratio should reach, or stay under."""

    name: str
    ratio: float
    most: bool = False

    @property
    def says(self) -> str:
        return f"{ROWS[self.name].says}: at {'most' if self.most else 'least'} {self.ratio:g} x"

    def met(self, line: Line) -> bool:
        return line.ratio is not None and (line.ratio <= self.ratio if self.most else line.ratio >= self.ratio)


GOALS = (
    Goal("enqueue", 2.5),
    Goal("enqueue_many", 12),
    Goal("drain_prefork", 2.5),
    Goal("drain_threads", 2.5),
    Goal("idle_p99", 0.8, most=True),
    Goal("bytes_waiting", 0.6, most=True),
    Goal("scale_1m", 0.95),
)
#: About two thirds of what was measured: under these something is wrong, and not only the machine busy.
FLOORS = (
    Goal("enqueue", 1.4),
    Goal("enqueue_many", 7),
    Goal("drain_prefork", 1.1),
    Goal("drain_threads", 1.5),
    Goal("round_trips", 0.7, most=True),
    Goal("bytes_waiting", 0.65, most=True),
    Goal("scale_1m", 0.5),
)


def summarise(rounds: Sequence[tuple[Figures, Figures]]) -> dict[str, Line]:
    """One line for each measure, from the rounds of stock and ours."""
    lines = {}
    for name, row in ROWS.items():
        base = [(stock if row.of_stock else ours)[row.base or row.name] for stock, ours in rounds]
        measured = [ours[row.name] for _, ours in rounds]
        ratio = median(b / a for a, b in zip(base, measured, strict=True)) if all(base) else None
        lines[name] = Line(median(base), median(measured), ratio)
    return lines


def table(lines: dict[str, Line]) -> str:
    """The figures as a table that Markdown takes too."""
    rows = [
        f"| {'measure':46} | {'stock':>9} | {'queue_kit':>9} | {'ratio':>6} |",
        f"|{'-' * 48}|{'-' * 10}:|{'-' * 10}:|{'-' * 7}:|",
    ]
    for name, row in ROWS.items():
        line, says = lines[name], row.says
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        rows.append(f"| {says:46} | {_short(line.stock):>9} | {_short(line.queue_kit):>9} | {ratio:>6} |")
    return "\n".join(rows)


def verdicts(lines: dict[str, Line]) -> str:
    """A line with a tick or a cross for each goal."""
    return "\n".join(f"{'✓' if goal.met(lines[goal.name]) else '✗'} {goal.says}" for goal in GOALS)


def under_floor(lines: dict[str, Line]) -> list[str]:
    """What is so far from what it was that a change must have done it."""
    return [f"FALLEN: {floor.says}, not {lines[floor.name].ratio}" for floor in FLOORS if not floor.met(lines[floor.name])]


def write(lines: dict[str, Line], about: dict[str, str]) -> None:
    """Write each measure by its name, and what it was measured on under `about`."""
    _merge({**{name: asdict(line) for name, line in lines.items()}, "about": about})


def write_part(name: str, results: dict[str, Any]) -> None:
    """Write another part's results under its name, with the time; what is there of the others stays."""
    _merge({name: {**results, "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}})


def _merge(results: dict[str, Any]) -> None:
    before = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**before, **results}, indent=2) + "\n", "utf-8")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
