"""The demo's own parts: what it prints, and that what it starts it also stops, by pid."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deploy.demo.process import Process
from deploy.demo.stack import Stack
from deploy.demo.transcript import Line, Paint, show
from tests.support.processes import is_alive
from tests.support.waiting import wait_until

PLAIN = Paint(on=False)
PARENT = "import subprocess, sys, time; c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "


def test_a_line_that_agrees_has_a_tick_and_one_that_does_not_a_cross(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show([Line("final", "completed", "completed"), Line("starts", "2", "1")], PLAIN)
    assert [line.holds for line in lines] == [True, False]
    assert capsys.readouterr().out.splitlines() == [
        "  ✓ final",
        "      seed  completed",
        "      here  completed",
        "  ✗ starts",
        "      seed  2",
        "      here  1",
    ]


def test_colours_are_for_terminals() -> None:
    assert PLAIN.green("x") == "x"
    assert Paint(on=True).green("x") == "\033[32mx\033[0m"


def parent(tmp_path: Path, then: str) -> tuple[Process, int]:
    """Start a process with a child; returns it with the child's pid."""
    process = Process("parent", [sys.executable, "-uc", f"{PARENT}print(f'child {{c.pid}}'); {then}"], {}, tmp_path).start()
    wait_until(lambda: process.says("child"), says="the child runs")
    return process, int(process.tail().split()[1])


@pytest.mark.crash
def test_a_kill_takes_the_children_along(tmp_path: Path) -> None:
    process, child = parent(tmp_path, "time.sleep(60)")
    process.kill()
    assert not process.alive
    wait_until(lambda: not is_alive(child), says="the child is gone")


@pytest.mark.crash
def test_a_stop_leaves_nothing_behind_although_the_process_ignores_it(tmp_path: Path) -> None:
    process, child = parent(tmp_path, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    process.stop(within_s=0.3)
    assert not process.alive
    wait_until(lambda: not is_alive(child), says="the child is gone")


def test_a_process_that_ends_too_early_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    process = Process("short", [sys.executable, "-c", "print('no database')"], {}, tmp_path).start()
    process.finish()
    with pytest.raises(RuntimeError, match="short ended too early:\nno database"):
        process.says("ready")


def test_a_command_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    process = Process("prepare", [sys.executable, "-c", "raise SystemExit('no table')"], {}, tmp_path).start()
    with pytest.raises(RuntimeError, match="prepare failed:\nno table"):
        process.finish()


def test_the_demo_offers_no_report_of_an_earlier_site() -> None:
    stack = Stack("redis://127.0.0.1:1/0")
    reports = Path(stack.environment(1)["EXAMHALL_REPORTS_DIR"])
    stack.folder.rmdir()
    stack.edge.server_close()
    assert reports.parent == stack.folder
