"""What a monitor reads of all queues: jobs by state, moves counted by the scripts, and who has waited longest."""

from __future__ import annotations

import pytest

from queue_kit.states import State
from queue_kit.store import AT_ONCE, When
from queue_kit.store.dead_letter_moves import Fresh, replay
from queue_kit.store.tally import Tally, read_tallies
from tests.store.desk import HOUR_MS, LATER, Desk


def tally_of(desk: Desk, queue: str = "") -> Tally:
    return next(tally for tally in read_tallies(desk.client, desk.keys) if tally.queue == (queue or desk.queue))


def fail(desk: Desk, job_id: str, token: str) -> None:
    desk.run(desk.moves.fail(job_id, token, "exhausted", "no answer"))


def test_jobs_are_counted_by_state(desk: Desk) -> None:
    desk.run(desk.moves.complete("done", desk.running("done")))
    desk.running("running")
    desk.add_all("a", "b", "c")
    desk.reserve("a", avoid=["b", "c"])
    desk.add("later", when=LATER)
    desk.add("dropped", when=LATER)
    desk.run(desk.moves.cancel("dropped", "cancelled"))
    fail(desk, "failing", desk.running("failing"))
    tally = tally_of(desk)
    assert tally.jobs == {
        State.WAITING: 3, State.DELAYED: 1, State.ACTIVE: 1, State.COMPLETED: 1, State.FAILED: 1, State.CANCELLED: 1,
    }  # fmt: skip
    assert tally.dead_letters == 1


def test_every_move_is_counted_by_job_name_where_it_is_made(desk: Desk) -> None:
    """SPEC 11: the scripts count."""
    desk.add(name="mail")
    desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE))
    desk.run(desk.moves.stall("job", desk.begin()))
    fail(desk, "job", desk.begin())
    desk.add("gone", name="a name with blanks")
    desk.run(desk.moves.cancel("gone", "cancelled"))
    assert tally_of(desk).counted == {
        ("enqueued", "mail"): 1, ("started", "mail"): 3, ("retrying", "mail"): 1, ("stalled", "mail"): 1,
        ("failed", "mail"): 1, ("dead_lettered", "mail"): 1, ("enqueued", "a name with blanks"): 1,
        ("cancelled", "a name with blanks"): 1,
    }  # fmt: skip


def test_a_retry_that_ends_cancelled_is_no_retry(desk: Desk) -> None:
    token = desk.running(name="mail")
    desk.run(desk.moves.cancel("job", "cancelled"))
    assert desk.run(desk.moves.retry("job", token, AT_ONCE)) == "cancelled"
    assert tally_of(desk).counted == {("enqueued", "mail"): 1, ("started", "mail"): 1, ("cancelled", "mail"): 1}


def test_evictions_are_counted_by_queue(client: object, queue_name: str) -> None:
    """I3."""
    desk = Desk(client, queue_name, dead_letters=1)  # type: ignore[arg-type]
    for job_id in ("a", "b", "c"):
        fail(desk, job_id, desk.running(job_id))
    assert (tally_of(desk).dead_letters, tally_of(desk).evicted) == (1, 2)


def waited(desk: Desk) -> int:
    return tally_of(desk).oldest_waiting_ms


def older(desk: Desk, job_id: str, by_ms: int, field: str = "added_at") -> None:
    """Let a job have been added (or due) so much earlier."""
    desk.client.hset(desk.keys.job(job_id), field, desk.now_ms() - by_ms)


def test_nobody_has_waited_where_nobody_waits(desk: Desk) -> None:
    desk.add("later", when=LATER)
    desk.running("running")
    assert waited(desk) == 0


@pytest.mark.parametrize("priority", [0, 5, 9])
def test_the_job_that_has_waited_longest_is_found_at_whatever_priority(desk: Desk, priority: int) -> None:
    for level in (0, 5, 9):
        desk.add(f"p{level}", priority=level)
    older(desk, f"p{priority}", HOUR_MS)
    assert HOUR_MS <= waited(desk) < HOUR_MS + 60_000


def test_a_job_that_went_back_has_waited_since_then(desk: Desk) -> None:
    """A retry at once, a stall and a release: what ran before is no wait."""
    token = desk.running()
    older(desk, "job", HOUR_MS)
    for move in (lambda t: desk.moves.retry("job", t, AT_ONCE), lambda t: desk.moves.stall("job", t),
                 lambda t: desk.moves.release("job", t, reason="")):  # fmt: skip
        desk.run(move(token))
        assert waited(desk) < 60_000
        token = desk.begin()


def test_a_delayed_job_has_waited_since_it_was_due(desk: Desk) -> None:
    desk.add(when=When(delay_ms=HOUR_MS))
    older(desk, "job", 10 * HOUR_MS)
    desk.client.zadd(desk.key("delayed"), {"job": desk.now_ms() - 2 * HOUR_MS})
    older(desk, "job", 2 * HOUR_MS, "due_at")
    desk.rules(paused=1)
    desk.claim()
    assert 2 * HOUR_MS <= waited(desk) < 3 * HOUR_MS
    desk.client.hdel(desk.key("meta"), "paused")
    (job,) = desk.claim().jobs
    assert 2 * HOUR_MS <= job.waited_ms < 3 * HOUR_MS


def test_a_job_promoted_by_hand_has_waited_since_then(desk: Desk) -> None:
    desk.add(when=LATER)
    older(desk, "job", HOUR_MS)
    desk.run(desk.moves.promote("job"))
    assert waited(desk) < 60_000


def test_a_replayed_job_has_waited_since_then(desk: Desk) -> None:
    fail(desk, "job", desk.running())
    older(desk, "job", HOUR_MS)
    desk.run(replay("qwk", "job", Fresh("body", 0, 0), "ada"))
    assert waited(desk) < 60_000


def test_of_those_put_back_to_the_head_the_first_has_waited_longest(desk: Desk) -> None:
    for job_id in ("a", "b", "c"):
        desk.run(desk.moves.stall(job_id, desk.running(job_id)))
    desk.add("behind")
    older(desk, "a", HOUR_MS, "due_at")
    assert HOUR_MS <= waited(desk) < HOUR_MS + 60_000


def test_two_hundred_queues_cost_two_round_trips(desk: Desk) -> None:
    for number in range(200):
        desk.add(f"job-{number}", queue=f"q{number:03}")
    read_tallies(desk.client, desk.keys)
    before = desk.client.info("stats")["total_reads_processed"]
    assert [tally.queue for tally in read_tallies(desk.client, desk.keys)] == [f"q{number:03}" for number in range(200)]
    assert desk.client.info("stats")["total_reads_processed"] - before <= 6  # the pipeline may come in several pieces


def test_a_queue_that_cannot_be_read_does_not_hide_the_others(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.add()
    desk.add("other", queue="broken")
    desk.client.delete(desk.key("counts", "broken"))
    desk.client.set(desk.key("counts", "broken"), "no hash")
    assert [tally.queue for tally in read_tallies(desk.client, desk.keys)] == [desk.queue]
    assert "a queue cannot be counted" in caplog.text
    desk.client.delete(desk.key("counts", "broken"))
