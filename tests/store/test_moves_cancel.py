"""cancel, expire, remove, trim: how a job ends without having done its work, and how records go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queue_kit.store import AT_ONCE, Call, Moves
from queue_kit.store.moves import Added
from tests.store.desk import HOUR_MS, LATER, Desk
from tests.store.test_fence import word


def notes(desk: Desk) -> list[str]:
    return desk.client.zrange(desk.keys.notes, 0, -1)


# -- cancel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [AT_ONCE, LATER])
def test_a_job_that_has_not_begun_never_runs(desk: Desk, when: Any) -> None:
    """J4: waiting or delayed; whoever waits for it is told."""
    desk.add(when=when)
    assert desk.run(desk.moves.cancel("job", "revoked")) == "cancelled"
    assert (desk.state(), desk.places(), desk.counters()) == ("cancelled", ["cancelled"], (0, 0, 0))
    assert desk.record()["cause"] == "revoked"
    assert desk.trace().split()[-1] == "cancelled"
    assert (desk.claimed(), notes(desk)) == ([], ["job"])


def test_a_running_job_is_flagged_and_its_next_renewal_says_so(desk: Desk) -> None:
    """J4: its token fires; the state is still active."""
    token = desk.running()
    assert desk.run(desk.moves.cancel("job", "cancelled")) == "flagged"
    assert (desk.state(), desk.trace()) == ("active", "added waiting active")
    assert desk.run(desk.moves.renew([("job", token)])) == ["cancel:cancelled"]
    assert desk.run(desk.moves.cancel("job", "cancelled")) == "flagged"


ENDINGS: dict[str, tuple[Callable[[Moves, str], Call[Any]], tuple[int, int, int]]] = {
    "retry": (lambda moves, token: moves.retry("job", token, LATER), (1, 1, 0)),
    "release": (lambda moves, token: moves.release("job", token), (0, 1, 0)),
    "snooze": (lambda moves, token: moves.release("job", token, delay_ms=HOUR_MS), (0, 1, 0)),
    "fail": (lambda moves, token: moves.fail("job", token, "exhausted", "no"), (1, 1, 0)),
    "stall": (lambda moves, token: moves.stall("job", token), (0, 1, 1)),
    "replace": (lambda moves, token: moves.replace("job", token), (0, 1, 0)),
    "cancel": (lambda moves, token: moves.cancel("job", "cancelled", token), (0, 1, 0)),
}


@pytest.mark.parametrize("verb", ENDINGS)
def test_a_flagged_run_that_ends_otherwise_than_by_returning_is_cancelled(desk: Desk, verb: str) -> None:
    """J4: raises, is released, stalls, replaces itself: not retried, no dead letter, one `cancelled`."""
    move, counters = ENDINGS[verb]
    token = desk.running()
    desk.run(desk.moves.cancel("job", "cancelled"))
    assert word(desk.run(move(desk.moves, token))) == "cancelled"
    assert (desk.state(), desk.places(), desk.counters()) == ("cancelled", ["cancelled"], counters)
    stalled = ["stalled"] if verb == "stall" else []
    assert desk.trace().split() == ["added", "waiting", "active", *stalled, "cancelled"]
    assert len(desk.runs()) == 1
    assert desk.client.keys("*dead*") == []


@pytest.mark.parametrize("verb", ENDINGS)
def test_whoever_waits_for_a_flagged_run_is_told_unless_its_holder_has_done_so(desk: Desk, verb: str) -> None:
    """J4: a run that has failed has told its failure itself; a holder that cancels says whether it has."""
    move, _ = ENDINGS[verb]
    token = desk.running()
    desk.run(desk.moves.cancel("job", "cancelled"))
    desk.run(move(desk.moves, token))
    assert notes(desk) == ([] if verb in ("fail", "cancel") else ["job"])


def test_a_holder_that_has_told_nobody_has_them_told(desk: Desk) -> None:
    """J4: the run stopped because it was asked to."""
    assert desk.run(desk.moves.cancel("job", "cancelled", desk.running(), tell=True)) == "cancelled"
    assert notes(desk) == ["job"]


def test_a_flagged_run_that_returns_all_the_same_completes(desk: Desk) -> None:
    """J4: its effect is there."""
    token = desk.running()
    desk.run(desk.moves.cancel("job", "cancelled"))
    assert desk.run(desk.moves.complete("job", token)) == "ok"
    assert desk.state() == "completed"


def test_a_flagged_job_whose_lease_runs_out_is_cancelled_and_told(desk: Desk) -> None:
    """J4: a restart of the worker does not forget it."""
    desk.running()
    desk.run(desk.moves.cancel("job", "revoked"))
    desk.lease_runs_out("job")
    assert [row.outcome for row in desk.reap()] == ["cancelled"]
    assert (desk.state(), desk.record()["cause"], notes(desk)) == ("cancelled", "revoked", ["job"])


def test_its_holder_cancels_a_job_at_once(desk: Desk) -> None:
    """`revoke`: reserved or begun."""
    desk.add_all("begun", "reserved")
    begun, reserved = desk.claim(2, begin=1).jobs
    assert desk.run(desk.moves.cancel("begun", "revoked", begun.token)) == "cancelled"
    assert desk.run(desk.moves.cancel("reserved", "revoked", reserved.token)) == "cancelled"
    assert (desk.listed("active"), desk.listed("reserved"), desk.listed("cancelled")) == ([], [], ["begun", "reserved"])
    assert ([run["cause"] for run in desk.runs("begun")], desk.runs("reserved")) == (["revoked"], [])


def test_expired_after_the_claim_counts_as_an_attempt(desk: Desk) -> None:
    """SPEC 1: a job that expires has made one, if without a run."""
    desk.add()
    token = desk.reserve()
    assert desk.run(desk.moves.cancel("job", "expired", token)) == "cancelled"
    assert (desk.counters(), desk.record()["cause"]) == ((1, 0, 0), "expired")


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_what_has_ended_stays_as_it_ended(desk: Desk, state: str) -> None:
    token = desk.running()
    end = {"completed": desk.moves.complete("job", token), "failed": desk.moves.fail("job", token, "exhausted", "no"),
           "cancelled": desk.moves.cancel("job", "revoked", token)}[state]  # fmt: skip
    desk.run(end)
    trace = desk.trace()
    assert desk.run(desk.moves.cancel("job", "cancelled")) == state
    assert desk.trace() == trace


def test_nothing_to_cancel(desk: Desk) -> None:
    assert desk.run(desk.moves.cancel("job", "cancelled")) == "gone"


# -- expire -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [AT_ONCE, LATER])
def test_the_janitor_expires_what_nobody_claims(desk: Desk, when: Any) -> None:
    desk.add(when=when, expires_at_ms=desk.now_ms() - 1)
    assert desk.run(desk.moves.expire("job")) == "expired"
    assert (desk.state(), desk.places(), desk.counters()) == ("cancelled", ["cancelled"], (1, 0, 0))
    assert (desk.record()["cause"], notes(desk)) == ("expired", ["job"])


def test_only_what_is_past_and_held_by_nobody_expires(desk: Desk) -> None:
    assert desk.run(desk.moves.expire("job")) == "gone"
    desk.add()
    assert desk.run(desk.moves.expire("job")) == "not due"
    desk.add("later", expires_at_ms=desk.now_ms() + HOUR_MS)
    assert desk.run(desk.moves.expire("later")) == "not due"
    token = desk.begin()
    assert desk.run(desk.moves.expire("job")) == "active"
    desk.run(desk.moves.complete("job", token))
    assert desk.run(desk.moves.expire("job")) == "completed"


def test_a_reserved_job_is_its_holders_to_expire(desk: Desk) -> None:
    desk.add(expires_at_ms=desk.now_ms() + HOUR_MS)
    desk.reserve()
    desk.client.hset(desk.keys.job("job"), "expires_at", 1)
    assert desk.run(desk.moves.expire("job")) == "not due"


# -- remove -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "delayed", "completed", "failed", "cancelled", "replaced"])
def test_remove_takes_any_job_but_a_running_one(desk: Desk, state: str) -> None:
    if state == "replaced":
        desk.replaced()
    elif state in {"completed", "failed"}:
        token = desk.running()
        end = desk.moves.complete if state == "completed" else lambda *a: desk.moves.fail(*a, "exhausted", "no")
        desk.run(end("job", token))
    else:
        desk.add(when=LATER if state == "delayed" else AT_ONCE)
    if state == "cancelled":
        desk.run(desk.moves.cancel("job", "cancelled"))
    assert desk.run(desk.moves.remove("job")) == "ok"
    assert (desk.record(), desk.places(), desk.runs(), notes(desk)) == ({}, [], [], [])
    assert "removed" in desk.trace().split()
    assert desk.run(desk.moves.remove("job")) == "gone"
    assert desk.add().outcome == "added"


def test_a_running_or_reserved_job_is_not_removed(desk: Desk) -> None:
    desk.add_all("begun", "reserved")
    desk.claim(2, begin=1)
    assert desk.run(desk.moves.remove("begun")) == "active"
    assert desk.run(desk.moves.remove("reserved")) == "active"


# -- trim -------------------------------------------------------------------------------------------------------------


def ended(desk: Desk, *job_ids: str) -> None:
    for job_id in job_ids:
        desk.run(desk.moves.complete(job_id, desk.running(job_id)))


def test_trim_keeps_the_newest(desk: Desk) -> None:
    ended(desk, "a", "b", "c", "d")
    assert desk.run(desk.moves.trim(desk.queue, "completed", 2, HOUR_MS, 60_000)) == 2
    assert desk.listed("completed") == ["c", "d"]
    assert desk.run(desk.moves.trim(desk.queue, "completed", 2, HOUR_MS, 60_000)) == 0


def test_trim_by_age_goes_below_the_number_to_keep(desk: Desk) -> None:
    ended(desk, "old", "new")
    desk.client.zadd(desk.key("completed"), {"old": 5})
    assert desk.run(desk.moves.trim(desk.queue, "completed", 10, HOUR_MS, 60_000)) == 1
    assert desk.listed("completed") == ["new"]


def test_trim_takes_the_history_and_works_in_batches(desk: Desk) -> None:
    for number in range(5):
        desk.run(desk.moves.fail(f"j{number}", desk.running(f"j{number}"), "exhausted", "no"))
    gone = [desk.run(desk.moves.trim(desk.queue, "failed", 0, HOUR_MS, 60_000, batch=2)) for _ in range(4)]
    assert gone == [2, 2, 1, 0]
    assert desk.client.keys("*:runs") == []


def test_the_id_of_a_trimmed_record_stays_known_for_a_while(desk: Desk) -> None:
    """SPEC 2: a late duplicate of it is still seen; then Redis forgets it by itself."""
    ended(desk, "job")
    desk.run(desk.moves.trim(desk.queue, "completed", 0, 0, 60_000))
    assert desk.add() == Added("duplicated", "completed")
    assert 50_000 < desk.client.pttl(desk.keys.job("job")) <= 60_000
    assert desk.run(desk.moves.cancel("job", "cancelled")) == "completed"
    assert desk.run(desk.moves.promote("job")) == "completed"
    assert desk.run(desk.moves.expire("job")) == "completed"
    assert desk.run(desk.moves.renew([("job", "w1.1.0")])) == ["lost"]
    assert 50_000 < desk.client.pttl(desk.keys.job("job")) <= 60_000


def test_a_record_whose_callers_have_not_been_told_stays(desk: Desk) -> None:
    """K15: trimmed first, the message that names them would be gone, and they would wait for ever."""
    desk.run(desk.moves.fail("told", desk.running("told"), "exhausted", "no"))
    desk.run(desk.moves.fail("untold", desk.running("untold"), "exhausted", "no", tell=True))
    assert desk.run(desk.moves.trim(desk.queue, "failed", 0, HOUR_MS, 60_000)) == 1
    assert desk.listed("failed") == ["untold"]
    desk.client.zrem(desk.keys.notes, "untold")
    assert desk.run(desk.moves.trim(desk.queue, "failed", 0, HOUR_MS, 60_000)) == 1
