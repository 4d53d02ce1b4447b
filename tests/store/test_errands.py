"""What workers ask beside the moves: whether a token still holds, what a lost answer took, who is still to be told."""

from __future__ import annotations

import pytest

from queue_kit.store.census import Census
from queue_kit.store.errands import Note
from tests.store.desk import LATER, Desk

# -- check ------------------------------------------------------------------------------------------------------------


def test_a_token_that_holds_its_job(desk: Desk) -> None:
    """K17: a run that has lasted nearly its lease asks before it stores or sends anything."""
    token = desk.running()
    assert desk.run(desk.moves.check("job", token)) == "ok"
    desk.lease_runs_out("job", ago_ms=60_000)
    assert desk.run(desk.moves.check("job", token)) == "ok"
    desk.reap()
    assert desk.run(desk.moves.check("job", token)) == "lost"
    assert desk.run(desk.moves.check("never", token)) == "gone"


def test_a_token_whose_job_has_moved_on(desk: Desk) -> None:
    token = desk.running()
    desk.run(desk.moves.retry("job", token, LATER))
    assert desk.run(desk.moves.check("job", token)) == "moved"


def test_a_run_that_asks_hears_that_it_should_stop(desk: Desk) -> None:
    """J4: also before its worker has heard so."""
    token = desk.running()
    desk.run(desk.moves.cancel("job", "cancelled"))
    assert desk.run(desk.moves.check("job", token)) == "cancel:cancelled"


# -- recall -----------------------------------------------------------------------------------------------------------


def recall(desk: Desk, token: str) -> int:
    """Recall the claim that this token came from."""
    return len(desk.run(desk.moves.recall(token.rsplit(".", 1)[0], [desk.queue])))


def test_what_a_lost_answer_took_goes_back(desk: Desk) -> None:
    """K8, H2: given a claim whose answer was lost with its connection: nothing waits for a lease to run out, and no stall
    is counted."""
    desk.add_all("a", "b")
    first, second = desk.claim(2, begin=1).jobs
    assert recall(desk, first.token) == 2
    assert (sorted(desk.listed("wait")), desk.listed("active"), desk.listed("reserved")) == (["a", "b"], [], [])
    assert [desk.counters(job_id) for job_id in ("a", "b")] == [(0, 1, 0), (0, 0, 0)]
    assert (desk.trace("a"), desk.trace("b")) == ("added waiting active waiting", "added waiting")
    assert desk.run(desk.moves.complete("a", first.token)) == "moved"
    assert desk.run(desk.moves.begin("b", second.token, once=False)) == ("moved", 0)


def test_only_the_jobs_of_that_claim_go_back(desk: Desk) -> None:
    """A base that begins like another's is another's."""
    desk.add_all(*(f"j{number}" for number in range(12)))
    tokens = [desk.begin(f"j{number}") for number in range(12)]  # bases w1.1 to w1.12
    assert recall(desk, tokens[0]) == 1
    assert len(desk.listed("active")) == 11
    assert recall(desk, tokens[0]) == 0


def test_a_recalled_job_that_was_cancelled_meanwhile_does_not_run(desk: Desk) -> None:
    """J4: flagged while nobody knew that it was taken."""
    token = desk.running()
    desk.run(desk.moves.cancel("job", "revoked"))
    assert recall(desk, token) == 1
    assert (desk.state(), desk.places(), desk.claimed()) == ("cancelled", ["cancelled"], [])
    assert desk.client.zrange(desk.keys.notes, 0, -1) == ["job"]


def test_a_claim_that_took_nothing_has_nothing_to_recall(desk: Desk) -> None:
    assert recall(desk, "w1.1.0") == 0


def test_a_claim_that_arrives_after_its_recall_takes_nothing(desk: Desk) -> None:
    """H2: given a claim that a cut network held up; its worker has long gone on by another connection. Without the mark its
    jobs would be leased to nobody, and stall."""
    desk.add()
    assert recall(desk, "w1.1.0") == 0
    assert desk.claim(1).jobs == []
    assert [job.id for job in desk.claim(1).jobs] == ["job"]


# -- nudge ------------------------------------------------------------------------------------------------------------


def test_a_nudge_wakes_a_worker_if_somebody_waits(desk: Desk) -> None:
    assert desk.run(desk.moves.nudge(desk.queue)) == 0
    assert desk.marks() == 0
    desk.add()
    desk.take_mark()
    assert desk.run(desk.moves.nudge(desk.queue)) == 1
    assert desk.marks() == 1


# -- notes ------------------------------------------------------------------------------------------------------------


def untold(desk: Desk, *job_ids: str) -> None:
    for job_id in job_ids:
        token = desk.running(job_id, body=f"message of {job_id}")
        desk.run(desk.moves.fail(job_id, token, "unknown_task", "no such task", tell=True))


def test_a_note_says_what_is_needed_to_tell_the_callers(desk: Desk) -> None:
    """K15: the message names them."""
    untold(desk, "job")
    assert desk.run(desk.moves.notes()) == [Note("job", "failed", "unknown_task", "no such task", "message of job")]


def test_a_note_that_is_taken_is_nobody_elses_for_a_while(desk: Desk) -> None:
    untold(desk, "a", "b", "c")
    taken = [[note.id for note in desk.run(desk.moves.notes(most=2))] for _ in range(3)]
    assert [len(ids) for ids in taken] == [2, 1, 0]
    assert {job_id for ids in taken for job_id in ids} == {"a", "b", "c"}


def test_a_note_that_is_acted_on_is_struck_out(desk: Desk) -> None:
    untold(desk, "job")
    desk.run(desk.moves.notes())
    assert desk.run(desk.moves.strike("job")) == 1
    assert desk.run(desk.moves.strike("job")) == 0
    assert desk.client.exists(desk.keys.notes) == 0


def test_a_note_whose_teller_died_comes_up_again(desk: Desk) -> None:
    untold(desk, "job")
    assert len(desk.run(desk.moves.notes(again_ms=-1))) == 1
    assert len(desk.run(desk.moves.notes())) == 1


def test_a_teller_that_lost_its_answers_gets_its_own_notes_again(desk: Desk) -> None:
    untold(desk, "mine", "others")
    (mine,) = desk.run(desk.moves.notes(7, most=1))
    (others,) = desk.run(desk.moves.notes(8, most=1))
    assert desk.run(desk.moves.notes(7)) == []
    assert desk.run(desk.moves.notes(7, lost=True)) == [mine]
    assert desk.run(desk.moves.notes(8, lost=True)) == [others]


def test_a_note_that_is_put_off_comes_up_then_and_for_anybody(desk: Desk) -> None:
    untold(desk, "job")
    desk.run(desk.moves.notes(7))
    assert desk.run(desk.moves.put_off("job", 60_000)) == 1
    assert desk.run(desk.moves.notes(7, lost=True)) == []
    desk.run(desk.moves.put_off("job", -1))
    assert [note.id for note in desk.run(desk.moves.notes(8))] == ["job"]
    desk.run(desk.moves.strike("job"))
    assert desk.run(desk.moves.put_off("job", 0)) == 0


def test_a_note_about_a_job_that_is_gone_says_so(desk: Desk) -> None:
    """FLUSHALL of the records alone, an operator's DEL: there is nobody left to tell."""
    untold(desk, "job")
    desk.client.delete(desk.keys.job("job"))
    assert desk.run(desk.moves.notes()) == [Note("job", "", "", "", "")]
    desk.client.delete(desk.key("failed"), desk.keys.runs("job"))


# -- progress and log -------------------------------------------------------------------------------------------------


def test_a_run_says_how_far_it_has_come(desk: Desk) -> None:
    """SPEC 2: the event `progress`; the last value stays with the job."""
    token = desk.running()
    for value in ("10", '{"pages": []}'):
        assert desk.run(desk.moves.progress("job", token, value)) == "ok"
    assert desk.record()["progress"] == '{"pages": []}'
    assert desk.trace() == "added waiting active progress progress"


def test_a_log_keeps_its_last_thousand_lines(desk: Desk) -> None:
    token = desk.running()
    for number in range(1_003):
        desk.run(desk.moves.log("job", token, f"line {number}"))
    lines = Census(desk.client, desk.keys).log("job")
    assert [lines[0].line, lines[-1].line, len(lines)] == ["line 3", "line 1002", 1_000]
    assert (lines[0].attempt, lines[0].at_ms <= desk.now_ms()) == (1, True)


@pytest.mark.parametrize("goes", ["removed", "trimmed"])
def test_a_log_goes_with_its_job(desk: Desk, goes: str) -> None:
    token = desk.running()
    desk.run(desk.moves.log("job", token, "half a pair \ud800 of what is no text"))
    desk.run(desk.moves.complete("job", token))
    if goes == "removed":
        desk.run(desk.moves.remove("job"))
    else:
        desk.run(desk.moves.trim(desk.queue, "completed", 0, 0, 60_000))
    assert Census(desk.client, desk.keys).log("job") == []
