"""Flower and beat, each a real process beside a worker of ours, see and send jobs."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.events import events
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import ROOT, environment_with_project, kill_session, spawn
from tests.support.waiting import wait_until
from tests.worker.attempts import MODULE, Hall, hall
from tests.worker.stack import QUEUE, show_logs


@pytest.fixture
def room(tmp_path: Path, engine: Path, request: pytest.FixtureRequest) -> Iterator[Hall]:
    """A hall with one worker that sends events."""
    with hall(tmp_path) as made:
        show_logs(request, made.worker(options=("--without-gossip", "--without-mingle", "--task-events")))
        yield made


@pytest.fixture
def start_celery(room: Hall, tmp_path: Path) -> Iterator[Any]:
    """Start a `celery` command of the hall's app in a process of its own."""
    processes = []

    def start(*words: str, **env: str) -> Path:
        log = tmp_path / f"{words[0]}.log"
        urls = {"CELERY_BROKER_URL": room.stack.broker_url, "CELERY_RESULT_BACKEND": room.stack.backend_url}
        command = [sys.executable, "-m", "celery", "-A", MODULE, *words]
        processes.append(spawn(command, log=log, cwd=ROOT, env=environment_with_project({**urls, **env})))
        return log

    yield start
    for process in processes:
        kill_session(process)


def test_flower_shows_workers_and_jobs_and_sends_some(room: Hall, start_celery: Any) -> None:
    """Issue 2: a real Flower; its HTTP interface lists worker and tasks, and starts one."""
    node, port = room.stack.workers[0].hostname, free_port()
    log = start_celery("flower", f"--address={LOOPBACK}", f"--port={port}", FLOWER_UNAUTHENTICATED_API="true")

    def ask(path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/api/{path}", data, timeout=10) as answer:
            return json.load(answer)

    away = (urllib.error.URLError, ConnectionError, TimeoutError)
    try:
        wait_until(lambda: node in ask("workers?refresh=1"), says="Flower knows the worker", within_s=30, ignoring=away)
        job = room.enqueue("brief", {"value": "seen"})
        room.ended(job)
        info = wait_until(lambda: ask(f"task/info/{job}"), says="Flower knows the job", within_s=10, ignoring=away)
        assert (info["name"], info["worker"]) == ("attempts.brief", node)
        wait_until(lambda: ask(f"task/info/{job}")["state"] == "SUCCESS", says="Flower sees its success")
        assert job in ask("tasks")
        sent = ask("task/async-apply/attempts.plain", args=["from Flower"])["task-id"]
        assert room.app.AsyncResult(sent).get(timeout=10) == "from Flower"
        room.ended(sent)
    except AssertionError:
        print(log.read_text())
        raise


def test_beat_sends_on_schedule(room: Hall, start_celery: Any, tmp_path: Path) -> None:
    """Issue 2: a real `celery beat`, each second; every tick is one job and completes."""
    start_celery("beat", "--schedule", str(tmp_path / "schedule"), "--pidfile", "", ATTEMPTS_BEAT="1")
    wait_until(lambda: len(_ticks(room)) >= 3, says="three ticks have been sent", within_s=20)
    first, *_, last = ticks = _ticks(room)[:3]
    assert 1800 < last.at_ms - first.at_ms < 3000
    for tick in ticks:
        room.ended(tick.job_id)
        assert room.trace(tick.job_id) == ["added", "waiting", "active", "completed"]


def _ticks(room: Hall) -> list[Any]:
    return [e for e in events(room.stack.jobs, QUEUE) if e.kind == "added" and e.fields.get("name") == "attempts.tick"]
