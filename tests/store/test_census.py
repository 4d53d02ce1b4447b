"""What people read: one job, its history, a queue's events and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from queue_kit.states import State
from queue_kit.store import AT_ONCE
from queue_kit.store.census import Census, JobView
from tests.store.desk import LATER, Desk
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until


@pytest.fixture(params=[True, False], ids=["strings", "bytes"])
def census(request: pytest.FixtureRequest, redis_server: RedisServer, desk: Desk) -> Iterator[Census]:
    """A census on a client that gives strings, and on one that gives bytes."""
    with redis_server.client(decode_responses=request.param) as client:
        yield Census(client, desk.keys)


def test_one_job_is_read_in_one_trip(census: Census, desk: Desk) -> None:
    """F1: state, attempts, times and worker, by id alone."""
    desk.add(priority=3, correlation_id="c-1", body="opaque", name="mail")
    desk.run(desk.moves.retry("job", desk.begin(worker="w1"), AT_ONCE, reason="no answer"))
    token = desk.begin(worker="w2")
    view = census.job("job")
    assert view is not None
    assert (view.added_at_ms or 0) <= (view.due_at_ms or 0) <= (view.started_at_ms or 0) <= desk.now_ms()
    assert view == JobView(
        id="job", state=State.ACTIVE, queue=desk.queue, name="mail", attempts_made=1, attempts_started=2, stalled_count=0,
        priority=3, added_at_ms=view.added_at_ms, started_at_ms=view.started_at_ms, finished_at_ms=None,
        due_at_ms=view.due_at_ms,
        worker="w2", cause="", reason="no answer", error_class="", correlation_id="c-1", message="opaque", replaced=False,
        reserved=False, trimmed=False,
    )  # fmt: skip
    before = desk.client.info("stats")["total_commands_processed"]
    census.job("job")
    assert desk.client.info("stats")["total_commands_processed"] - before <= 2  # the read, and this question
    desk.run(desk.moves.complete("job", token))


def test_an_id_that_nobody_knows(census: Census) -> None:
    assert census.job("never") is None


def test_a_job_that_completed_at_last_gives_no_reason(census: Census, desk: Desk) -> None:
    """A10: why earlier attempts failed stands in its history."""
    desk.add()
    desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE, reason="no answer"))
    desk.run(desk.moves.complete("job", desk.begin()))
    view = census.job("job")
    assert view
    assert (view.state, view.reason) == ("completed", "")
    (run,) = census.runs("job")
    assert (run.reason, run.worker, run.cause) == ("no answer", "w1", "retried")
    assert (view.added_at_ms or 0) <= run.started_at_ms <= run.ended_at_ms <= (view.finished_at_ms or 0)


def test_a_failed_job_gives_cause_and_reason(census: Census, desk: Desk) -> None:
    desk.run(desk.moves.fail("job", desk.running(), "timeout", "too slow", error_class="JobTimeoutError"))
    view = census.job("job")
    assert view
    assert (view.state, view.cause, view.reason, view.error_class) == (
        "failed",
        "timeout",
        "too slow",
        "JobTimeoutError",
    )


def test_a_delayed_job_says_when_it_is_due(census: Census, desk: Desk) -> None:
    desk.add(when=LATER)
    view = census.job("job")
    assert view
    assert view.state == "delayed"
    assert (view.due_at_ms or 0) > desk.now_ms()


def marks(view: JobView | None) -> dict[str, bool]:
    assert view
    return {name: value for name, value in dataclasses.asdict(view).items() if value is True}


def test_marks_tell_the_kinds_of_waiting_apart(census: Census, desk: Desk) -> None:
    """SPEC 3: replaced is a mark, not a state; so is reserved."""
    desk.replaced("replaced")
    desk.add("reserved")
    desk.reserve("reserved")
    desk.add("waits")
    names = ("replaced", "reserved", "waits")
    assert {census.job(name).state for name in names} == {State.WAITING}
    assert [marks(census.job(name)) for name in names] == [{"replaced": True}, {"reserved": True}, {}]


def test_a_trimmed_job_is_known_by_its_state(census: Census, desk: Desk) -> None:
    desk.run(desk.moves.complete("job", desk.running()))
    desk.run(desk.moves.trim(desk.queue, "completed", 0, 0, 60_000))
    view = census.job("job")
    assert view
    assert (view.state, view.queue, view.name, marks(view)) == ("completed", desk.queue, "", {"trimmed": True})


def test_events_come_oldest_first_and_can_be_followed(census: Census, desk: Desk) -> None:
    """F2: a reader from the start sees all that is kept, and goes on after the last it has seen."""
    assert census.events(desk.queue) == []
    token = desk.running()
    seen = census.events(desk.queue)
    assert [(event.kind, event.job_id) for event in seen] == [("added", "job"), ("waiting", "job"), ("active", "job")]
    assert seen[0].fields == {"name": "work"}
    assert seen[2].fields == {"worker": "w1", "attempts_started": "1"}
    assert all(abs(event.at_ms - desk.now_ms()) < 5_000 for event in seen)
    desk.run(desk.moves.complete("job", token))
    rest = census.events(desk.queue, after=seen[-1].id)
    assert [(event.kind, event.job_id) for event in rest] == [("completed", "job"), ("drained", "")]
    assert census.events(desk.queue, after=rest[-1].id) == []


def test_a_timeline_follows_the_job_through_its_queues(census: Census, desk: Desk) -> None:
    desk.running("another")
    token = desk.running()
    begun_at = desk.now_ms()
    wait_until(
        lambda: desk.now_ms() > begun_at, says="the next millisecond: two streams have no common order within one"
    )
    desk.run(desk.moves.retry("job", token, AT_ONCE, message=desk.message(queue="other")))
    desk.begin(queues=["other"])
    assert [event.kind for event in census.timeline("job")] == ["added", "waiting", "active", "waiting", "active"]
    assert census.timeline("never") == []


def test_counts_by_state(census: Census, desk: Desk) -> None:
    """S6: what is reserved still waits."""
    assert census.counts(desk.queue) == dict.fromkeys(State, 0)
    desk.add_all("a", "b", "c", "d", "e")
    jobs = desk.claim(3, begin=2).jobs
    desk.run(desk.moves.complete("a", jobs[0].token))
    desk.add("late", when=LATER)
    desk.run(desk.moves.cancel("e", "cancelled"))
    assert census.counts(desk.queue) == {
        "waiting": 2,
        "delayed": 1,
        "active": 1,
        "completed": 1,
        "failed": 0,
        "cancelled": 1,
    }


def test_queues_are_named_once_they_have_held_a_job(census: Census, desk: Desk) -> None:
    assert census.queues() == []
    for queue in ("b", "a"):
        desk.add(queue, queue=queue)
    assert census.queues() == ["a", "b"]


def test_the_oldest_waiting_job_is_the_one_added_first(census: Census, desk: Desk) -> None:
    """Not the next in line: one that never gets its turn is what a gauge has to show."""
    assert census.oldest_waiting(desk.queue) is None
    desk.add("starving", priority=9)
    desk.client.hincrby(desk.keys.job("starving"), "added_at", -60_000)
    desk.add_all("a", "b")
    oldest = census.oldest_waiting(desk.queue)
    assert oldest
    assert oldest.id == "starving"
