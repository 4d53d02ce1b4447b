"""How often a job runs, and what its trace and counters say: declared jobs and plain tasks, on every pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_kit import exponential, fixed
from tests.worker.attempts import POOLS, Hall, hall
from tests.worker.stack import fresh_id, show_logs

AFTER_A_WAIT = ["delayed", "waiting", "active"]
RETRIED_TWICE = ["added", "waiting", "active", *AFTER_A_WAIT, *AFTER_A_WAIT, "completed"]


@pytest.fixture(scope="module", params=POOLS)
def room(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A hall with one worker for all tests here; one for each pool."""
    with hall(tmp_path_factory.mktemp(request.param)) as made:
        made.worker(request.param)
        yield made


@pytest.fixture(autouse=True)
def _logs(room: Hall, request: pytest.FixtureRequest) -> None:
    show_logs(request, *room.stack.workers)


def test_a_retry_without_backoff_waits_in_line_again(room: Hall) -> None:
    """A1: no `delayed`; the second run saw one attempt made."""
    job = room.enqueue("flaky", {"fails": 1}, attempts=3, backoff=fixed(0))
    room.ended(job)
    assert room.trace(job) == ["added", "waiting", "active", "waiting", "active", "completed"]
    assert [start["attempts_made"] for start in room.starts(job)] == [0, 1]
    assert room.stack.counters(job) == (2, 2, 0)


def test_one_attempt_is_one_start(room: Hall) -> None:
    """A2: `failed`, then `retries-exhausted` with one attempt made."""
    job = room.enqueue("flaky", {"fails": 9}, attempts=1)
    room.ended(job, "failed")
    assert room.trace(job) == ["added", "waiting", "active", "failed", "retries-exhausted", "dead-lettered"]
    assert len(room.starts(job)) == 1
    assert room.stack.counters(job) == (1, 1, 0)


def test_a_job_that_always_fails_starts_as_often_as_it_may(room: Hall) -> None:
    """A3: three starts, `retries-exhausted` at three, never completed, one dead letter."""
    job = room.enqueue("flaky", {"fails": 9}, attempts=3, backoff=fixed(0))
    room.ended(job, "failed")
    assert room.trace(job) == [
        *["added", "waiting", "active", "waiting", "active", "waiting", "active"],
        *["failed", "retries-exhausted", "dead-lettered"],
    ]
    assert [start["attempts_made"] for start in room.starts(job)] == [0, 1, 2]
    (letter,) = room.stack.dead_letters(job)
    assert (letter["cause"], letter["attempts_made"]) == ("exhausted", "3")


def test_backoff_is_waited_for(room: Hall) -> None:
    """A4: fixed 1000 ms, success on the third attempt: more than 2000 ms; exponential 1000: more than 3000 ms."""
    at_a_pace = room.enqueue("flaky", {"fails": 2}, attempts=3, backoff=fixed(1000))
    ever_slower = room.enqueue("flaky", {"fails": 2}, attempts=3, backoff=exponential(1000))
    room.ended(at_a_pace)
    room.ended(ever_slower)
    for job, least_ms in ((at_a_pace, 2000), (ever_slower, 3000)):
        assert room.at_ms(job, "completed") - room.at_ms(job, "added") > least_ms
        assert room.trace(job) == RETRIED_TWICE


@pytest.mark.parametrize("name", ["retries", "retries_itself"])
def test_a_plain_retry_moves_the_same_job(room: Hall, name: str) -> None:
    """A13: `self.retry(countdown=…)` and `autoretry_for`; one copy of the id, and the result arrives under it."""
    result = room.send(name, 2)
    assert result.get(timeout=15) == 2
    room.ended(result.id)
    assert room.trace(result.id) == RETRIED_TWICE
    assert room.copies(result.id) == ["completed"]
    assert room.stack.counters(result.id) == (3, 3, 0)


def test_plain_retries_end_as_exhausted(room: Hall) -> None:
    """A13: a plain task's own `max_retries` holds."""
    result = room.send("retries", 9, 0)
    room.ended(result.id, "failed")
    assert len(room.starts(result.id)) == 4
    assert room.trace(result.id)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]
    assert result.state == "FAILURE"


def test_a_rejected_job_is_not_retried_automatically(room: Hall) -> None:
    """A13, K12: `Reject` under `autoretry_for=(Exception,)` is one start and a dead letter (stock: three more starts)."""
    result = room.send("refuses")
    room.ended(result.id, "failed")
    assert len(room.starts(result.id)) == 1
    assert room.trace(result.id) == ["added", "waiting", "active", "failed", "dead-lettered"]
    assert room.stack.dead_letters(result.id)[0]["cause"] == "non_retryable"


def test_a_rejected_job_that_asks_for_it_goes_to_the_tail(room: Hall) -> None:
    """A13: `Reject(requeue=True)` is no attempt."""
    result = room.send("refuses_once")
    assert result.get(timeout=15) == "accepted"
    room.ended(result.id)
    assert room.trace(result.id) == ["added", "waiting", "active", "waiting", "active", "completed"]
    assert room.stack.counters(result.id) == (1, 2, 0)
    assert room.copies(result.id) == ["completed"]


def test_an_ignored_job_is_complete(room: Hall) -> None:
    """A13: `Ignore` ends the job and stores nothing."""
    result = room.send("ignores")
    room.ended(result.id)
    assert room.trace(result.id) == ["added", "waiting", "active", "completed"]
    assert result.state == "PENDING"


@pytest.mark.parametrize(
    ("to", "gives"), [("task", 3), ("chain", 3), ("group", [3, 3]), ("chord", 3), ("nest", [3, 3])]
)
def test_a_job_that_gives_way_stays_one_job(room: Hall, to: str, gives: object) -> None:
    """A13: one copy of the id; what the canvas gives arrives under it."""
    result = room.send("gives_way", to, task_id=fresh_id(f"gives-way-to-{to}"))
    assert result.get(timeout=15) == gives
    room.ended(result.id)
    assert room.copies(result.id) == ["completed"]
    assert room.trace(result.id) == ["added", "waiting", "active", "waiting", "active", "completed"]
    assert room.stack.counters(result.id) == (1, 2, 0)
