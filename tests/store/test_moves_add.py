"""add, promote: how a job comes in, and when it starts to wait."""

from __future__ import annotations

from typing import Any

import pytest

from queue_kit.store import AT_ONCE, When
from queue_kit.store.moves import Added
from tests.store.desk import HOUR_MS, LATER, Desk


def test_a_new_job_waits(desk: Desk) -> None:
    assert desk.add(body="opaque", name="mail", priority=3, correlation_id="c-1") == Added("added", "waiting")
    record = desk.record()
    assert {
        "state": "waiting",
        "message": "opaque",
        "name": "mail",
        "priority": "3",
        "correlation_id": "c-1",
    }.items() <= record.items()
    assert abs(int(record["added_at"]) - desk.now_ms()) < 5_000
    assert desk.places() == ["wait"]
    assert desk.trace() == "added waiting"
    assert desk.client.smembers(desk.keys.queues) == {desk.queue}


def test_a_record_stays_packed_in_redis(desk: Desk) -> None:
    """A message of a kilobyte takes little more than that: as a table, its record would take twice as much."""
    desk.add(body="x" * 1_000, name="mail", correlation_id="c-1", priority=3)
    assert desk.client.object("encoding", desk.keys.job("job")) in (b"listpack", b"ziplist", "listpack", "ziplist")
    assert desk.client.memory_usage(desk.keys.job("job")) < 1_500


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 126, 127, 2_015, 2_016, 2_017, 2_100, 5_000])
@pytest.mark.parametrize("before", [1, 2_016, 2_017])
def test_a_message_of_any_length_takes_the_place_of_another(desk: Desk, before: int, size: int) -> None:
    """Cut into parts or whole, nothing of the one before is left."""
    bodies = ["".join(chr(97 + n % 26) for n in range(length)) for length in (before, size)]
    desk.add(body=bodies[0], when=LATER)
    desk.run(desk.moves.promote("job"))
    (job,) = desk.claim().jobs
    assert job.message == bodies[0]
    desk.run(desk.moves.retry("job", job.token, AT_ONCE, message=desk.message(body=bodies[1])))
    (job,) = desk.claim().jobs
    assert job.message == (bodies[1] or bodies[0])  # '' stands for: keep it


def test_a_delay_makes_it_delayed(desk: Desk) -> None:
    """S5, C1 at the store: delayed until it is due by the clock of Redis."""
    before = desk.now_ms()
    assert desk.add(when=LATER) == Added("added", "delayed")
    assert desk.places() == ["delayed"]
    assert desk.trace() == "added delayed"
    assert before + HOUR_MS <= int(desk.record()["due_at"]) <= desk.now_ms() + HOUR_MS


@pytest.mark.parametrize("when", [When(delay_ms=0), When(due_at_ms=0), When(due_at_ms=1_000), When(delay_ms=-5)])
def test_what_is_due_already_waits_at_once(desk: Desk, when: When) -> None:
    """C1: a delay of 0 means waiting, without an event about a delay."""
    assert desk.add(when=when) == Added("added", "waiting")
    assert desk.trace() == "added waiting"


def test_an_instant_of_the_callers_clock_is_kept_as_it_is(desk: Desk) -> None:
    instant = desk.now_ms() + 2 * HOUR_MS
    assert desk.add(when=When(due_at_ms=instant)) == Added("added", "delayed")
    assert int(desk.record()["due_at"]) == instant


@pytest.mark.parametrize("state", ["waiting", "delayed", "active", "completed", "failed", "cancelled"])
def test_an_id_that_is_there_is_answered_with_its_state(desk: Desk, state: str) -> None:
    """E9: the first message stays, whatever state the job is in, and the second add says which."""
    desk.add(body="first", when=LATER if state == "delayed" else When())
    if state in {"active", "completed", "failed"}:
        token = desk.begin()
        if state == "completed":
            desk.run(desk.moves.complete("job", token))
        if state == "failed":
            desk.run(desk.moves.fail("job", token, "exhausted", "no"))
    if state == "cancelled":
        desk.run(desk.moves.cancel("job", "cancelled"))
    places = desk.places()
    assert desk.add(body="second", queue="elsewhere") == Added("duplicated", state)
    assert desk.record()["message"] == "first"
    assert desk.places("job", desk.queue, "elsewhere") == places
    assert desk.trace().split()[-1] == "duplicated"


def test_fifo_within_a_priority_and_0_before_9(desk: Desk) -> None:
    """D7: priority 0 first, 9 last, first in first out within one."""
    for turn in range(3):
        for priority in (9, 4, 0, 1, 5):
            desk.add(f"p{priority}-{turn}", priority=priority)
    assert desk.claimed(20) == [f"p{priority}-{turn}" for priority in (0, 1, 4, 5, 9) for turn in range(3)]


def test_all_ten_levels_are_real(desk: Desk) -> None:
    """D7: ten levels, not the four of the stock transport."""
    for priority in reversed(range(10)):
        desk.add(f"p{priority}", priority=priority)
    assert desk.claimed(10) == [f"p{priority}" for priority in range(10)]


def test_levels_stay_apart_after_a_very_long_life(desk: Desk) -> None:
    """D7: the turn of a queue that has seen 2**47 jobs still fits between two levels, exactly."""
    desk.rules(tail=2**47, head=2**47)
    desk.add_all("a", "b", priority=3)
    desk.add_all("c", priority=4)
    token = desk.begin("a")
    desk.run(desk.moves.release("a", token))
    assert desk.claimed() == ["a", "b", "c"]


def test_promote_by_hand_puts_a_delayed_job_at_the_tail(desk: Desk) -> None:
    """C5: a delayed job runs now."""
    desk.add("late", when=LATER)
    desk.add("first")
    assert desk.run(desk.moves.promote("late")) == "ok"
    assert desk.trace("late") == "added delayed waiting"
    assert desk.claimed() == ["first", "late"]


def test_promote_of_any_other_job_says_where_it_is(desk: Desk) -> None:
    """C5: nothing but a delayed job can be promoted."""
    assert desk.run(desk.moves.promote("job")) == "gone"
    desk.add()
    assert desk.run(desk.moves.promote("job")) == "waiting"
    token = desk.begin()
    assert desk.run(desk.moves.promote("job")) == "active"
    desk.run(desk.moves.complete("job", token))
    assert desk.run(desk.moves.promote("job")) == "completed"
    assert desk.trace() == "added waiting active completed"


def test_due_jobs_are_promoted_by_the_next_claim_in_due_order(desk: Desk) -> None:
    """C3: by the time they were due, not by the time they were added."""
    desk.add_all("c", "b", "a", when=LATER)
    desk.comes_due("a", "b", "c")
    assert desk.claimed() == ["a", "b", "c"]
    assert desk.trace("a") == "added delayed waiting active"


def test_a_promoted_job_goes_behind_those_that_wait(desk: Desk) -> None:
    desk.add("late", when=LATER)
    desk.add("waits")
    desk.comes_due("late")
    assert desk.claimed() == ["waits", "late"]


def test_jobs_due_at_one_instant_keep_their_order(desk: Desk) -> None:
    """C3: more of them than one claim promotes, and more than a fraction of a millisecond could count round."""
    instant = desk.now_ms() + HOUR_MS
    ids = [f"j{number}" for number in range(2_100)]
    calls = [desk.moves.add(job_id, desk.message(), when=When(due_at_ms=instant)) for job_id in ids]
    desk.ledger.run_all(calls)
    ordered = desk.listed("delayed")
    assert ordered[:2_047] == ids[:2_047]
    assert all(
        int(float(score)) == instant for _, score in desk.client.zrange(desk.key("delayed"), 0, -1, withscores=True)
    )


def test_more_due_jobs_than_one_script_moves_are_all_promoted(desk: Desk) -> None:
    """A script stays short: a thousand at a time; the claim then asks to be called again at once."""
    desk.ledger.run_all([desk.moves.add(f"j{n}", desk.message(), when=LATER) for n in range(1_500)])
    desk.comes_due(*(f"j{n}" for n in range(1_500)))
    claim = desk.claim(1_200)
    assert (len(claim.jobs), claim.wait_ms) == (1_000, 0)
    assert len(desk.claim(1_200).jobs) == 500


def test_a_claim_says_how_long_until_the_next_job_is_due(desk: Desk) -> None:
    assert desk.claim().wait_ms is None
    desk.add("far", when=LATER)
    desk.add("near", when=When(delay_ms=60_000))
    assert 55_000 < (desk.claim().wait_ms or 0) <= 60_000


def test_events_can_be_switched_off_for_a_queue(desk: Desk) -> None:
    desk.rules(events_max=0)
    token = desk.running()
    desk.run(desk.moves.complete("job", token))
    assert desk.kinds() == []


def test_the_event_stream_stays_near_its_bound(desk: Desk) -> None:
    """F2: about as many as the queue is told to keep."""
    desk.rules(events_max=100)
    desk.ledger.run_all([desk.moves.add(f"j{n}", desk.message()) for n in range(500)])
    assert len(desk.kinds()) < 300


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priority": 3, "correlation_id": "c-1"},
        {"when": When(delay_ms=60_000)},
        {"when": When(due_at_ms=4_000_000_000_000), "expires_at_ms": 5_000_000_000_000},
        {"nesting": 2},
    ],
    ids=str,
)
def test_jobs_added_together_are_as_those_added_one_by_one(desk: Desk, options: dict[str, Any]) -> None:
    """SPEC 5: records, places, events, counts and the order are the same."""
    bodies = {f"{n}": f"body {n} " * n * 40 for n in range(5)}
    nesting = options.pop("nesting", 0)
    alone = [desk.run(desk.moves.add(f"a{n}", desk.message(body=b, nesting=nesting), **options)) for n, b in bodies.items()]
    pairs = [(f"b{n}", body) for n, body in bodies.items()]
    together = desk.run(desk.moves.add_many(pairs, desk.message(nesting=nesting), **options))
    assert together == [added.state for added in alone]
    for n in bodies:
        records = [{**desk.record(f"{letter}{n}"), "added_at": "", "due_at": ""} for letter in "ab"]
        assert records[0] == records[1]
        assert desk.trace(f"a{n}") == desk.trace(f"b{n}")
    part = "wait" if together[0] == "waiting" else "delayed"
    assert desk.listed(part) == [*(f"a{n}" for n in bodies), *(f"b{n}" for n in bodies)]
    assert desk.client.hget(desk.key("counts"), "enqueued work") == "10"
    assert desk.client.smembers(desk.keys.queues) == {desk.queue}


def test_an_id_that_is_known_is_left_to_add(desk: Desk) -> None:
    """Once, and within one call too: nothing of it is changed."""
    desk.add("one", body="first")
    states = desk.run(desk.moves.add_many([("one", "second"), ("two", "a"), ("two", "b")], desk.message()))
    assert states == ["", "waiting", ""]
    assert (desk.record("one")["message"], desk.record("two")["message"]) == ("first", "a")
    assert desk.listed("wait") == ["one", "two"]
