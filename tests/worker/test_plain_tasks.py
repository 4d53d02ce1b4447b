"""Plain Celery tasks, made without a thought of the queue kit: what they keep, and what they gain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chord
from celery.exceptions import NotRegistered

from queue_kit.errors import JobLostError, JobStalledError
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.attempts import POOLS, Hall, hall
from tests.worker.stack import QUEUE, fresh_id, show_logs


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A hall with one worker of processes."""
    with hall(tmp_path_factory.mktemp("plain")) as made:
        made.worker(concurrency=2)
        yield made


@pytest.fixture(autouse=True)
def _logs(request: pytest.FixtureRequest, room: Hall) -> None:
    show_logs(request, *(worker for worker in room.stack.workers if worker.running))


def test_a_plain_task_that_fails_is_not_retried(room: Hall) -> None:
    """K18: one start, failed, a dead letter; nothing about exhausted attempts."""
    result = room.send("plain_fails")
    room.ended(result.id, "failed")
    assert len(room.starts(result.id)) == 1
    assert room.trace(result.id) == ["added", "waiting", "active", "failed", "dead-lettered"]
    assert room.stack.dead_letters(result.id)[0]["error_class"] == "ValueError"
    with pytest.raises(ValueError, match="plain"):
        result.get(timeout=5)


def test_a_plain_task_may_carry_a_megabyte(room: Hall) -> None:
    """K18: the bound on payloads is for declared jobs."""
    text = "ü" * 500_000
    assert room.send("plain", text).get(timeout=15) == text


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_a_plain_task_whose_worker_is_lost_runs_once_more(room: Hall, pool: str) -> None:
    """K18: given a plain task that runs. Killed: its worker. Then it runs once more."""
    result, gate, worker = _running_elsewhere(room, pool, "plain_gated")
    worker.kill_all()
    room.worker(pool, queues=[result.id])
    room.await_gate(gate, 2)
    room.open_gate(gate, 2)
    assert result.get(timeout=15) == "value"
    room.ended_in(result.id, result.id)
    assert len(room.starts(result.id)) == 2
    assert room.stack.counters(result.id) == (1, 2, 1)


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_a_task_that_may_run_once_at_most_is_lost_with_its_worker(room: Hall, pool: str) -> None:
    """K16: given a task with `acks_late=False` that runs. Killed: its worker. Then it is not run again: failed with the
    cause `lost`, a dead letter, and its callers hear of it."""
    result, _, worker = _running_elsewhere(room, pool, "at_most_once")
    worker.kill_all()
    room.ended_in(result.id, result.id, "failed")
    assert len(room.starts(result.id)) == 1
    (letter,) = room.stack.dead_letters(result.id, result.id)
    assert letter["cause"] == "lost"
    assert room.stack.counters(result.id) == (1, 1, 1)
    with pytest.raises(JobLostError):
        result.get(timeout=10)


@pytest.mark.crash
def test_a_task_that_may_run_once_at_most_is_lost_with_its_child(room: Hall) -> None:
    """K16: given such a task. Killed: the child that runs it, while the worker lives."""
    gate = fresh_id("gate")
    result = room.send("at_most_once", gate)
    room.await_gate(gate)
    room.stack.workers[0].kill_child(room.starts(result.id)[0]["pid"])
    room.ended(result.id, "failed")
    assert len(room.starts(result.id)) == 1
    assert room.stack.dead_letters(result.id)[0]["cause"] == "lost"
    with pytest.raises(JobLostError):
        result.get(timeout=10)


def test_a_task_that_may_run_once_at_most_runs(room: Hall) -> None:
    """K16: where nothing is lost, it is a task like others."""
    gate = fresh_id("gate")
    result = room.send("at_most_once", gate)
    room.open_gate(gate)
    assert result.get(timeout=10) == "done"
    room.ended(result.id)
    assert room.trace(result.id) == ["added", "waiting", "active", "completed"]


@pytest.mark.crash
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"serializer": "pickle"}], ids=str)
def test_whoever_waits_for_a_job_that_stalls_out_is_told(room: Hall, options: dict[str, Any]) -> None:
    """K15: given a job that takes its process along at each start. Then `.get()` raises, and its errback is called."""
    result = room.send("kills", "value", link_error=[_errback(room)], **options)
    with pytest.raises(JobStalledError):
        result.get(timeout=15)
    room.ended(result.id, "failed")
    _await_told(room, result.id, "JobStalledError")
    assert len(room.starts(result.id)) == 2


def test_whoever_waits_for_an_unknown_task_is_told(room: Hall) -> None:
    """K15: `.get()` raises, the errback is called; the worker goes on."""
    result = room.app.send_task("attempts.nowhere", link_error=[_errback(room)], task_id=fresh_id("nowhere"))
    with pytest.raises(Exception, match=r"attempts\.nowhere"):
        result.get(timeout=15)
    _await_told(room, result.id, "NotRegistered")
    assert room.send("plain", 1).get(timeout=10) == 1


@pytest.mark.crash
@pytest.mark.parametrize("member", ["kills", "nowhere"])
def test_a_chord_fails_with_a_member_that_cannot_end(room: Hall, member: str) -> None:
    """K15: given a chord one of whose members stalls out, or is of an unknown task. Then the chord fails, and its errback is
    called, instead of waiting for ever; its body never runs."""
    lost = room.app.signature(f"attempts.{member}", args=(1,))
    body = room.app.tasks["attempts.plain"].s().set(task_id=fresh_id("body"), link_error=[_errback(room)])
    result = chord([room.app.tasks["attempts.plain"].s(2), lost], body).apply_async()
    wait_until(lambda: room.app.AsyncResult(body.options["task_id"]).state == "FAILURE", says="the body has failed")
    with pytest.raises((JobStalledError, NotRegistered)):
        result.get(timeout=10)
    _await_told(room, body.options["task_id"], "ChordError")
    room.settled()
    assert not room.stack.record(body.options["task_id"])


def _errback(room: Hall) -> Any:
    return room.app.tasks["attempts.notes_failure"].s()


def _await_told(room: Hall, job: str, error: str) -> None:
    wait_until(lambda: room.stack.notes.lrange(f"told:{job}", 0, -1) == [error], says=f"its errback hears of {error}")


def _running_elsewhere(room: Hall, pool: str, name: str) -> tuple[Any, str, WorkerProcess]:
    """A task that runs in a worker of its own, which may be killed; the queue is named like the job."""
    job, gate = fresh_id(f"{name}-{pool}"), fresh_id("gate")
    worker = room.worker(pool, queues=[job])
    args = (gate,) if name == "at_most_once" else (gate, "value")
    result = room.send(name, *args, task_id=job, queue=job)
    room.await_gate(gate)
    assert job != QUEUE
    return result, gate, worker
