"""Jobs need no result backend, and work with one that cannot count a chord: what it takes then is a job that retries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord

from queue_kit import enqueue
from tests.apps import shapes_app
from tests.support.events import events
from tests.support.waiting import wait_until
from tests.worker.attempts import Hall
from tests.worker.stack import QUEUE, Stack, current, fresh_id, show_logs, stack

MODULE = "tests.apps.shapes_app"


def opened(made: Stack, backend: str, monkeypatch: pytest.MonkeyPatch, **conf: Any) -> Iterator[Hall]:
    """The app of unusual shapes with another result backend, on both sides."""
    monkeypatch.setenv("SHAPES_BACKEND", backend)
    made.env = {"C_FORCE_ROOT": "1", "SHAPES_BACKEND": backend}
    app = shapes_app.make(made.broker_url, made.backend_url, **conf)
    with current(app):
        made.start_worker()
        yield Hall(made, app)


@pytest.fixture
def without(
    tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Hall]:
    """A hall without a result backend."""
    with stack(tmp_path, MODULE) as made:
        for room in opened(made, "disabled", monkeypatch):
            show_logs(request, *made.workers)
            yield room


@pytest.fixture
def on_files(
    tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Hall]:
    """A hall whose results lie in files."""
    results = tmp_path / "results"
    results.mkdir()
    with stack(tmp_path, MODULE) as made:
        for room in opened(made, f"file://{results}", monkeypatch):
            show_logs(request, *made.workers)
            yield room


def send(room: Hall, name: str, *args: Any, **options: Any) -> str:
    options = {"task_id": fresh_id(name), **options}
    return str(room.app.tasks[f"shapes.{name}"].apply_async(args, **options).id)


@pytest.mark.crash
def test_no_result_backend_is_needed(without: Hall) -> None:
    """SPEC 3: every end of a job, also those that the main process and the teller see to."""
    ends = {
        send(without, "greets", "you", 1): "completed",
        send(without, "greets_in_vain", "you"): "failed",
        send(without, "has_no_memory"): "failed",
        send(without, "hardly_limited"): "failed",
        send(without, "loses_its_process"): "failed",
        send(without, "at_most_once_retries"): "completed",
        send(without, "greets", "you", expires=-1): "cancelled",
        enqueue("shapes.declared_on_a_base", {"name": "you", "fails": 1}, job_id=fresh_id("declared")).id: "completed",
    }
    unknown = str(without.app.send_task("shapes.nowhere", task_id=fresh_id("nowhere")).id)
    for job, state in {**ends, unknown: "failed"}.items():
        without.ended(job, state)
    wait_until(lambda: not without.stack.jobs.zcard("qwk:notes"), says="nobody is left to be told")
    first, second = fresh_id("first"), fresh_id("second")
    step = without.app.tasks["shapes.keeps_no_result"]
    chain(step.si(1).set(task_id=first), step.si(2).set(task_id=second)).apply_async()
    without.ended(second)


def test_a_chord_that_has_to_be_waited_for_is_unlocked_by_one_job(on_files: Hall) -> None:
    """A13: Celery's `chord_unlock` retries until the header has ended, without a limit: one job that moves, not one after
    the other."""
    member, pair = on_files.app.tasks["shapes.keeps_no_result"], on_files.app.tasks["shapes.takes_two"]
    slow = pair.si(1, 2).set(countdown=1.5)
    result = chord([slow, pair.si(3, 4)], pair.s("body")).apply_async()
    wait_until(result.ready, says="the body has a result", within_s=15)
    assert result.get(timeout=5) == [[[1, 2], [3, 4]], "body"]
    on_files.settled()
    unlocks = {e.job_id for e in events(on_files.stack.jobs, QUEUE) if e.fields.get("name") == "celery.chord_unlock"}
    assert len(unlocks) == 1
    (unlock,) = unlocks
    assert on_files.copies(unlock) == ["completed"]
    made, started, stalled = on_files.stack.counters(unlock)
    assert made == started >= 4
    assert stalled == 0
    assert member.ignore_result


def test_a_job_in_the_callers_own_process_needs_no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 3: Celery's eager mode, in which tests of projects run; retries too."""
    app = shapes_app.make("redis://127.0.0.1:1/0", "cache+memory://", task_always_eager=True)
    monkeypatch.setattr(shapes_app, "note_start", lambda **_: None)
    with current(app):
        assert app.tasks["shapes.takes_two"].delay(1, 2).get() == [1, 2]
        assert app.tasks["shapes.takes_two"].apply((1, 2)).get() == [1, 2]
        assert enqueue("shapes.eager", {"name": "you"}).deduplicated is False
        assert chain(app.tasks["shapes.takes_two"].s(1, 2), app.tasks["shapes.takes_two"].s(3)).delay().get() == [
            [1, 2],
            3,
        ]
