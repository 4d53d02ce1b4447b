"""The on-sale as a command, small, on both databases; and that its verdict sees what it is there to see."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from deploy.demo.crowd import Book
from deploy.demo.on_sale import Map, Outcome, percentiles, report
from deploy.demo.transcript import Paint
from tests.support.processes import ROOT, environment_with_project


@pytest.mark.crash
@pytest.mark.timeout(240)
def test_a_crowd_buys_while_a_worker_is_killed_and_every_seat_has_one_owner(database_url: str) -> None:
    """Given 30 buyers and two workers, one killed after it drew and before it returned; then nothing is sold twice, nothing
    held for ever, and every sale is in the last drawing."""
    command = [sys.executable, "-m", "deploy.demo.on_sale", "--buyers", "30", "--hold-ms", "1500"]
    if database_url.startswith("postgres"):
        command += ["--database-url", database_url]
    done = subprocess.run(
        command, cwd=ROOT, env=environment_with_project({}), capture_output=True, text=True, timeout=220, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("✓") == 8
    assert "p95" in done.stdout


@pytest.fixture
def good() -> Outcome:
    book = Book(holds={"h1": "A1", "h2": "A2", "h3": "A1"}, sold={"h1"})
    book.took_ms["hold"] = [5.0, 6.0, 7.0]
    statuses = {"h1": "sold", "h2": "released", "h3": "released"}
    before, after = Map(3, {"A1": "free", "A2": "free"}), Map(9, {"A1": "sold", "A2": "free"})
    return Outcome(book, statuses, before, after, draws=4, most_waiting=1, stalls=1, dead=0, took_s=2.0)


def test_all_is_well_where_it_is(good: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(good, Paint(on=False))
    assert "1 seats sold in 2.0 s (0.5 a second)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        {"statuses": {"h1": "sold", "h2": "released", "h3": "sold"}},
        {"statuses": {"h1": "released", "h2": "released", "h3": "released"}},
        {"statuses": {"h1": "sold", "h2": "held", "h3": "released"}},
        {"after": Map(10, {"A1": "sold", "A2": "free"})},
        {"after": Map(9, {"A1": "sold", "A2": "sold"})},
        {"after": Map(9, {"A1": "free", "A2": "free"})},
        {"most_waiting": 2},
        {"stalls": 0},
        {"dead": 1},
    ],
)
def test_what_is_wrong_is_found(good: Outcome, wrong: dict[str, Any]) -> None:
    assert not all(holds for _, holds in replace(good, **wrong).verdict())


def test_an_answer_that_was_none_to_be_expected_is_found(good: Outcome) -> None:
    good.book.faults.append("hold: 500")
    assert not report(good, Paint(on=False))


def test_percentiles_are_those_of_the_answers() -> None:
    assert percentiles([float(n) for n in range(1, 102)]) == "p50 51   p95 96   p99 100   max 101 ms"
    assert percentiles([1.0]) == "too few to tell"
