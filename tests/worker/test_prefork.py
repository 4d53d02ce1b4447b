"""What stands between the prefork pool and the event loop: each scenario of `tests/apps/prefork_pool.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.apps.prefork_pool import SCENARIOS
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.waiting import wait_for_exit


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_prefork_pool_is_spared_and_served(scenario: str, tmp_path: Path) -> None:
    words, log = [sys.executable, "-m", "tests.apps.prefork_pool", scenario], tmp_path / "log"
    process = spawn(words, log=log, cwd=ROOT, env=environment_with_project({}))
    try:
        assert wait_for_exit(process, within_s=60) == 0, log.read_text()
    finally:
        kill_session(process)
