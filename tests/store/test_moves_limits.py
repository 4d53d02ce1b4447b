"""pause, limit, postpone: what an operator asks of a queue or a delayed job, and that workers hear of it."""

from __future__ import annotations

from tests.store.desk import HOUR_MS, LATER, Desk


def pause(desk: Desk, paused: bool = True) -> int:
    return desk.run(desk.moves.pause(desk.queue, paused))


def test_a_queue_is_paused_until_it_is_resumed(desk: Desk) -> None:
    """D6: none runs before, all after; said once each."""
    assert (pause(desk), pause(desk)) == (1, 0)
    desk.add_all("a", "b")
    assert desk.claimed() == []
    assert (pause(desk, False), pause(desk, False)) == (1, 0)
    assert desk.claimed() == ["a", "b"]
    assert [kind for kind in desk.kinds() if kind in ("paused", "resumed")] == ["paused", "resumed"]


def test_resuming_wakes_a_worker_if_somebody_waits(desk: Desk) -> None:
    pause(desk)
    pause(desk, False)
    assert desk.marks() == 0
    pause(desk)
    desk.add()
    desk.take_mark()
    assert desk.claimed() == []
    pause(desk, False)
    assert desk.marks() == 1


def test_what_runs_goes_on_in_a_paused_queue(desk: Desk) -> None:
    token = desk.running()
    pause(desk)
    assert desk.run(desk.moves.renew([("job", token)])) == ["ok"]
    assert desk.run(desk.moves.complete("job", token)) == "ok"


def test_a_limit_is_set_and_lifted_and_what_is_not_named_stays(desk: Desk) -> None:
    """D2, D4."""
    desk.add_all("a", "b", "c")
    desk.run(desk.moves.limit(desk.queue, concurrency=2, rate_max=1, rate_ms=60_000))
    assert desk.claimed() == ["a"]
    desk.run(desk.moves.limit(desk.queue, rate_max=None, rate_ms=None))
    assert desk.claimed() == ["b"]
    assert desk.claimed() == []
    desk.take_mark()
    desk.run(desk.moves.limit(desk.queue, concurrency=None))
    assert desk.marks() == 1
    assert desk.claimed() == ["c"]


def test_a_new_rate_begins_a_new_window(desk: Desk) -> None:
    """D4: what the old one had counted does not hold the new one up."""
    desk.add_all("a", "b")
    desk.run(desk.moves.limit(desk.queue, rate_max=1, rate_ms=HOUR_MS))
    assert desk.claimed() == ["a"]
    desk.run(desk.moves.limit(desk.queue, rate_max=5, rate_ms=1_000))
    assert desk.claimed() == ["b"]
    assert 0 < desk.client.pttl(desk.key("rate")) <= 1_000


def test_a_hold_off_ends_by_itself_or_by_hand(desk: Desk) -> None:
    """D5."""
    desk.add()
    desk.run(desk.moves.limit(desk.queue, hold_ms=60_000))
    assert 55_000 < (desk.claim().wait_ms or 0) <= 60_000
    desk.run(desk.moves.limit(desk.queue, hold_ms=None))
    assert desk.claimed() == ["job"]


def test_postponing_makes_a_delayed_job_due_at_another_time(desk: Desk) -> None:
    """C5: later or earlier, from now; an idle worker hears of an earlier one."""
    desk.add(when=LATER)
    desk.take_mark()
    assert desk.run(desk.moves.postpone("job", 2 * HOUR_MS)) == "ok"
    assert abs(int(desk.record()["due_at"]) - desk.now_ms() - 2 * HOUR_MS) < 5_000
    assert desk.trace() == "added delayed delayed"
    desk.take_mark()
    assert desk.run(desk.moves.postpone("job", 60_000)) == "ok"
    assert desk.marks() == 1
    assert 55_000 < (desk.claim().wait_ms or 0) <= 60_000
    assert desk.places() == ["delayed"]


def test_postponing_by_nothing_lets_it_run(desk: Desk) -> None:
    desk.add(when=LATER)
    assert desk.run(desk.moves.postpone("job", 0)) == "ok"
    assert (desk.places(), desk.trace()) == (["wait"], "added delayed waiting")


def test_any_other_job_cannot_be_postponed(desk: Desk) -> None:
    """C5: a clear answer."""
    assert desk.run(desk.moves.postpone("job", 1)) == "gone"
    desk.add()
    assert desk.run(desk.moves.postpone("job", 1)) == "waiting"
    desk.begin()
    assert desk.run(desk.moves.postpone("job", 1)) == "active"
