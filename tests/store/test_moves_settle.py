"""complete, retry, release, fail: how a run ends, what is counted, and what the queue hears."""

from __future__ import annotations

import pytest

from queue_kit.store import AT_ONCE, When
from queue_kit.store.moves import Settled
from tests.store.desk import HOUR_MS, LATER, Desk


def test_complete(desk: Desk) -> None:
    """F1: trace, state, counters, times."""
    token = desk.running()
    assert desk.run(desk.moves.complete("job", token)) == "ok"
    assert (desk.state(), desk.places(), desk.counters()) == ("completed", ["completed"], (1, 1, 0))
    assert desk.trace() == "added waiting active completed"
    record = desk.record()
    assert int(record["added_at"]) <= int(record["started_at"]) <= int(record["finished_at"]) <= desk.now_ms()
    assert desk.runs() == []


def test_a_retry_with_a_delay(desk: Desk) -> None:
    """S3: active to delayed; one attempt; the failure stands in the history."""
    token = desk.running()
    assert desk.run(desk.moves.retry("job", token, LATER, cause="retried", reason="no answer")) == "delayed"
    assert (desk.state(), desk.places(), desk.counters()) == ("delayed", ["delayed"], (1, 1, 0))
    assert desk.trace() == "added waiting active delayed"
    (run,) = desk.runs()
    assert (run["worker"], run["cause"], run["reason"]) == ("w1", "retried", "no answer")
    assert int(desk.record()["started_at"]) == run["started_at"] <= run["ended_at"] <= desk.now_ms()


def test_a_retry_without_a_delay_waits_at_the_tail(desk: Desk) -> None:
    """A1: no `delayed` event."""
    token = desk.running()
    desk.add("next")
    assert desk.run(desk.moves.retry("job", token, When(delay_ms=0))) == "waiting"
    assert desk.trace() == "added waiting active waiting"
    assert desk.listed("wait") == ["next", "job"]


def test_a_retry_may_name_an_instant(desk: Desk) -> None:
    """`self.retry(eta=...)`."""
    token = desk.running()
    instant = desk.now_ms() + HOUR_MS
    assert desk.run(desk.moves.retry("job", token, When(due_at_ms=instant))) == "delayed"
    assert int(desk.record()["due_at"]) == instant


def test_a_retry_carries_the_new_message_and_the_counters_go_on(desk: Desk) -> None:
    """A12: the same job; the next run reads what the last one published."""
    desk.add(body="first", priority=2, correlation_id="c")
    new = desk.message(body="second", name="work", nesting=0)
    desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE, message=new))
    (job,) = desk.claim().jobs
    assert (job.message, job.attempts_made, job.attempts_started) == ("second", 1, 2)
    assert desk.record()["priority"] == "2"


def test_a_retry_may_move_the_job_to_another_queue(desk: Desk) -> None:
    """`self.retry(queue=...)`: out of the old queue, which then is drained, and into the new."""
    token = desk.running()
    new = desk.message(body="second", queue="other", name="renamed")
    assert desk.run(desk.moves.retry("job", token, AT_ONCE, message=new)) == "waiting"
    assert desk.places("job", desk.queue) == []
    assert desk.places("job", "other") == ["wait"]
    assert desk.kinds() == ["added", "waiting", "active", "drained"]
    assert desk.trace("job", "other") == "waiting"
    assert desk.record()["name"] == "renamed"
    (job,) = desk.claim(queues=["other"]).jobs
    assert desk.run(desk.moves.complete("job", job.token)) == "ok"
    assert "other" in desk.client.smembers(desk.keys.queues)


def test_a_run_that_replaces_itself_by_one_task_makes_no_attempt(desk: Desk) -> None:
    """A13: `self.replace(one task)`: what it becomes begins with a fresh count, and the run stands in the history."""
    token = desk.running()
    new = desk.message(body="second", name="other.task", nesting=1)
    assert desk.run(desk.moves.retry("job", token, AT_ONCE, message=new, counted=False)) == "waiting"
    assert (desk.counters(), desk.record()["nesting"], desk.record()["name"]) == ((0, 1, 0), "1", "other.task")
    assert [run["cause"] for run in desk.runs()] == ["replaced"]


def test_attempts_add_up_and_both_failures_stay_known(desk: Desk) -> None:
    """A10: failed twice, then completed."""
    desk.add()
    for text in ("first", "second"):
        desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE, reason=text))
    assert desk.run(desk.moves.complete("job", desk.begin())) == "ok"
    assert desk.counters() == (3, 3, 0)
    assert [run["reason"] for run in desk.runs()] == ["first", "second"]


def test_the_history_of_a_job_is_bounded(desk: Desk) -> None:
    desk.add()
    for number in range(60):
        desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE, reason=str(number)))
    assert [run["reason"] for run in desk.runs()] == [str(number) for number in range(10, 60)]


@pytest.mark.parametrize("letter", ["x", "é", "語", "🎭"])
def test_a_long_reason_is_cut_where_a_character_begins(desk: Desk, letter: str) -> None:
    """A10: half a character could not be read again, and would hide the whole history."""
    for shift in range(4):
        job_id = f"job{shift}"
        token = desk.running(job_id)
        desk.run(desk.moves.retry(job_id, token, LATER, reason="x" * shift + letter * 600))
        (run,) = desk.runs(job_id)
        assert ("x" * shift + letter * 600).startswith(run["reason"])
        assert len(run["reason"].encode()) > 490


def test_an_error_may_quote_what_is_no_text(desk: Desk) -> None:
    """A9: half a surrogate pair, as JSON may bring it, is written as a question mark; the settle goes through."""
    desk.add()
    desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE, reason="no user \ud800"))
    desk.run(desk.moves.fail("job", desk.begin(), "exhausted", "\udfff", error_class="\udfff", stack="\udfff"))
    assert [run["reason"] for run in desk.runs()] == ["no user ?", "?"]
    assert (desk.state(), desk.record()["reason"]) == ("failed", "?")


# -- release ----------------------------------------------------------------------------------------------------------


def test_release_gives_back_at_the_head_and_counts_nothing(desk: Desk) -> None:
    """A11, G3: GiveBack and our own shutdown."""
    token = desk.running()
    desk.add("next")
    assert desk.run(desk.moves.release("job", token)) == "waiting"
    assert (desk.counters(), desk.trace()) == ((0, 1, 0), "added waiting active waiting")
    assert desk.listed("wait") == ["job", "next"]
    assert [run["cause"] for run in desk.runs()] == ["released"]


def test_reject_with_requeue_goes_to_the_tail(desk: Desk) -> None:
    token = desk.running()
    desk.add("next")
    assert desk.run(desk.moves.release("job", token, side="tail")) == "waiting"
    assert desk.listed("wait") == ["next", "job"]


def test_snooze_is_delayed_and_counts_nothing(desk: Desk) -> None:
    """A11: more than the delay, am 0 so far."""
    token = desk.running()
    assert desk.run(desk.moves.release("job", token, delay_ms=HOUR_MS, reason="snoozed for an hour")) == "delayed"
    assert [(run["cause"], run["reason"]) for run in desk.runs()] == [("released", "snoozed for an hour")]
    assert (desk.counters(), desk.trace()) == ((0, 1, 0), "added waiting active delayed")


def test_a_reserved_job_only_loses_its_lease(desk: Desk) -> None:
    """G2: head, no event, no counter, no history."""
    desk.add()
    token = desk.reserve()
    desk.add("next")
    assert desk.run(desk.moves.release("job", token, side="tail", delay_ms=HOUR_MS)) == "waiting"
    assert (desk.counters(), desk.trace(), desk.runs()) == ((0, 0, 0), "added waiting", [])
    assert desk.listed("wait") == ["job", "next"]


def test_reserved_jobs_given_back_from_the_last_to_the_first_keep_their_order(desk: Desk) -> None:
    """G2: each goes to the head."""
    desk.add_all("a", "b", "c", "d")
    jobs = desk.claim(3, begin=0).jobs
    for job in reversed(jobs):
        desk.run(desk.moves.release(job.id, job.token))
    assert desk.listed("wait") == ["a", "b", "c", "d"]


def test_rate_limited_holds_the_queue_off(desk: Desk) -> None:
    """D5: the job is back in waiting, its attempts untouched, and nothing is taken meanwhile."""
    token = desk.running()
    assert desk.run(desk.moves.release("job", token, hold_ms=60_000)) == "waiting"
    claim = desk.claim()
    assert claim.jobs == []
    assert 55_000 < (claim.wait_ms or 0) <= 60_000
    assert desk.counters() == (0, 1, 0)


def test_the_longest_hold_off_wins(desk: Desk) -> None:
    """D5: a second answer 429 with a shorter wait does not cut the first one short."""
    first, second = desk.running("a"), desk.running("b")
    desk.run(desk.moves.release("a", first, hold_ms=60_000))
    desk.run(desk.moves.release("b", second, hold_ms=100))
    assert (desk.claim().wait_ms or 0) > 55_000


# -- fail -------------------------------------------------------------------------------------------------------------


def test_fail_on_the_last_attempt(desk: Desk) -> None:
    """A2, A3: failed, retries-exhausted, dead-lettered, in this order."""
    token = desk.running()
    answer = desk.run(
        desk.moves.fail("job", token, "exhausted", "boom", error_class="ValueError", stack="…", exhausted=True)
    )
    assert answer == Settled("ok", "")
    assert (desk.state(), desk.places(), desk.counters()) == ("failed", ["failed"], (1, 1, 0))
    assert desk.trace() == "added waiting active failed retries-exhausted dead-lettered"
    assert {"cause": "exhausted", "reason": "boom", "error_class": "ValueError"}.items() <= desk.record().items()
    assert [(run["cause"], run["reason"]) for run in desk.runs()] == [("exhausted", "boom")]


def test_a_permanent_error_did_not_exhaust_anything(desk: Desk) -> None:
    """A7: no `retries-exhausted`."""
    token = desk.running()
    desk.run(desk.moves.fail("job", token, "non_retryable", "never"))
    assert desk.trace() == "added waiting active failed dead-lettered"


def test_a_reserved_job_may_fail_before_it_begins(desk: Desk) -> None:
    """A8: malformed, unknown, invalid: one attempt, no start."""
    desk.add()
    token = desk.reserve()
    assert desk.run(desk.moves.fail("job", token, "malformed", "no JSON", tell=True)).outcome == "ok"
    assert (desk.state(), desk.places(), desk.counters()) == ("failed", ["failed"], (1, 0, 0))


@pytest.mark.parametrize("tell", [True, False])
def test_a_note_is_left_where_nobody_has_told_the_callers(desk: Desk, tell: bool) -> None:
    """K15: only then."""
    token = desk.running()
    desk.run(desk.moves.fail("job", token, "exhausted", "boom", tell=tell))
    assert desk.client.zrange(desk.keys.notes, 0, -1) == (["job"] if tell else [])


# -- drained ----------------------------------------------------------------------------------------------------------


def drained(desk: Desk) -> int:
    return desk.kinds().count("drained")


def test_drained_comes_once_with_the_last_job(desk: Desk) -> None:
    """F3: not with each."""
    desk.add_all("a", "b", "c")
    jobs = desk.claim().jobs
    for job in jobs:
        assert drained(desk) == 0
        desk.run(desk.moves.complete(job.id, job.token))
    assert drained(desk) == 1
    assert desk.kinds()[-1] == "drained"


def test_drained_comes_again_after_the_next_job(desk: Desk) -> None:
    for expected in (1, 2):
        desk.run(desk.moves.complete("job", desk.running()))
        desk.run(desk.moves.remove("job"))
        assert drained(desk) == expected


def test_a_reserved_job_keeps_the_queue_from_being_drained(desk: Desk) -> None:
    desk.add_all("a", "b")
    first, second = desk.claim(2, begin=1).jobs
    desk.run(desk.moves.complete("a", first.token))
    assert drained(desk) == 0
    desk.run(desk.moves.begin("b", second.token, once=False))
    desk.run(desk.moves.complete("b", second.token))
    assert drained(desk) == 1


def test_a_due_job_keeps_the_queue_from_being_drained_and_a_later_one_does_not(desk: Desk) -> None:
    token = desk.running()
    desk.add("late", when=LATER)
    desk.comes_due("late")
    desk.run(desk.moves.complete("job", token))
    assert drained(desk) == 0
    desk.run(desk.moves.complete("late", desk.begin("late")))
    assert drained(desk) == 1


def test_jobs_that_are_cancelled_before_they_were_due_drain_nothing(desk: Desk) -> None:
    """F3: the queue has been idle all the time."""
    desk.run(desk.moves.complete("job", desk.running()))
    desk.add_all("a", "b", when=LATER)
    for job_id in ("a", "b"):
        desk.run(desk.moves.cancel(job_id, "cancelled"))
    assert drained(desk) == 1


def test_the_last_waiting_job_removed_drains_the_queue(desk: Desk) -> None:
    desk.add()
    desk.run(desk.moves.remove("job"))
    assert desk.kinds() == ["added", "waiting", "removed", "drained"]


def test_each_way_to_end_the_last_job_drains_the_queue(desk: Desk) -> None:
    ends = [
        lambda token: desk.moves.complete("job", token),
        lambda token: desk.moves.fail("job", token, "exhausted", "no"),
        lambda token: desk.moves.cancel("job", "revoked", token),
        lambda token: desk.moves.replace("job", token),
        lambda token: desk.moves.retry("job", token, LATER),
        lambda token: desk.moves.release("job", token, delay_ms=HOUR_MS),
    ]
    for expected, end in enumerate(ends, 1):
        desk.run(end(desk.running()))
        assert drained(desk) == expected
        desk.run(desk.moves.remove("job"))
