"""The deadline rush: a small one against real processes, what it prints and draws, and how it ends where it cannot run."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.core.management import CommandError, call_command

from examhall.chart import latency_chart
from examhall.deadline import Answer, Outcome, percentile
from examhall.models import Attempt, Exam
from examhall.scoring_service import ScoringServer
from tests.support.processes import environment_with_project

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.crash
@pytest.mark.timeout(180)
def test_a_rush_shows_both_ways_side_by_side(engine: object, tmp_path: Path) -> None:
    """S1 and S2, for a crowd: real HTTP, real workers."""
    chart = tmp_path / "rush.svg"
    words = ["--students", "12", "--scoring-latency-ms", "300", "--chart", str(chart)]
    done = subprocess.run(
        [sys.executable, "-m", "deploy.demo.rush", *words],
        env=environment_with_project({}), capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "queue_kit.W" not in done.stdout + done.stderr  # our own system check has nothing against it
    rows = {line[:12].strip(): line[12:].split() for line in done.stdout.splitlines()}
    assert rows["accepted"] == ["12", "of", "12"] * 2
    assert {"p50", "p95", "p99", "errors", "last score"} <= rows.keys()
    assert len(ET.fromstring(chart.read_text()).findall(f"{SVG}polyline")) == 2


@pytest.mark.django_db(transaction=True)
def test_papers_that_are_not_taken_make_it_fail(scoring: ScoringServer, unused_port: int) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="not every paper") as failed:
        call_command("deadline_rush", url=f"http://127.0.0.1:{unused_port}", students=3, within_s=1, stdout=out)
    assert failed.value.returncode == 1
    assert "3 x ConnectionRefusedError" in out.getvalue()
    assert scoring.rehearsal.tell() is None
    assert {exam.slug for exam in Exam.objects.all()} == {"deadline-rush-before", "deadline-rush-after"}
    assert Attempt.objects.count() == 6


@pytest.mark.django_db
def test_without_a_scoring_service_it_says_so_and_leaves_nothing(settings: Any, unused_port: int) -> None:
    settings.EXAMHALL_SCORING_URL = f"http://127.0.0.1:{unused_port}"
    with pytest.raises(CommandError, match="scoring service") as failed:
        call_command("deadline_rush", students=3)
    assert (failed.value.returncode, Attempt.objects.count()) == (2, 0)


@pytest.mark.parametrize(("option", "value"), [("--students", "0"), ("--concurrency", "-1"), ("--within-s", "soon")])
def test_an_option_that_makes_no_sense_is_named(option: str, value: str) -> None:
    with pytest.raises(CommandError, match=option):
        call_command("deadline_rush", option, value)


def test_a_chart_without_a_folder_is_refused_before_anything_is_fired(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--chart"):
        call_command("deadline_rush", chart=tmp_path / "no" / "rush.svg")


def test_percentiles_are_of_values_that_were_there() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert (percentile([7.0], 50), percentile([], 50)) == (7, 0)


def test_errors_are_counted_by_kind() -> None:
    outcome = Outcome([Answer("202", 5), Answer("503", 9), Answer("503", 9), Answer("TimeoutError", 60_000)])
    assert (outcome.accepted, outcome.errors()) == (1, "2 x 503, 1 x TimeoutError")


@pytest.mark.parametrize("values", [[], [0.0], [5.0, 5.0], [0.2, 61_000.0]])
def test_any_times_can_be_drawn_and_no_text_is_markup(values: list[float]) -> None:
    drawn = ET.fromstring(latency_chart('<script>"&', {"<b>": values}))
    assert drawn.get("aria-label") == '<script>"&'
    assert drawn.findall(f"{SVG}script") == []
    places = [float(part) for line in drawn.iter(f"{SVG}polyline") for part in line.get("points", "").replace(",", " ").split()]
    assert all(0 <= place <= 760 for place in places)
