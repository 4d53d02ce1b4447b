"""Dead letters: the record of a job that will not run again by itself, written with the failure and bounded."""

from __future__ import annotations

import pytest
import redis

from queue_kit.store import AT_ONCE
from tests.store.desk import Desk


def letters(desk: Desk) -> list[str]:
    """Ids of the records that the queue's list names, oldest first."""
    return desk.client.zrange(desk.key("dead"), 0, -1)


def letter(desk: Desk, record_id: str) -> dict[str, str]:
    return desk.client.hgetall(desk.keys.dead_letter(record_id))


def fail(desk: Desk, job_id: str = "job", cause: str = "exhausted") -> None:
    desk.run(desk.moves.fail(job_id, desk.running(job_id), cause, "boom"))


def evictions(desk: Desk) -> int:
    return int(desk.client.hget(desk.key("counts"), "dead_letter_evicted") or 0)


def test_the_record_holds_all_there_is_to_know(desk: Desk) -> None:
    """I1: written whole, by the script that fails the job."""
    desk.add(body="opaque", name="mail", correlation_id="c-1")
    desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE))
    desk.run(desk.moves.stall("job", desk.begin()))
    token = desk.begin()
    desk.run(
        desk.moves.fail("job", token, "timeout", "too slow", error_class="JobTimeoutError", stack="line 1\nline 2")
    )
    (record_id,) = letters(desk)
    assert record_id == f"dlq-{desk.queue}-job-2"
    record, job = letter(desk, record_id), desk.record()
    assert record == {
        "version": "2", "queue": desk.queue, "job": "job", "name": "mail", "message": "opaque", "reason": "too slow",
        "error_class": "JobTimeoutError", "stack": "line 1\nline 2", "cause": "timeout", "attempts_made": "2",
        "attempts_started": "3", "stalled_count": "1", "correlation_id": "c-1", "added_at": job["added_at"],
        "failed_at": job["finished_at"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "cause", ["exhausted", "non_retryable", "invalid_payload", "unknown_task", "malformed", "timeout"]
)
def test_each_cause_stands_in_its_own_record(desk: Desk, cause: str) -> None:
    """I9: those that a worker names."""
    fail(desk, cause=cause)
    assert letter(desk, letters(desk)[0])["cause"] == cause


@pytest.mark.parametrize(("once", "cause"), [((), "stalled"), (("work",), "lost")])
def test_a_job_whose_worker_was_lost_says_so(
    client: redis.Redis, queue_name: str, once: tuple[str, ...], cause: str
) -> None:
    """B4, K16, I9: written by whoever found the stall, naming the limit."""
    desk = Desk(client, queue_name, max_stalled=0)
    desk.add()
    desk.run(desk.moves.stall("job", desk.begin(once=once)))
    record = letter(desk, letters(desk)[0])
    assert (record["cause"], record["attempts_made"], record["stalled_count"]) == (cause, "1", "1")
    assert ("more than allowable limit" in record["reason"]) == (cause == "stalled")


def test_the_same_failure_told_three_times_is_one_record(desk: Desk) -> None:
    """I2: the second and third come too late."""
    token = desk.running()
    answers = [desk.run(desk.moves.fail("job", token, "exhausted", "boom")).outcome for _ in range(3)]
    assert answers == ["ok", "moved", "moved"]
    assert len(letters(desk)) == 1
    assert desk.trace().split().count("dead-lettered") == 1


def test_a_job_that_fails_again_at_a_later_attempt_has_a_second_record(desk: Desk) -> None:
    """I8: the id holds the number of attempts, which only goes up."""
    fail(desk)
    made = desk.counters()[0]
    desk.client.zrem(desk.key("failed"), "job")  # what a replay does: the same job waits again, its counters go on
    desk.client.hset(desk.keys.job("job"), mapping={"state": "waiting"})
    desk.client.zadd(desk.key("wait"), {"job": 1})
    desk.run(desk.moves.fail("job", desk.begin(), "exhausted", "again"))
    assert letters(desk) == [f"dlq-{desk.queue}-job-{made}", f"dlq-{desk.queue}-job-{made + 1}"]
    assert [letter(desk, record_id)["reason"] for record_id in letters(desk)] == ["boom", "again"]


def test_the_newest_stay_and_evictions_are_counted(client: redis.Redis, queue_name: str) -> None:
    """I3: bound 3, six failures, all within one millisecond or so; ids in an order of their own."""
    desk = Desk(client, queue_name, dead_letters=3)
    ids = ["f", "a", "e", "b", "d", "c"]
    tokens = [(job_id, desk.running(job_id)) for job_id in ids]
    desk.ledger.run_all([desk.moves.fail(job_id, token, "exhausted", "no") for job_id, token in tokens])
    assert letters(desk) == [f"dlq-{desk.queue}-{job_id}-1" for job_id in ids[3:]]
    assert evictions(desk) == 3
    assert len(desk.client.keys("qwk:dead:*")) == 3


def test_each_queue_has_its_own_bound(client: redis.Redis, queue_name: str) -> None:
    desk = Desk(client, queue_name, dead_letters=1)
    fail(desk, "here")
    token = desk.running("there", queue="other")
    desk.run(desk.moves.fail("there", token, "exhausted", "no"))
    assert (len(letters(desk)), desk.client.zcard(desk.key("dead", "other")), evictions(desk)) == (1, 1, 0)


@pytest.mark.leaves("qwk:dead:*")
def test_a_record_that_cannot_be_written_does_not_undo_the_failure(desk: Desk) -> None:
    """I5: the job is settled, the trouble is answered, nothing is raised."""
    token = desk.running()
    desk.client.set(desk.keys.dead_letter(f"dlq-{desk.queue}-job-1"), "in the way")
    answer = desk.run(desk.moves.fail("job", token, "exhausted", "boom", exhausted=True))
    assert answer.outcome == "ok"
    assert "WRONGTYPE" in answer.trouble
    assert (desk.state(), desk.places(), desk.counters()) == ("failed", ["failed"], (1, 1, 0))
    assert desk.trace() == "added waiting active failed retries-exhausted"
    assert letters(desk) == []


def test_a_list_that_cannot_be_written_leaves_no_stray_record(desk: Desk) -> None:
    """I5: a record that no list names would never be evicted."""
    token = desk.running()
    desk.client.set(desk.key("dead"), "in the way")
    answer = desk.run(desk.moves.fail("job", token, "exhausted", "boom"))
    assert (answer.outcome, "WRONGTYPE" in answer.trouble) == ("ok", True)
    assert desk.state() == "failed"
    assert desk.client.keys("qwk:dead:*") == []
    desk.client.delete(desk.key("dead"))


def test_a_stall_and_a_reap_answer_the_trouble_too(client: redis.Redis, queue_name: str) -> None:
    """I5: whoever finds the stall."""
    desk = Desk(client, queue_name, max_stalled=0)
    desk.client.set(desk.key("dead"), "in the way")
    assert "WRONGTYPE" in desk.run(desk.moves.stall("a", desk.running("a"))).trouble
    desk.running("b")
    desk.lease_runs_out("b")
    (row,) = desk.reap()
    assert (row.outcome, "WRONGTYPE" in row.trouble) == ("failed", True)
    assert {desk.state("a"), desk.state("b")} == {"failed"}
    desk.client.delete(desk.key("dead"))
