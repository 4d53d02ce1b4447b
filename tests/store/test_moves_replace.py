"""A run that replaces itself by a canvas: its id lives on until the canvas adds it again, and stays one job."""

from __future__ import annotations

import pytest

from queue_kit.store import AT_ONCE
from queue_kit.store.moves import Added, Settled
from tests.store.desk import HOUR_MS, LATER, Desk


def tail(desk: Desk, nesting: int = 1, **options: object) -> Added:
    """The canvas adds the id of the job again."""
    return desk.add("job", nesting=nesting, body=f"tail {nesting}", **options)


def test_a_replaced_job_is_in_no_list_and_nobody_can_take_it(desk: Desk) -> None:
    """SPEC 3: shown as waiting, without a lease, not counted for `drained`."""
    desk.replaced()
    assert (desk.state(), desk.places(), desk.counters()) == ("waiting", [], (0, 1, 0))
    assert desk.claimed() == []
    assert desk.kinds() == ["added", "waiting", "active", "drained"]
    assert [run["cause"] for run in desk.runs()] == ["replaced"]


def test_the_canvas_continues_it_with_its_counters(desk: Desk) -> None:
    """A13: the final part runs under the id, as the same job."""
    desk.add()
    desk.run(desk.moves.retry("job", desk.begin(), AT_ONCE))
    desk.run(desk.moves.replace("job", desk.begin()))
    assert tail(desk) == Added("continued", "waiting")
    (job,) = desk.claim().jobs
    assert (job.message, job.attempts_made, job.attempts_started) == ("tail 1", 1, 3)
    assert desk.trace().split().count("added") == 1
    assert desk.run(desk.moves.complete("job", job.token)) == "ok"


def test_the_canvas_may_be_quicker_than_the_mark(desk: Desk) -> None:
    """Given a canvas whose last step is added before the replaced run has been settled: the settle finds it moved."""
    token = desk.running()
    assert tail(desk) == Added("continued", "waiting")
    assert desk.places() == ["wait"]
    assert desk.run(desk.moves.replace("job", token)) == "moved"
    assert desk.run(desk.moves.renew([("job", token)])) == ["moved"]
    (job,) = desk.claim().jobs
    assert job.message == "tail 1"


def test_the_canvas_may_end_while_the_job_waits_for_a_rerun(desk: Desk) -> None:
    """Given a run killed after it sent its canvas and before it was settled: the canvas ends first, and nothing runs twice."""
    desk.stalled()
    assert tail(desk) == Added("continued", "waiting")
    (job,) = desk.claim().jobs
    assert (job.message, job.stalled_count) == ("tail 1", 1)
    desk.run(desk.moves.complete("job", job.token))
    assert (desk.places(), desk.claimed()) == (["completed"], [])


def test_the_canvas_may_end_while_the_rerun_runs(desk: Desk) -> None:
    """The rerun is told that the job has moved on; what its own copy of the canvas adds is a duplicate."""
    desk.stalled()
    rerun = desk.begin()
    assert tail(desk).outcome == "continued"
    assert desk.run(desk.moves.replace("job", rerun)) == "moved"
    assert tail(desk) == Added("duplicated", "waiting")


def test_the_canvas_may_end_while_the_job_is_reserved(desk: Desk) -> None:
    desk.stalled()
    reserved = desk.reserve()
    assert tail(desk).outcome == "continued"
    assert desk.places() == ["wait"]
    assert desk.run(desk.moves.begin("job", reserved, once=False)) == ("moved", 0)


def test_the_canvas_may_end_while_the_job_is_delayed(desk: Desk) -> None:
    """A rerun that snoozed."""
    desk.stalled()
    desk.run(desk.moves.release("job", desk.begin(), delay_ms=HOUR_MS))
    assert tail(desk).outcome == "continued"
    assert desk.places() == ["wait"]


def test_a_job_may_replace_itself_again_and_again(desk: Desk) -> None:
    """A13: each time one level deeper; an old part that comes late is a duplicate."""
    desk.replaced()
    for nesting in (1, 2, 3):
        assert tail(desk, nesting).outcome == "continued"
        assert tail(desk, nesting).outcome == "duplicated"
        token = desk.begin()
        assert desk.run(desk.moves.replace("job", token)) == "ok"
        assert tail(desk, nesting).outcome == "duplicated"
    assert desk.counters() == (0, 4, 0)


def test_its_first_message_sent_again_is_a_duplicate(desk: Desk) -> None:
    """E9: nesting 0, as when it was added."""
    desk.replaced()
    assert desk.add("job") == Added("duplicated", "waiting")
    assert desk.places() == []


def test_the_canvas_may_go_on_in_another_queue_later(desk: Desk) -> None:
    """The old queue, where the replaced run still had a slot, is drained."""
    token = desk.running()
    assert tail(desk, queue="other", when=LATER) == Added("continued", "delayed")
    assert (desk.places("job", desk.queue), desk.places("job", "other")) == ([], ["delayed"])
    assert desk.kinds() == ["added", "waiting", "active", "drained"]
    assert desk.run(desk.moves.replace("job", token)) == "moved"


def test_the_last_part_of_a_canvas_does_not_inherit_expires(desk: Desk) -> None:
    """The job began in time; that its end comes later is no reason to drop it."""
    desk.add(expires_at_ms=desk.now_ms() + HOUR_MS)
    desk.run(desk.moves.replace("job", desk.begin()))
    desk.client.hset(desk.keys.job("job"), "expires_at", 1)
    tail(desk)
    assert desk.claimed() == ["job"]


def test_a_step_that_fails_for_good_fails_the_replaced_job(desk: Desk) -> None:
    """SPEC 3: whoever knows of it says so under the token `replaced`, once."""
    desk.replaced()
    call = desk.moves.fail("job", "replaced", "exhausted", "a step of its canvas failed", tell=True)
    assert desk.run(call) == Settled("ok", "")
    assert (desk.state(), desk.places(), desk.counters()) == ("failed", ["failed"], (1, 1, 0))
    assert desk.run(call) == Settled("moved", "")
    assert tail(desk) == Added("duplicated", "failed")


def test_a_step_that_fails_after_the_canvas_went_on_fails_nothing(desk: Desk) -> None:
    desk.replaced()
    tail(desk)
    assert desk.run(desk.moves.fail("job", "replaced", "exhausted", "late")).outcome == "moved"
    assert desk.state() == "waiting"


def step_fails(desk: Desk, nesting: int = 1) -> str:
    """A step of the canvas of this nesting has failed for good."""
    call = desk.moves.fail("job", "replaced", "exhausted", "a step failed", error_class="ValueError", nesting=nesting)
    return desk.run(call).outcome


def test_a_step_may_fail_before_the_mark(desk: Desk) -> None:
    """SPEC 3: given a canvas whose first step fails at once, before the run that sent it has been settled: the job does not
    stay replaced for ever, by a canvas that will never come back to it."""
    token = desk.running()
    assert step_fails(desk) == "later"
    assert (desk.state(), desk.trace()) == ("active", "added waiting active")
    assert desk.run(desk.moves.replace("job", token)) == "failed"
    assert (desk.state(), desk.places(), desk.counters()) == ("failed", ["failed"], (1, 1, 0))
    assert desk.trace() == "added waiting active failed dead-lettered"
    record = desk.record()
    assert (record["cause"], record["reason"], record["error_class"]) == ("exhausted", "a step failed", "ValueError")
    assert desk.client.zrange(desk.keys.notes, 0, -1) == ["job"]
    assert step_fails(desk) == "lost"


def test_a_step_of_the_second_canvas_may_fail_before_the_mark(desk: Desk) -> None:
    desk.replaced()
    tail(desk)
    token = desk.begin()
    assert step_fails(desk, nesting=2) == "later"
    assert desk.run(desk.moves.replace("job", token)) == "failed"


def test_a_step_may_fail_while_the_job_waits_for_a_rerun(desk: Desk) -> None:
    """Given a run killed after it sent its canvas: the rerun sends the same canvas, whose steps are there already and will
    not run again."""
    desk.stalled()
    assert step_fails(desk) == "later"
    assert desk.run(desk.moves.replace("job", desk.begin())) == "failed"


def test_a_rerun_that_returns_after_all_completes(desk: Desk) -> None:
    desk.stalled()
    assert step_fails(desk) == "later"
    assert desk.run(desk.moves.complete("job", desk.begin())) == "ok"


def test_a_step_that_failed_long_ago_does_not_count_against_the_next_canvas(desk: Desk) -> None:
    """A canvas that came back to the job has not failed; neither has one that the rerun did not send."""
    token = desk.running()
    step_fails(desk)
    tail(desk)
    assert desk.run(desk.moves.replace("job", token)) == "moved"
    assert step_fails(desk) in ("lost", "moved")
    token = desk.begin()
    assert step_fails(desk, nesting=2) == "later"
    desk.run(desk.moves.retry("job", token, AT_ONCE, message=desk.message(nesting=2), counted=False))
    assert desk.run(desk.moves.replace("job", desk.begin())) == "ok"


def test_a_step_of_the_canvas_before_fails_nothing(desk: Desk) -> None:
    """Given a step that stalled after it had sent the last one: its rerun fails when the job has long replaced itself again."""
    desk.replaced()
    tail(desk)
    desk.run(desk.moves.replace("job", desk.begin()))
    assert step_fails(desk, nesting=1) == "moved"
    assert desk.state() == "waiting"
    assert step_fails(desk, nesting=2) == "ok"


def test_a_step_of_an_ordinary_chain_that_fails_in_a_rerun_leaves_the_next_step_alone(desk: Desk) -> None:
    """Given a step that stalled after it had sent the next one: its rerun fails, and the next step is not the canvas's job."""
    token = desk.running()
    assert step_fails(desk, nesting=0) == "lost"
    assert desk.run(desk.moves.replace("job", token)) == "ok"


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_a_step_that_fails_after_the_job_has_ended_changes_nothing(desk: Desk, end: str) -> None:
    token = desk.running()
    desk.run({"completed": desk.moves.complete("job", token), "failed": desk.moves.fail("job", token, "exhausted", "no"),
              "cancelled": desk.moves.cancel("job", "revoked", token)}[end])  # fmt: skip
    record = desk.record()
    assert step_fails(desk) == "lost"
    assert desk.record() == record


def test_a_replaced_job_can_be_cancelled_and_does_not_come_back(desk: Desk) -> None:
    """J4: what the canvas still adds under the id is a duplicate."""
    desk.replaced()
    assert desk.run(desk.moves.cancel("job", "cancelled")) == "cancelled"
    assert tail(desk) == Added("duplicated", "cancelled")
    assert (desk.places(), desk.claimed()) == (["cancelled"], [])


@pytest.mark.parametrize("mark_first", [True, False])
def test_a_flagged_run_that_replaces_itself_ends_cancelled(desk: Desk, mark_first: bool) -> None:
    """J4: whichever comes first, the mark or the end of the canvas; callers are told; the other changes nothing."""
    token = desk.running()
    desk.run(desk.moves.cancel("job", "revoked"))
    if mark_first:
        assert desk.run(desk.moves.replace("job", token)) == "cancelled"
        assert tail(desk) == Added("duplicated", "cancelled")
    else:
        assert tail(desk) == Added("duplicated", "cancelled")
        assert desk.run(desk.moves.replace("job", token)) == "moved"
    assert (desk.state(), desk.places(), desk.record()["cause"]) == ("cancelled", ["cancelled"], "revoked")
    assert desk.client.zrange(desk.keys.notes, 0, -1) == ["job"]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_a_canvas_that_ends_after_the_job_has_ended_is_a_duplicate(desk: Desk, end: str) -> None:
    """A stalled rerun may have ended the job meanwhile, e.g. by failing for good."""
    token = desk.running()
    desk.run({"completed": desk.moves.complete("job", token), "failed": desk.moves.fail("job", token, "exhausted", "no"),
              "cancelled": desk.moves.cancel("job", "revoked", token)}[end])  # fmt: skip
    assert tail(desk) == Added("duplicated", end)
