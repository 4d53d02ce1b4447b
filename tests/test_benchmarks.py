"""What the benchmark writes and when it fails; the figures themselves are for machines that are idle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.report import FLOORS, GOALS, ROWS, Line, summarise, under_floor

NAMES = {
    "enqueue", "enqueue_many", "drain_prefork", "drain_threads", "idle_p99", "round_trips", "bytes_waiting", "scale_1m",
}  # fmt: skip


def figures(value: float) -> dict[str, float]:
    return {name: value for row in ROWS.values() for name in (row.name, row.base or row.name)}


def good() -> dict[str, Line]:
    return {name: Line(1.0, 1.0, next((goal.ratio for goal in GOALS if goal.name == name), 0.5)) for name in ROWS}


def test_each_measure_has_its_ratio_and_both_medians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    report.write(summarise([(figures(1.0), figures(2.0))]), {"at": "now"})
    written = json.loads(report.RESULTS.read_text("utf-8"))
    assert written.keys() >= NAMES
    for name in NAMES:
        assert written[name].keys() == {"stock", "queue_kit", "ratio"}
        assert written[name]["ratio"] > 0


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    rounds = [(figures(1.0), figures(ours)) for ours in (2.0, 8.0, 3.0)]
    lines = summarise(rounds)
    assert lines["enqueue"] == Line(1.0, 3.0, 3.0)
    assert lines["scale_1m"].ratio == 1.0, "ours is compared with ours"


def test_a_ratio_under_its_floor_is_named() -> None:
    lines = good()
    assert under_floor(lines) == []
    for floor in FLOORS:
        beyond = floor.ratio * (1.1 if floor.most else 0.9)
        (said,) = under_floor({**lines, floor.name: replace(lines[floor.name], ratio=beyond)})
        assert floor.says in said
