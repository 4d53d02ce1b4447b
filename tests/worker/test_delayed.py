"""Delayed jobs wait in Redis, whatever delays them, and run when they are due; and what a plain job's life looks like."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery.exceptions import TaskRevokedError

from queue_kit import enqueue_many, open_census
from queue_kit.states import State
from queue_kit.store import Moves
from tests.apps import attempts_app
from tests.support.events import count, events
from tests.support.waiting import wait_until
from tests.worker.attempts import POOLS, Hall, hall
from tests.worker.stack import QUEUE, fresh_id, show_logs

AT_ONCE = ["added", "waiting", "active", "completed"]
LATER = ["added", "delayed", "waiting", "active", "completed"]


@pytest.fixture(scope="module", params=POOLS)
def room(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A hall with one worker, one for each pool."""
    with hall(tmp_path_factory.mktemp(request.param)) as made:
        made.worker(request.param, concurrency=1)
        yield made


@pytest.fixture(autouse=True)
def _logs(room: Hall, request: pytest.FixtureRequest) -> None:
    show_logs(request, *room.stack.workers)


def started_after_ms(room: Hall, job: str) -> int:
    """Milliseconds from the adding of a job to its start."""
    return room.at_ms(job, "active") - room.at_ms(job, "added")


def in_a_second() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=1)


def test_a_delayed_job_runs_when_it_is_due(room: Hall) -> None:
    """C1: a delay of 1000 ms: after 1000 to 1450; as a delay, a countdown, an instant. A delay of 0: at once."""
    delayed = [
        room.enqueue("brief", delay_ms=1000),
        str(room.send("plain", 1, countdown=1).id),
        str(room.send("plain", 1, eta=in_a_second()).id),
    ]
    assert [room.stack.record(job)["state"] for job in delayed] == ["delayed"] * 3
    at_once = room.enqueue("brief", delay_ms=0)
    for job in (*delayed, at_once):
        room.ended(job)
    assert all(room.trace(job) == LATER for job in delayed)
    assert room.trace(at_once) == AT_ONCE
    # An instant is the caller's: what has passed since it was made is no longer waited for.
    assert all((950 if job == delayed[2] else 1000) <= started_after_ms(room, job) <= 1450 for job in delayed)


def test_delayed_jobs_run_in_the_order_in_which_they_are_due(room: Hall) -> None:
    """C3: twelve jobs, delays of 650 to 2300 ms, the longest sent first."""
    delays = range(2300, 649, -150)
    jobs = [room.enqueue("brief", delay_ms=delay) for delay in delays]
    for job in jobs:
        room.ended(job)
    mine = [e.job_id for e in events(room.stack.jobs, QUEUE) if e.kind == "active" and e.job_id in jobs]
    assert mine == jobs[::-1]


def test_a_lost_wake_up_heals(room: Hall) -> None:
    """C4: its key is deleted in the moment in which it is written, twice; the job starts within the bound all the same."""
    moves, started = Moves("qwk"), []
    for _ in range(2):
        job = room.enqueue("brief", delay_ms=600_000)
        with room.stack.jobs.pipeline(transaction=True) as both:
            both.execute_command(*moves.promote(job).full_command)
            both.delete(f"qwk:q:{QUEUE}:wake")
            both.execute()
        room.ended(job)
        started.append(room.at_ms(job, "active") - room.at_ms(job, "waiting"))
    assert max(started) <= 1450


def test_a_job_due_long_after_a_lease_runs_once(room: Hall) -> None:
    """C7: three leases ahead; one run (plain Celery on Redis runs it again at each visibility timeout)."""
    ahead_s = 3 * attempts_app.LEASE_MS / 1000
    jobs = [
        room.enqueue("brief", delay_ms=int(ahead_s * 1000)),
        str(room.send("plain", 1, countdown=ahead_s).id),
        str(room.send("plain", 1, eta=datetime.now(UTC) + timedelta(seconds=ahead_s)).id),
    ]
    for job in jobs:
        room.ended(job)
        assert room.trace(job) == LATER
        assert len(room.starts(job)) == 1
        assert started_after_ms(room, job) > ahead_s * 1000 - 50


def test_an_instant_without_a_time_zone_is_read_as_celery_reads_it(room: Hall) -> None:
    """C7: as UTC, also where the app has another zone (`celery.worker.request` does so with what it gets)."""
    app = attempts_app.make(room.stack.broker_url, room.stack.backend_url)
    app.conf.update(timezone="America/New_York", enable_utc=False)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    job = fresh_id("naive")
    app.tasks["attempts.plain"].apply_async((1,), task_id=job, eta=due.replace(tzinfo=None))
    assert int(room.stack.record(job)["due_at"]) == due.timestamp() * 1000
    room.stack.promote(job)
    room.ended(job)


def test_an_expired_job_never_runs(room: Hall) -> None:
    """SPEC 2: cancelled with the cause `expired`, and its caller is told; one that expires later runs."""
    past = room.send("plain", 1, expires=datetime.now(UTC) - timedelta(seconds=1))
    future = room.send("plain", 1, expires=60)
    assert future.get(timeout=10) == 1
    room.ended(past.id, "cancelled")
    assert room.stack.record(past.id)["cause"] == "expired"
    assert room.starts(past.id) == []
    with pytest.raises(TaskRevokedError):
        past.get(timeout=10)


def test_the_life_of_a_plain_job_can_be_read_by_its_id(room: Hall) -> None:
    """F1: `added waiting active completed`; state, attempts, times and worker in one call."""
    job = room.enqueue("brief")
    room.ended(job)
    assert room.trace(job) == AT_ONCE
    view = open_census(room.app).job(job)
    assert view is not None
    assert (view.state, view.attempts_made, view.attempts_started, view.stalled_count) == (State.COMPLETED, 1, 1, 0)
    assert view.added_at_ms is not None
    assert view.started_at_ms is not None
    assert view.finished_at_ms is not None
    assert view.added_at_ms <= view.started_at_ms <= view.finished_at_ms
    assert f":{room.stack.workers[0].pid}:" in view.worker


def test_a_queue_that_ran_dry_says_so_once(room: Hall) -> None:
    """F3: once for each time, however many jobs there were."""
    room.settled()
    for times in (1, 2):
        before = count(room.stack.jobs, QUEUE, "drained")
        gate = fresh_id("gate")
        room.enqueue("gated", {"gate": gate})
        room.await_gate(gate)
        enqueue_many("attempts.brief", [{} for _ in range(5 * times)])
        room.open_gate(gate)
        wait_until(lambda: count(room.stack.jobs, QUEUE, "drained") > before, says="the queue has run dry")  # noqa: B023
        room.settled()
        assert count(room.stack.jobs, QUEUE, "drained") == before + 1
