"""A Redis whose memory is full, and which evicts nothing: new jobs are refused, and all that is there goes on to its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from queue_kit.states import State
from queue_kit.store import AT_ONCE, Moves, When
from queue_kit.store.census import Census
from queue_kit.store.moves import Unique
from tests.store.desk import LATER, Desk
from tests.store.test_fence import word
from tests.support.fixtures import OwnRedis


def reserved(desk: Desk) -> str:
    desk.add()
    return desk.reserve()


def run_out(desk: Desk) -> str:
    desk.running()
    desk.lease_runs_out("job")
    desk.client.hset("qwk:reap", "last", desk.now_ms())
    return ""


def expired(desk: Desk) -> str:
    desk.add(expires_at_ms=1)
    return ""


def completed(desk: Desk) -> str:
    desk.run(desk.moves.complete("job", desk.running()))
    return ""


def untold(desk: Desk) -> str:
    desk.run(desk.moves.fail("job", desk.running(), "exhausted", "no", tell=True))
    return ""


def waiting(desk: Desk) -> str:
    desk.add()
    return ""


def delayed(desk: Desk) -> str:
    desk.add(when=LATER)
    return ""


def keyed(desk: Desk) -> str:
    desk.run(desk.moves.add("job", desk.message(), unique=Unique("k", "until_finished")))
    return ""


#: Every move but add: what has to be there first (it returns a token, if one is needed), the call, and its answer.
MOVES: dict[str, tuple[Callable[[Desk], str], Callable[[Desk, str], Any], Any]] = {
    "claim": (waiting, lambda desk, _: len(desk.claim().jobs), 1),
    "begin": (reserved, lambda desk, token: desk.run(desk.moves.begin("job", token, once=True)), ("ok", 1)),
    "renew": (Desk.running, lambda desk, token: desk.run(desk.moves.renew([("job", token)])), ["ok"]),
    "complete": (Desk.running, lambda desk, token: desk.run(desk.moves.complete("job", token)), "ok"),
    "retry": (
        Desk.running,
        lambda desk, token: desk.run(desk.moves.retry("job", token, LATER, message=desk.message(body="x" * 10_000))),
        "delayed",
    ),
    "release": (Desk.running, lambda desk, token: desk.run(desk.moves.release("job", token, hold_ms=1)), "waiting"),
    "stall": (Desk.running, lambda desk, token: word(desk.run(desk.moves.stall("job", token))), "waiting"),
    "fail": (Desk.running, lambda desk, token: word(desk.run(desk.moves.fail("job", token, "exhausted", "no"))), "ok"),
    "replace": (Desk.running, lambda desk, token: desk.run(desk.moves.replace("job", token)), "ok"),
    "reap": (run_out, lambda desk, _: [row.outcome for row in desk.run(desk.moves.reap())], ["waiting"]),
    "cancel": (waiting, lambda desk, _: desk.run(desk.moves.cancel("job", "cancelled")), "cancelled"),
    "postpone": (delayed, lambda desk, _: desk.run(desk.moves.postpone("job", 60_000)), "ok"),
    "promote": (delayed, lambda desk, _: desk.run(desk.moves.promote("job")), "ok"),
    "expire": (expired, lambda desk, _: desk.run(desk.moves.expire("job")), "expired"),
    "remove": (waiting, lambda desk, _: desk.run(desk.moves.remove("job")), "ok"),
    "trim": (completed, lambda desk, _: desk.run(desk.moves.trim(desk.queue, "completed", 0, 0, 60_000)), 1),
}
#: Those of them that serve a worker rather than a job.
ERRANDS: dict[str, tuple[Callable[[Desk], str], Callable[[Desk, str], Any], Any]] = {
    "check": (Desk.running, lambda desk, token: desk.run(desk.moves.check("job", token)), "ok"),
    "recall": (Desk.running, lambda desk, token: len(desk.run(desk.moves.recall(token.rsplit(".", 1)[0], [desk.queue]))), 1),
    "pause": (waiting, lambda desk, _: desk.run(desk.moves.pause(desk.queue, True)), 1),
    "free": (keyed, lambda desk, _: desk.run(desk.moves.free(desk.keys.dedup(desk.queue, "work", "k"), "work")), "job"),
    "limit": (waiting, lambda desk, _: desk.run(desk.moves.limit(desk.queue, concurrency=1)), 1),
    "nudge": (waiting, lambda desk, _: desk.run(desk.moves.nudge(desk.queue)), 1),
    "notes": (untold, lambda desk, _: len(desk.run(desk.moves.notes())), 1),
    "put_off": (untold, lambda desk, _: desk.run(desk.moves.put_off("job", 60_000)), 1),
    "progress": (Desk.running, lambda desk, token: desk.run(desk.moves.progress("job", token, "50")), "ok"),
    "log": (Desk.running, lambda desk, token: desk.run(desk.moves.log("job", token, "half of it is done")), "ok"),
    "keep": (Desk.running, lambda desk, token: desk.run(desk.moves.keep("job", token, "71")), "ok"),
    "strike": (untold, lambda desk, _: desk.run(desk.moves.strike("job")), 1),
}


@pytest.fixture
def full(own_redis: OwnRedis, queue_name: str) -> Desk:
    """A desk on a Redis that may be filled."""
    return Desk(own_redis(policy="noeviction").client(), queue_name)


def fill(desk: Desk) -> None:
    """Memory is full from now on, whatever is deleted."""
    desk.client.config_set("maxmemory", 1)


@pytest.mark.parametrize("verb", {**MOVES, **ERRANDS})
def test_what_is_there_goes_on(full: Desk, verb: str) -> None:
    """H6: every move but add works."""
    before, move, answer = {**MOVES, **ERRANDS}[verb]
    token = before(full)
    fill(full)
    assert move(full, token) == answer


def test_people_can_still_look(full: Desk) -> None:
    """H6: what the pages ask for is answered; a transaction of commands would be refused whole."""
    full.running()
    fill(full)
    census = Census(full.client, full.keys)
    assert census.counts(full.queue)[State.ACTIVE] == 1
    assert census.job("job") is not None
    assert [event.kind for event in census.events(full.queue)] == ["added", "waiting", "active"]
    assert (census.queues(), census.workers()) == ([full.queue], [])
    assert [found.id for found in census.jobs(full.queue, State.ACTIVE)] == ["job"]


def test_no_move_is_left_out_here() -> None:
    verbs = {name for name, value in inspect.getmembers(Moves, inspect.isfunction) if not name.startswith("_")}
    assert verbs - {"add", "add_many"} == {*MOVES, *ERRANDS}


@pytest.mark.parametrize("when", [AT_ONCE, When(delay_ms=60_000)])
@pytest.mark.parametrize("events", [10_000, 0])
def test_a_new_job_is_refused_and_nothing_is_half_written(full: Desk, when: When, events: int) -> None:
    """H6: Redis's own error; the same id may be sent again."""
    full.rules(events_max=events)
    fill(full)
    before = sorted(full.client.keys("*"))
    with pytest.raises(OutOfMemoryError):
        full.add(when=when)
    assert sorted(full.client.keys("*")) == before
    full.client.config_set("maxmemory", 0)
    assert full.add(when=when).outcome == "added"


def test_many_are_refused_together(full: Desk) -> None:
    """H6: of one call all are added, or none."""
    fill(full)
    before = sorted(full.client.keys("*"))
    with pytest.raises(OutOfMemoryError):
        full.run(full.moves.add_many([("one", "body"), ("two", "body")], full.message()))
    assert sorted(full.client.keys("*")) == before


def test_an_id_that_is_there_is_still_recognized(full: Desk) -> None:
    """E9: a publish sent again after an unclear answer succeeds, full or not."""
    full.add()
    fill(full)
    assert full.add().outcome == "duplicated"
    assert full.run(full.moves.add_many([("job", "body")], full.message())) == [""]


def test_a_canvas_goes_on(full: Desk) -> None:
    """A13: what a job becomes is no new job."""
    full.replaced()
    fill(full)
    assert full.add(nesting=1).outcome == "continued"


def test_a_whole_life_ends_in_order(full: Desk) -> None:
    """H6: claim, retry, claim, stall, claim, fail with its dead letter."""
    full.add()
    fill(full)
    full.run(full.moves.retry("job", full.begin(), AT_ONCE))
    full.run(full.moves.stall("job", full.begin()))
    full.run(full.moves.fail("job", full.begin(), "exhausted", "no", exhausted=True))
    assert full.trace().split()[-3:] == ["failed", "retries-exhausted", "dead-lettered"]
    assert full.counters() == (2, 3, 1)
    assert len(full.client.keys("qwk:dead:*")) == 1
