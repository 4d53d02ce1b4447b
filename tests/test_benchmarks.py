"""What the benchmark writes and when it fails; the figures themselves are for machines that are idle."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import chart, report, rivals, switches
from benchmarks.environments import HERE
from benchmarks.report import FLOORS, GOALS, ROWS, Line, summarise, under_floor
from benchmarks.roster import PEERS
from benchmarks.stand import Stand
from benchmarks.systems import CUT

NAMES = {
    "enqueue", "enqueue_many", "drain_prefork", "drain_threads", "idle_p99", "round_trips", "bytes_waiting", "scale_1m",
}  # fmt: skip

#: Prints how many scripts Redis has taken.
LOADED = """
import os
from redis import Redis
from benchmarks.apps import without
from queue_kit.store.script import all_scripts
client = Redis.from_url(os.environ["CELERY_BROKER_URL"])
print(len([client.script_load(known.source) for known in all_scripts()]))
"""


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


def test_what_another_part_has_found_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.json")
    report.write(good(), {"at": "now"})
    report.write_part("queues", {"p99_ms": {"ratio": 1.0}})
    report.write(good(), {"at": "later"})
    written = json.loads(report.RESULTS.read_text("utf-8"))
    assert written["queues"]["p99_ms"] == {"ratio": 1.0}
    assert written["about"] == {"at": "later"}


def test_a_peer_is_compared_with_stock_celery_of_its_own_round() -> None:
    stock = [{"enqueue": 10.0, "drain": rate} for rate in (100.0, 50.0, 100.0)]
    peer = [{"enqueue": 20.0, "drain": rate} for rate in (300.0, 150.0, 200.0)]
    rows = rivals.summarise({"stock": stock, "peer": peer})
    assert list(rows) == ["peer", "stock"], "the fastest first"
    assert (rows["peer"]["enqueue_ratio"], rows["peer"]["drain_ratio"]) == (2.0, 3.0)


def test_the_cost_of_a_guarantee_is_that_of_the_best_rounds() -> None:
    on = [dict.fromkeys(switches.COLUMNS, value) for value in (90.0, 50.0)]
    off = [dict.fromkeys(switches.COLUMNS, value) for value in (40.0, 100.0)]
    percent = switches.costs(on, off)
    assert percent["drain"] == pytest.approx(10.0), "90 jobs a second with it, 100 without"
    assert percent["redis_us"] == pytest.approx(20.0), "50 µs with it, 40 without"


def test_each_peer_has_a_file_and_the_versions_it_needs() -> None:
    for peer in PEERS:
        assert list(HERE.glob(f"{peer.app}.*")), peer.name
    pinned = [line for path in HERE.glob("requirements-*.txt") for line in path.read_text("utf-8").split()]
    assert all(line.count("==") == 1 for line in pinned)


def test_the_chart_has_a_bar_for_each_name() -> None:
    drawn = ET.fromstring(chart.bars({"drain": {"ours": 20, "a & b": 10}, "enqueue": {"ours": 5}}, {"ours"}))
    bars = [element for element in drawn.iter("{http://www.w3.org/2000/svg}rect") if element.get("fill") != "white"]
    assert [bar.get("fill") for bar in bars] == [chart.MARKED, chart.PLAIN, chart.MARKED]


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with Stand() as started:
        yield started


@pytest.mark.parametrize("without", ["", *switches.GUARANTEES])
def test_a_guarantee_is_cut_out_of_the_scripts_and_what_is_left_runs(stand: Stand, without: str) -> None:
    stand.client.flushall()
    stand.client.script_flush()
    stand.produce(CUT, "keyed", 3, BENCH_WITHOUT=without)
    stand.produce(CUT, "keyed", 3, BENCH_WITHOUT=without)
    assert CUT.left(stand.client) == (6 if without == "dedup" else 3)
    assert bool(stand.client.exists(CUT.events)) == (without != "events")
    assert stand.answer([sys.executable, "-c", LOADED], BENCH_WITHOUT=without) > 20, "Redis takes every script"
