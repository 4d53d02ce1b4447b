"""The wake mark: whenever a job could be taken, either a mark lies there or a claimer that has room is about to come back.

Without it a job could wait until somebody looks by chance, while workers sit idle.
"""

from __future__ import annotations

from queue_kit.store import When
from tests.store.desk import LATER, Desk


def test_a_new_job_leaves_one_mark_however_many_there_are(desk: Desk) -> None:
    desk.add_all("a", "b", "c")
    assert desk.marks() == 1


def test_a_full_claimer_wakes_the_next_worker(desk: Desk) -> None:
    desk.add_all("a", "b")
    desk.take_mark()
    assert desk.claimed(1) == ["a"]
    assert desk.marks() == 1


def test_a_claimer_with_room_wakes_nobody(desk: Desk) -> None:
    """It comes back by itself; the mark of what it took is taken along."""
    desk.add_all("a", "b")
    assert desk.claimed(3) == ["a", "b"]
    assert desk.marks() == 0


def test_a_promoted_job_that_the_promoter_takes_wakes_nobody_else(desk: Desk) -> None:
    desk.add(when=LATER)
    desk.take_mark()
    desk.comes_due("job")
    assert desk.claimed(2) == ["job"]
    assert desk.marks() == 0


def test_a_mark_taken_for_one_queue_is_not_lost_when_another_fills_the_claim(desk: Desk) -> None:
    """Given a worker woken for the second of its queues, a job of the first that came between fills it: the second's job
    still wakes somebody."""
    desk.add("second", queue="q2")
    assert desk.take_mark("q2")
    desk.add("first", queue="q1")
    assert desk.claimed(1, queues=["q1", "q2"]) == ["first"]
    assert desk.marks("q2") == 1


def test_a_full_claimer_hands_on_the_watch_over_what_is_due_soon(desk: Desk) -> None:
    """Given one worker woken for a delayed job, which then is busy when the job comes due: another one knows."""
    desk.add("soon", when=When(delay_ms=500))
    assert desk.take_mark()
    assert 0 < (desk.claim(1).wait_ms or 0) <= 500
    desk.add("long")
    desk.take_mark()
    assert desk.claimed(1) == ["long"]
    assert desk.marks() == 1


def test_what_is_due_much_later_wakes_nobody(desk: Desk) -> None:
    """An idle worker looks again long before."""
    desk.add("far", when=LATER)
    desk.add("now")
    desk.take_mark()
    assert desk.claimed(1) == ["now"]
    assert desk.marks() == 0


def test_a_new_first_in_the_delayed_list_wakes_a_worker_and_a_later_one_does_not(desk: Desk) -> None:
    desk.add("far", when=LATER)
    assert desk.take_mark()
    desk.add("farther", when=When(delay_ms=LATER.delay_ms + 1_000))
    assert desk.marks() == 0
    desk.add("near", when=When(delay_ms=60_000))
    assert desk.marks() == 1


def test_a_claim_without_room_only_passes_the_mark_on(desk: Desk) -> None:
    desk.add_all("a", "b")
    desk.take_mark()
    assert desk.claimed(0) == []
    assert desk.marks() == 1


def test_a_suspect_left_behind_wakes_another_worker(desk: Desk) -> None:
    """B15: one that may still take it."""
    desk.stalled("s")
    desk.add("sound")
    desk.take_mark()
    assert desk.claimed(5, suspects=0) == ["sound"]
    assert desk.marks() == 1


def test_workers_that_may_not_take_a_job_do_not_wake_each_other_for_ever(desk: Desk) -> None:
    desk.stalled("s")
    desk.take_mark()
    assert desk.claimed(5, suspects=0) == []
    assert desk.marks() == 0


def test_an_untouched_mark_stays_when_its_job_could_not_be_taken(desk: Desk) -> None:
    """A worker that claims by itself, without having been woken, leaves the mark to one that may take the job."""
    desk.stalled("s")
    assert desk.claimed(5, suspects=0) == []
    assert desk.marks() == 1


def test_a_slot_that_comes_free_in_a_limited_queue_wakes_a_worker(desk: Desk) -> None:
    """D2, D3: the workers that the limit kept away have gone to sleep."""
    desk.rules(concurrency=1)
    desk.add_all("a", "b")
    token = desk.begin("a")
    while desk.take_mark():
        pass
    assert desk.claimed(worker="w2") == []
    assert desk.marks() == 0
    desk.run(desk.moves.complete("a", token))
    assert desk.marks() == 1


def test_a_slot_given_up_by_a_cancelled_or_reserved_job_wakes_a_worker(desk: Desk) -> None:
    desk.rules(concurrency=1)
    desk.add_all("a", "b", name="slow")
    token = desk.begin("a", reserve={"slow"})
    desk.claimed(worker="w2")
    while desk.take_mark():
        pass
    desk.run(desk.moves.cancel("a", "cancelled"))
    assert desk.marks() == 1
    assert desk.run(desk.moves.begin("a", token, once=False)) == ("cancelled", 0)
    assert desk.claimed(worker="w2") == ["b"]


def test_a_full_worker_wakes_nobody_for_a_closed_queue(desk: Desk) -> None:
    """D6: a paused queue with jobs would otherwise cost a trip of an idle worker at each claim."""
    desk.rules(queue="shut", paused=1)
    desk.add("shut-in", queue="shut")
    desk.take_mark("shut")
    desk.add("open")
    assert desk.claimed(1, queues=[desk.queue, "shut"]) == ["open"]
    assert desk.marks("shut") == 0


def test_a_full_worker_hands_on_the_watch_over_a_held_queue(desk: Desk) -> None:
    """D5: somebody has to know when it opens again."""
    desk.rules(held_until=desk.now_ms() + 300)
    desk.add("held")
    desk.take_mark()
    desk.add("open", queue="open")
    assert desk.claimed(1, queues=["open", desk.queue]) == ["open"]
    assert desk.marks() == 1


def test_every_way_back_into_waiting_leaves_a_mark(desk: Desk) -> None:
    """Retry, release, stall, reap, promote."""
    ways = {
        "retry": lambda token: desk.moves.retry("job", token, When()),
        "release": lambda token: desk.moves.release("job", token),
        "stall": lambda token: desk.moves.stall("job", token),
    }
    for verb, way in ways.items():
        token = desk.running()
        desk.take_mark()
        desk.run(way(token))
        assert desk.marks() == 1, verb
        desk.run(desk.moves.remove("job"))
    desk.running()
    desk.take_mark()
    desk.lease_runs_out("job")
    desk.reap()
    assert desk.marks() == 1
