"""claim and begin: who gets a job, with which lease, and what is passed over."""

from __future__ import annotations

import pytest

from queue_kit.store import Claimed
from tests.store.desk import HOUR_MS, LATER, Desk


def test_a_claim_begins_the_run_in_the_same_trip(desk: Desk) -> None:
    desk.add(body="opaque", name="mail")
    before = desk.now_ms()
    (job,) = desk.claim(worker="w7").jobs
    assert job == Claimed("job", desk.queue, job.token, True, "opaque", 1, 0, 0, False, 0, name="mail")
    record = desk.record()
    assert {"state": "active", "token": job.token, "worker": "w7", "attempts_started": "1"}.items() <= record.items()
    assert desk.places() == ["active"]
    assert before + 10_000 <= desk.client.zscore(desk.key("active"), "job") <= desk.now_ms() + 10_000
    assert desk.trace() == "added waiting active"


def test_every_job_of_a_batch_has_a_token_of_its_own(desk: Desk) -> None:
    desk.add_all("a", "b", "c")
    jobs = desk.claim().jobs
    assert len({job.token for job in jobs}) == 3
    assert [desk.record(job.id)["token"] for job in jobs] == [job.token for job in jobs]


def test_a_claim_takes_no_more_than_its_limit(desk: Desk) -> None:
    """D1, S6: six jobs, four slots: four active, two waiting."""
    desk.add_all("a", "b", "c", "d", "e", "f")
    assert desk.claimed(4) == ["a", "b", "c", "d"]
    assert desk.listed("wait") == ["e", "f"]


def test_an_empty_queue_gives_nothing(desk: Desk) -> None:
    claim = desk.claim()
    assert (claim.jobs, claim.wait_ms) == ([], None)


def test_queues_are_asked_in_the_order_they_are_named(desk: Desk) -> None:
    desk.add("here")
    desk.add("there", queue="other", priority=9)
    assert desk.claimed(queues=["other", desk.queue]) == ["there", "here"]


def test_what_is_taken_ahead_is_reserved_and_still_waits(desk: Desk) -> None:
    """G2, SPEC 2: leased, but not begun: no event, no counter."""
    desk.add_all("a", "b", "c")
    jobs = desk.claim(3, begin=1).jobs
    assert [(job.id, job.begun, job.attempts_started) for job in jobs] == [
        ("a", True, 1),
        ("b", False, 0),
        ("c", False, 0),
    ]
    assert (desk.state("b"), desk.places("b"), desk.counters("b")) == ("waiting", ["reserved"], (0, 0, 0))
    assert desk.record("b")["token"] == jobs[1].token
    assert desk.trace("b") == "added waiting"


def test_a_reserved_job_begins_later(desk: Desk) -> None:
    desk.add()
    token = desk.reserve()
    lease_end = desk.client.zscore(desk.key("reserved"), "job")
    assert desk.run(desk.moves.begin("job", token, once=False)) == ("ok", 1)
    assert (desk.state(), desk.places(), desk.counters()) == ("active", ["active"], (0, 1, 0))
    assert desk.client.zscore(desk.key("active"), "job") == lease_end
    assert desk.trace() == "added waiting active"


def test_begin_sent_twice_begins_once(desk: Desk) -> None:
    """A trip whose answer was lost may be made again."""
    desk.add()
    token = desk.reserve()
    assert desk.run(desk.moves.begin("job", token, once=False)) == ("ok", 1)
    assert desk.run(desk.moves.begin("job", token, once=False)) == ("ok", 1)
    assert desk.counters() == (0, 1, 0)


@pytest.mark.parametrize("once", [True, False])
def test_a_task_that_runs_at_most_once_is_marked_when_it_begins(desk: Desk, once: bool) -> None:
    """K16: by the claim or by begin, so that its loss is known before it can run."""
    names = {"work"} if once else set()
    desk.add("claimed")
    desk.begin("claimed", once=names)
    desk.add("reserved")
    desk.run(desk.moves.begin("reserved", desk.reserve("reserved"), once=once))
    assert {desk.record(job_id)["once"] for job_id in ("claimed", "reserved")} == {"1" if once else ""}


def test_names_that_are_held_back_are_reserved_whatever_is_free(desk: Desk) -> None:
    """K10: tasks under Celery's own rate limit begin when Celery lets them."""
    desk.add("limited", name="slow")
    desk.add("free")
    assert [(job.id, job.begun) for job in desk.claim(2, begin=1, reserve={"slow"}).jobs] == [
        ("limited", False),
        ("free", True),
    ]


def test_a_reserved_job_that_was_cancelled_does_not_begin(desk: Desk) -> None:
    """J4: its holder is told why, not that it lost a lease."""
    desk.add()
    token = desk.reserve()
    assert desk.run(desk.moves.cancel("job", "cancelled")) == "cancelled"
    assert desk.run(desk.moves.begin("job", token, once=False)) == ("cancelled", 0)
    assert desk.run(desk.moves.renew([("job", token)])) == ["moved"]
    assert (desk.state(), desk.places(), desk.counters()) == ("cancelled", ["cancelled"], (0, 0, 0))


def test_a_reserved_job_that_was_given_back_does_not_begin(desk: Desk) -> None:
    desk.add()
    token = desk.reserve()
    desk.lease_runs_out("job", part="reserved")
    desk.reap()
    assert desk.run(desk.moves.begin("job", token, once=False)) == ("lost", 0)
    assert desk.state() == "waiting"


# -- what is passed over ----------------------------------------------------------------------------------------------


def test_one_suspect_at_a_time(desk: Desk) -> None:
    """B15: jobs that have lost a worker run one by one, so that one of them does not take its neighbours along."""
    for job_id in ("s1", "s2"):
        desk.stalled(job_id)
    desk.add("sound")
    assert sorted(desk.listed("wait")) == ["s1", "s2", "sound"]
    assert desk.claimed(suspects=1) == ["s2", "sound"]
    assert desk.claimed(suspects=0) == []
    assert desk.claimed(suspects=1) == ["s1"]


def test_suspects_hold_nobody_up(desk: Desk) -> None:
    """B15: any number in front, and the next sound job is taken in the same trip."""
    for number in range(30):
        desk.stalled(f"s{number}")
    desk.add_all("a", "b")
    assert desk.claimed(1, suspects=0) == ["a"]
    assert desk.claimed(5, suspects=0) == ["b"]
    assert len(desk.listed("wait")) == 30


def test_a_stall_below_the_limit_is_no_suspicion(client, queue_name) -> None:
    desk = Desk(client, queue_name, max_stalled=3)
    desk.stalled()
    assert desk.claimed(suspects=0) == ["job"]


def test_ids_that_this_worker_still_runs_are_left_to_others(desk: Desk) -> None:
    """B12, K17: a worker never holds two runs of one id."""
    desk.add_all("mine", "other")
    assert desk.claimed(avoid={"mine"}) == ["other"]
    assert desk.claimed() == ["mine"]


def test_a_claim_looks_at_a_bounded_number_of_jobs(desk: Desk) -> None:
    """A script stays short even when thousands in front may not be taken."""
    ids = [f"j{number}" for number in range(1_100)]
    desk.ledger.run_all([desk.moves.add(job_id, desk.message()) for job_id in ids])
    assert desk.claimed(1, avoid=ids[:900]) == ["j900"]
    assert desk.claimed(1, avoid=ids) == []
    assert desk.claimed(1) == ["j0"]


def test_many_expired_jobs_are_cleared_in_several_short_claims(desk: Desk) -> None:
    desk.ledger.run_all([desk.moves.add(f"j{n}", desk.message(), expires_at_ms=1) for n in range(1_100)])
    desk.add("sound")
    claim = desk.claim(1)
    assert (claim.jobs, claim.wait_ms) == ([], 0)
    assert desk.claimed(1) == ["sound"]
    assert desk.client.zcard(desk.key("cancelled")) == 1_100


def test_an_expired_job_is_cancelled_instead_of_taken(desk: Desk) -> None:
    """SPEC 2, expire: cause `expired`, an attempt without a run, and a note for whoever waits for it."""
    desk.add("late", expires_at_ms=desk.now_ms() - 1)
    desk.add("sound", expires_at_ms=desk.now_ms() + HOUR_MS)
    (job,) = desk.claim().jobs
    assert (job.id, job.expires) == ("sound", True)
    assert (desk.state("late"), desk.record("late")["cause"]) == ("cancelled", "expired")
    assert desk.counters("late") == (1, 0, 0)
    assert desk.trace("late") == "added waiting cancelled"
    assert desk.client.zrange(desk.keys.notes, 0, -1) == ["late"]


def test_a_job_whose_record_was_deleted_is_dropped(desk: Desk) -> None:
    """An operator's DEL costs that job alone."""
    desk.add_all("gone", "here")
    desk.client.delete(desk.keys.job("gone"))
    assert desk.claimed() == ["here"]
    assert desk.listed("wait") == []


# -- limits of a queue ------------------------------------------------------------------------------------------------


def test_a_paused_queue_gives_nothing_but_promotes(desk: Desk) -> None:
    """C2, D6: a due job moves to waiting, not to active."""
    desk.add("now")
    desk.add("late", when=LATER)
    desk.comes_due("late")
    desk.rules(paused=1)
    claim = desk.claim()
    assert (claim.jobs, claim.wait_ms) == ([], None)
    assert desk.trace("late") == "added delayed waiting"
    desk.client.hdel(desk.key("meta"), "paused")
    assert desk.claimed() == ["now", "late"]


def test_a_held_queue_says_how_long(desk: Desk) -> None:
    """D5: a hold-off by hand or by a provider's 429."""
    desk.add()
    desk.rules(held_until=desk.now_ms() + 60_000)
    claim = desk.claim()
    assert claim.jobs == []
    assert 55_000 < (claim.wait_ms or 0) <= 60_000
    desk.rules(held_until=desk.now_ms() - 1)
    assert desk.claimed() == ["job"]


def test_a_queue_with_a_limit_never_runs_more(desk: Desk) -> None:
    """D2: over all workers; a slot comes back with the end of a run."""
    desk.rules(concurrency=2)
    desk.add_all("a", "b", "c", "d")
    (first, second) = desk.claim(worker="w1").jobs
    assert desk.claimed(worker="w2") == []
    desk.run(desk.moves.complete(first.id, first.token))
    assert desk.claimed(worker="w2") == ["c"]
    desk.run(desk.moves.stall(second.id, second.token))
    assert desk.claimed(worker="w2") == ["b"]


def test_a_limited_queue_is_not_taken_ahead_of(desk: Desk) -> None:
    """D2: a reserved job begins without asking again, so that two workers which take ahead would pass the limit."""
    desk.rules(concurrency=2)
    desk.add_all("a", "b", "c")
    assert [(job.id, job.begun) for job in desk.claim(3, begin=1).jobs] == [("a", True)]
    assert [(job.id, job.begun) for job in desk.claim(3, begin=3).jobs] == [("b", True)]


def test_jobs_that_are_reserved_by_name_count_against_the_limit(desk: Desk) -> None:
    desk.rules(concurrency=2)
    desk.add_all("a", "b", "c", name="slow")
    assert len(desk.claimed(2, reserve={"slow"})) == 2
    assert desk.claimed(2, reserve={"slow"}, worker="w2") == []


def test_a_rate_holds_over_all_workers_and_says_when_it_goes_on(desk: Desk) -> None:
    """D4: also to the worker that took the last of the window and has room left."""
    desk.rules(rate_max=2, rate_ms=60_000)
    desk.add_all("a", "b", "c")
    claim = desk.claim(worker="w1")
    assert [job.id for job in claim.jobs] == ["a", "b"]
    assert 55_000 < (claim.wait_ms or 0) <= 60_000
    other = desk.claim(worker="w2")
    assert other.jobs == []
    assert 55_000 < (other.wait_ms or 0) <= 60_000
    desk.client.delete(desk.key("rate"))
    assert desk.claimed() == ["c"]


def test_half_a_rate_is_no_rate(desk: Desk) -> None:
    """A limit without its window must not break every claim."""
    desk.rules(rate_max=1)
    desk.add_all("a", "b")
    assert desk.claimed() == ["a", "b"]
