"""`dlq_replay` killed in the middle: what was replayed was replayed once, and the same command does the rest."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.django.test_commands import manage
from tests.store.desk import Desk
from tests.store.test_replay import failed
from tests.support.events import events
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

LETTERS = 300


@pytest.mark.parametrize("rate", ["150", "100000"])
def test_a_replay_killed_in_the_middle_resumes_and_doubles_nothing(
    redis_server: RedisServer, queue_name: str, tmp_path: Path, rate: str
) -> None:
    """B13: killed: the command, with replays behind it and before it. Then the same command replays the others, each job waits
    once, and was replayed once."""
    desk = Desk(redis_server.client(), queue_name, dead_letters=LETTERS)
    for number in range(LETTERS):
        failed(desk, f"job-{number:03}")
    command = ["dlq_replay", "--queue", queue_name, "--yes"]
    env = environment_with_project({"REDIS_URL": redis_server.url(), "DJANGO_SETTINGS_MODULE": "deploy.settings"})
    words = [sys.executable, str(ROOT / "manage.py"), *command, "--rate", rate]
    victim = spawn(words, log=tmp_path / "log", cwd=ROOT, env=env)
    wait_until(lambda: desk.client.zcard(desk.key("wait")), says="some have been replayed", within_s=30, every_s=0.0001)
    kill_session(victim)
    replayed = desk.client.zcard(desk.key("wait"))
    if rate == "150":
        assert 0 < replayed < LETTERS
    again = manage(*command, url=redis_server.url())
    assert again.returncode == (0 if replayed < LETTERS else 3), again.stdout + again.stderr
    assert len(desk.listed("wait")) == LETTERS
    waited = Counter(event.job_id for event in events(desk.client, queue_name) if event.kind == "waiting")
    assert set(waited.values()) == {2}  # as it was added, and as it was replayed
