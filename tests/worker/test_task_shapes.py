"""Tasks of unusual shapes keep what Celery promises them, and what a job is promised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from queue_kit import TransientError, enqueue
from queue_kit.store import Keys
from queue_kit.store.census import Census
from tests.apps import shapes_app
from tests.worker.attempts import Hall
from tests.worker.stack import QUEUE, current, fresh_id, show_logs, stack

MODULE = "tests.apps.shapes_app"
ROOT = {"C_FORCE_ROOT": "1"}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Hall]:
    """A stack of the app of unusual shapes, with one worker of processes."""
    with stack(tmp_path_factory.mktemp("shapes"), MODULE, env=ROOT) as made:
        app = shapes_app.make(made.broker_url, made.backend_url)
        with current(app):
            made.start_worker(concurrency=2)
            yield Hall(made, app)


@pytest.fixture(autouse=True)
def _logs(room: Hall, request: pytest.FixtureRequest) -> None:
    show_logs(request, *room.stack.workers)


def send(room: Hall, name: str, *args: Any, **options: Any) -> Any:
    """Send a plain task; return Celery's result."""
    options = {"task_id": fresh_id(name), **options}
    return room.app.tasks[f"shapes.{name}"].apply_async(args, **options)


def sent(name: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
    """Enqueue a declared job; return its id."""
    return enqueue(f"shapes.{name}", payload or {}, job_id=fresh_id(name), **options).id


def hooks(room: Hall, job: str) -> list[str]:
    found: Any = room.stack.notes.lrange(f"hooks:{job}", 0, -1)
    return list(found)


def result_of(room: Hall, job: str) -> Any:
    return room.app.AsyncResult(job)


# -- bases -------------------------------------------------------------------------------------------------------------


def test_a_base_of_its_own_keeps_its_hooks_and_its_call(room: Hall) -> None:
    """SPEC 3: each hook once, in Celery's order; the class knows nothing of ours."""
    result = send(room, "greets", "you", 1)
    assert result.get(timeout=10) == "hello you"
    room.ended(result.id)
    assert hooks(room, result.id) == ["before_start", "on_retry", "before_start", "on_success", "after_return SUCCESS"]
    assert room.stack.counters(result.id) == (2, 2, 0)
    failed = send(room, "greets_in_vain", "you")
    room.ended(failed.id, "failed")
    assert hooks(room, failed.id) == ["before_start", "on_failure", "after_return FAILURE"]


def test_a_request_class_of_its_own_is_used(room: Hall) -> None:
    """SPEC 3: ours is mixed over it."""
    result = send(room, "registers", "you")
    assert result.get(timeout=10) == "hello you"
    room.ended(result.id)
    assert "accepted" in hooks(room, result.id)


def test_a_declared_job_on_a_foreign_base_follows_its_policy(room: Hall) -> None:
    """SPEC 6: three attempts, 50 ms apart, not Celery's three minutes."""
    job = sent("declared_on_a_base", {"name": "you", "fails": 2})
    room.ended(job)
    assert room.stack.counters(job) == (3, 3, 0)
    assert result_of(room, job).get(timeout=5) == "hello you"
    lost = sent("declared_on_a_base", {"name": "you", "fails": 9})
    room.ended(lost, "failed")
    assert len(room.starts(lost)) == 3


# -- options of declared jobs ------------------------------------------------------------------------------------------


def test_an_explicit_retry_backoff_wins_over_the_policy(room: Hall) -> None:
    """SPEC 6: one second by Celery's rule, not two by the default policy."""
    job = sent("own_backoff", {"fails": 1})
    room.ended(job)
    assert 1000 <= room.at_ms(job, "active", 1) - room.at_ms(job, "delayed") < 1450


def test_an_explicit_max_retries_wins_over_the_policy(room: Hall) -> None:
    """SPEC 6: one retry is two attempts."""
    job = sent("own_max_retries")
    room.ended(job, "failed")
    assert len(room.starts(job)) == 2
    assert room.trace(job)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]


def test_max_retries_none_is_no_limit(room: Hall) -> None:
    """SPEC 6: as in Celery; the default is five attempts."""
    job = sent("unlimited", {"fails": 7})
    room.ended(job)
    assert room.stack.counters(job) == (8, 8, 0)


def test_a_limit_given_to_one_retry_is_no_other_jobs(room: Hall) -> None:
    """SPEC 6: Celery keeps `retry(max_retries=…)` on the task, where the next job of the process finds it."""
    for _ in range(3):
        job = sent("asks_for_more", {"max_retries": 3})
        room.ended(job, "failed")
        assert len(room.starts(job)) == 4
    for _ in range(3):
        job = sent("asks_for_more")
        room.ended(job, "failed")
        assert len(room.starts(job)) == 2
        assert isinstance(result_of(room, job).result, TransientError)


# -- odd retries -------------------------------------------------------------------------------------------------------


def test_a_retry_that_does_not_throw_lets_the_run_go_on(room: Hall) -> None:
    """SPEC 3: the job has moved on; what the first run returns does not end it."""
    result = send(room, "retries_and_goes_on")
    room.ended(result.id)
    assert len(room.starts(result.id)) == 2
    assert room.copies(result.id) == ["completed"]
    assert room.trace(result.id) == ["added", "waiting", "active", "delayed", "waiting", "active", "completed"]


def test_a_retry_that_does_not_throw_survives_an_error_after_it(room: Hall) -> None:
    """SPEC 3: likewise; no dead letter, since the job goes on."""
    result = send(room, "retries_and_goes_on", "raises")
    room.ended(result.id)
    assert result.get(timeout=5) == "second"
    assert room.stack.dead_letters(result.id) == []


def test_a_limit_given_by_retry_kwargs_holds(room: Hall) -> None:
    """A13: two retries, and the job ends as exhausted."""
    result = send(room, "limited_by_its_call")
    room.ended(result.id, "failed")
    assert len(room.starts(result.id)) == 3
    assert room.trace(result.id)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]
    assert room.stack.dead_letters(result.id)[0]["cause"] == "exhausted"


def test_a_retry_that_was_never_sent_is_made(room: Hall) -> None:
    """K9: `raise Retry()` by hand; stock Celery acknowledges, and the task is gone."""
    result = send(room, "raises_a_retry_by_hand")
    assert result.get(timeout=10) == "done"
    room.ended(result.id)
    assert len(room.starts(result.id)) == 2
    assert room.stack.counters(result.id) == (2, 2, 0)


def test_a_task_that_may_run_once_at_most_may_retry(room: Hall) -> None:
    """K16: it asks for each run itself."""
    result = send(room, "at_most_once_retries")
    assert result.get(timeout=10) == "done"
    room.ended(result.id)
    assert room.stack.counters(result.id) == (3, 3, 0)


def test_what_a_thread_of_the_run_sends_under_its_id_moves_the_job(room: Hall) -> None:
    """A12: Celery knows no current task in that thread."""
    result = send(room, "sends_itself_from_a_thread")
    room.ended(result.id)
    assert len(room.starts(result.id)) == 2
    assert room.copies(result.id) == ["completed"]
    assert room.trace(result.id) == ["added", "waiting", "active", "waiting", "active", "completed"]


# -- limits and results ------------------------------------------------------------------------------------------------


def test_a_soft_time_limit_can_be_heeded(room: Hall) -> None:
    """K18: the plain task's own limits."""
    result = send(room, "softly_limited")
    assert result.get(timeout=10) == "softly"
    room.ended(result.id)


def test_a_soft_time_limit_fails_a_plain_task(room: Hall) -> None:
    """SPEC 6: at once, not retried."""
    result = send(room, "softly_limited_in_vain")
    room.ended(result.id, "failed")
    with pytest.raises(SoftTimeLimitExceeded):
        result.get(timeout=5)
    assert room.stack.counters(result.id) == (1, 1, 0)


@pytest.mark.crash
@pytest.mark.parametrize("limit", [None, 0.3])
def test_a_hard_time_limit_fails_a_plain_task(room: Hall, limit: float | None) -> None:
    """K5: one failure, one dead letter, its cause `timeout`; whether by the task or by the call."""
    result = send(room, "hardly_limited", **({"time_limit": limit} if limit else {}))
    room.ended(result.id, "failed")
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=5)
    (letter,) = room.stack.dead_letters(result.id)
    assert letter["cause"] == "timeout"
    assert room.stack.counters(result.id) == (1, 1, 0)
    assert len(room.starts(result.id)) == 1


@pytest.mark.parametrize(("name", "state"), [("keeps_no_result", "completed"), ("keeps_no_failure", "failed")])
def test_a_task_without_a_result_ends_all_the_same(room: Hall, name: str, state: str) -> None:
    """SPEC 3: nothing is stored, the job's own record says how it ended."""
    result = send(room, name)
    room.ended(result.id, state)
    assert result_of(room, result.id).state == "PENDING"


def test_a_result_that_cannot_be_stored_fails_the_job(room: Hall) -> None:
    """A9: with its text; the worker goes on."""
    result = send(room, "cannot_be_stored")
    room.ended(result.id, "failed")
    assert "object" in room.stack.record(result.id)["reason"]
    assert send(room, "takes_two", 1, 2).get(timeout=10) == [1, 2]


def test_arguments_that_do_not_fit_are_refused_where_the_task_is_sent(room: Hall) -> None:
    """SPEC 3: Celery's own check of a plain task; a sender that does not know the task finds out by the job's failure."""
    with pytest.raises(TypeError):
        send(room, "takes_two", 1)
    result = room.app.send_task("shapes.takes_two", (1, 2, 3), task_id=fresh_id("three"))
    room.ended(result.id, "failed")
    with pytest.raises(TypeError):
        result.get(timeout=5)


@pytest.mark.parametrize(
    "options",
    [
        {"serializer": "pickle"},
        {"compression": "gzip"},
        {"compression": "bzip2", "serializer": "pickle"},
        {"headers": {"tenant": "t-1"}},
        {"priority": 9},
        {"shadow": "another name"},
        {"ignore_result": False},
        {"queue": "celery"},
        {"time_limit": 30, "soft_time_limit": 20},
    ],
    ids=str,
)
def test_every_way_of_sending_arrives(room: Hall, options: dict[str, Any]) -> None:
    """SPEC 3: bodies that are no text, compression, headers, priorities."""
    text = "Grüße, 世界 🎟 \x00"
    assert send(room, "takes_two", text, {"a": [1, 2.5, None]}, **options).get(timeout=10) == [
        text,
        {"a": [1, 2.5, None]},
    ]


def test_headers_and_priority_reach_the_task(room: Hall) -> None:
    """SPEC 3: also after a retry they would."""
    result = send(room, "reads_headers", headers={"tenant": "t-1"}, priority=7)
    assert result.get(timeout=10) == {"own": "t-1", "priority": 7}


def in_full(room: Hall, like: str) -> str:
    """Write a job by hand, as kombu and the first version of queue_kit did: its message in one field, with all it says."""
    job = fresh_id("full")
    view = Census(room.stack.jobs, Keys("qwk")).job(like)
    assert view is not None
    record = {
        "message": view.message.replace(like, job), "nesting": 0, "state": "waiting", "queue": QUEUE, "name": view.name,
        "added_at": view.added_at_ms, "priority": view.priority,
    }  # fmt: skip
    room.stack.jobs.hset(f"qwk:job:{job}", mapping=record)
    room.stack.jobs.zadd(f"qwk:q:{QUEUE}:wait", {job: 2**48})
    room.stack.jobs.lpush(f"qwk:q:{QUEUE}:wake", "1")
    return job


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"args": [1, "two"], "kwargs": {"three": 3.0, "text": "Grüße 'q'"}},
        {"kwargs": {"nested": {"a": [1, None]}}, "headers": {"tenant": "t-1"}, "priority": 3},
        {"args": (["in a list"],), "argsrepr": "<hidden>", "time_limit": 30},
        {"compression": "gzip", "kwargs": {"text": "x" * 3_000}},
    ],
    ids=range(5),
)
def test_a_message_in_full_runs_as_a_packed_one_does(room: Hall, options: dict[str, Any]) -> None:
    """SPEC 3: a job that the version before has written runs on this one, and its request says the same."""
    packed = room.app.tasks["shapes.describes_itself"].apply_async(task_id=fresh_id("packed"), ignore_result=False, **options)
    said = packed.get(timeout=10)
    full = in_full(room, packed.id)
    assert result_of(room, full).get(timeout=10) == said
    room.ended(full)


@pytest.mark.parametrize(
    "job_id", ["a:b", "a:runs:b", "ünïcode-世", "with space", "'quote\"", "x" * 200, "{brace}", "a\nb"]
)
def test_an_id_may_be_any_text(room: Hall, job_id: str) -> None:
    """SPEC 1: the id is the caller's; keys, events and history of one job are not another's."""
    result = send(room, "greets", "you", 1, task_id=job_id)
    assert result.get(timeout=10) == "hello you"
    room.ended(job_id)
    assert room.copies(job_id) == ["completed"]
    assert room.stack.counters(job_id) == (2, 2, 0)
