"""The roster of workers: who is on it, for how long, what each runs; and what is taken from one that is dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queue_kit.store import AT_ONCE
from queue_kit.store.census import Census
from queue_kit.store.moves import Reaped
from queue_kit.store.roster import BEAT_MS, Facts, Running, abandon, channel_of, enrol, look
from tests.store.desk import Desk
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

KERNEL = "7f0c"
HEARD = "qwk:workers:heard"


@pytest.fixture(params=[True, False], ids=["strings", "bytes"])
def census(request: pytest.FixtureRequest, redis_server: RedisServer, desk: Desk) -> Iterator[Census]:
    with redis_server.client(decode_responses=request.param) as client:
        yield Census(client, desk.keys)


def enter(desk: Desk, nonce: str = "w1", queue: str = "", witness: str = "here", kernel: str = KERNEL) -> dict[str, str]:
    facts = Facts(nonce, f"{nonce}@host", "host", kernel, 1, "prefork", 4, [queue or desk.queue], 1_000)
    return desk.run(enrol(desk.moves, facts, witness))


def dies(desk: Desk, nonce: str = "w1", batch: int = 100) -> list[str]:
    return [found.id for found in desk.run(abandon(desk.moves, nonce, batch))]


def is_silent_for(desk: Desk, nonce: str, ms: int) -> None:
    desk.client.zadd(desk.keys.beats, {nonce: desk.now_ms() - ms})


# -- who is on it ------------------------------------------------------------------------------------------------------


def test_a_worker_is_seen_with_its_queues_and_what_it_runs(census: Census, desk: Desk) -> None:
    enter(desk)
    desk.running("mine", name="mail")
    desk.add("other's")
    desk.begin("other's", worker="w2")
    (worker,) = census.workers()
    assert (worker.facts.node, worker.facts.pool, worker.facts.concurrency) == ("w1@host", "prefork", 4)
    assert worker.running == [Running("mine", "mail", desk.queue)]
    assert worker.is_heard
    assert worker.silent_ms < 1_000


def test_a_queue_has_consumers_as_long_as_they_are_heard(census: Census, desk: Desk) -> None:
    enter(desk)
    enter(desk, "w2", queue="elsewhere")
    assert [worker.facts.nonce for worker in census.consumers(desk.queue)] == ["w1"]
    is_silent_for(desk, "w1", 6 * BEAT_MS)
    assert census.consumers(desk.queue) == []
    assert [worker.is_heard for worker in census.workers()] == [False, True]


def test_who_has_been_silent_for_twice_its_lease_is_struck_out_by_any_other(census: Census, desk: Desk) -> None:
    """The lease of this desk is 10 s."""
    enter(desk)
    is_silent_for(desk, "w1", 19_000)
    assert enter(desk, "w2") == {"w1": "here"}
    is_silent_for(desk, "w1", 20_001)
    assert enter(desk, "w2") == {}
    assert [worker.facts.nonce for worker in census.workers()] == ["w2"]


def test_a_roster_that_nobody_writes_any_more_goes_by_itself(desk: Desk) -> None:
    enter(desk)
    lives = [desk.client.pttl(key) for key in (desk.keys.workers, desk.keys.beats, f"qwk:kernel:{KERNEL}")]
    assert all(19_000 < life <= 20_000 for life in lives)


def test_a_worker_hears_of_those_on_its_own_kernel_that_can_be_seen(desk: Desk) -> None:
    enter(desk, "w1", witness="a")
    enter(desk, "w2", witness="b", kernel="another")
    enter(desk, "w3", witness="")
    assert enter(desk, "w4", witness="d") == {"w1": "a"}
    assert enter(desk, "w1", witness="a") == {"w4": "d"}
    assert enter(desk, "w5", witness="") == {}


def test_what_a_newer_version_says_more_of_itself_is_passed_over(census: Census, desk: Desk) -> None:
    enter(desk)
    words = str(desk.client.hget(desk.keys.workers, "w1"))
    desk.client.hset(desk.keys.workers, "w1", words.replace("{", '{"colour": "red", ', 1))
    assert [worker.facts.nonce for worker in census.workers()] == ["w1"]


@pytest.mark.parametrize("rubbish", ["", "{", "[]", "7", '{"nonce": "w1"}', '{"kernel": 7}'])
def test_a_line_that_nobody_can_read_is_passed_over_and_goes_in_time(census: Census, desk: Desk, rubbish: str) -> None:
    enter(desk, "w1")
    desk.client.hset(desk.keys.workers, "w1", rubbish)
    is_silent_for(desk, "w1", 20_001)
    assert census.workers() == []
    enter(desk, "w2")
    assert desk.client.hkeys(desk.keys.workers) == ["w2"]


# -- abandon -----------------------------------------------------------------------------------------------------------


def test_all_that_a_dead_worker_had_begun_stalls_and_what_it_had_reserved_goes_back_uncounted(desk: Desk) -> None:
    """B2, G2: at once, with leases that last; of other workers nothing."""
    for job_id in ("a", "b"):
        desk.running(job_id)
    desk.add("other's")
    desk.begin("other's", worker="w10")
    desk.add("ahead")
    desk.reserve("ahead")
    enter(desk)
    assert sorted(dies(desk)) == ["a", "ahead", "b"]
    assert [desk.trace(job_id) for job_id in ("a", "b")] == ["added waiting active waiting stalled"] * 2
    assert (desk.counters("a"), desk.counters("ahead")) == ((0, 1, 1), (0, 0, 0))
    assert desk.trace("ahead") == "added waiting"
    assert desk.places("other's") == ["active"]
    assert desk.keys.workers not in desk.client.keys("*")


def test_however_often_it_is_said_one_death_is_one_stall(desk: Desk) -> None:
    """B9."""
    desk.running()
    assert [dies(desk) for _ in range(3)] == [["job"], [], []]
    desk.begin(worker="w2")
    assert dies(desk) == []
    assert (desk.counters(), desk.state()) == ((0, 1 + 1, 1), "active")


def test_a_death_past_the_limit_fails_the_job_with_its_dead_letter(desk: Desk) -> None:
    """B4."""
    desk.stalled()
    desk.begin()
    found = desk.run(abandon(desk.moves, "w1", 100))
    assert found == [Reaped("job", desk.queue, "failed", "w1", "")]
    assert (desk.counters(), desk.record()["cause"]) == ((1, 2, 2), "stalled")


def test_many_jobs_go_back_in_batches_and_keep_their_order(desk: Desk) -> None:
    names = [f"j{number}" for number in range(7)]
    for job_id in names:
        desk.running(job_id)
        desk.client.zadd(desk.key("active"), {job_id: desk.now_ms() + 10_000 + names.index(job_id)})
    enter(desk)
    assert [len(dies(desk, batch=3)) for _ in range(3)] == [3, 3, 1]
    assert desk.listed("wait") == names


def test_a_dead_workers_late_word_changes_nothing(desk: Desk) -> None:
    """B12."""
    token = desk.running()
    dies(desk)
    before = desk.record()
    assert desk.run(desk.moves.renew([("job", token)])) == ["lost"]
    assert desk.run(desk.moves.complete("job", token)) == "lost"
    assert desk.run(desk.moves.retry("job", token, AT_ONCE)) == "lost"
    assert desk.record() == before


def test_a_dead_workers_claim_that_arrives_late_takes_nothing(desk: Desk) -> None:
    desk.add()
    dies(desk)
    assert desk.claimed(worker="w1") == []
    assert desk.claimed(worker="w10") == ["job"]


def test_a_slot_of_a_limited_queue_comes_back_with_its_holders_death(desk: Desk) -> None:
    """D3."""
    desk.rules(concurrency=1)
    desk.running("a")
    desk.add("b")
    assert desk.claimed(worker="w2") == []
    dies(desk)
    assert desk.claimed(worker="w2") == ["a"]


# -- look --------------------------------------------------------------------------------------------------------------


def looks(desk: Desk, nonce: str = "w1") -> dict[str, bool]:
    """Who has been silent, and whether it listens."""
    return {one.nonce: one.listens for one in desk.run(look(desk.moves, nonce))[1]}


@contextmanager
def listening(desk: Desk, nonce: str = "w1") -> Iterator[None]:
    with desk.client.pubsub() as subscription:
        subscription.subscribe(channel_of(desk.moves, nonce))
        subscription.get_message(timeout=5)
        yield
    wait_until(lambda: desk.client.pubsub_numsub(channel_of(desk.moves, nonce))[0][1] == 0, says="it listens no more")


def last_word_was(desk: Desk, nonce: str, ms: int) -> int:
    desk.client.zadd(HEARD, {nonce: desk.now_ms() - ms})
    return int(desk.client.zscore(HEARD, nonce) or 0)


def test_only_who_is_on_the_roster_and_listens_is_heard(desk: Desk) -> None:
    looks(desk)
    enter(desk)
    looks(desk)
    assert not desk.client.exists(HEARD)
    with listening(desk):
        looks(desk)
        assert 19_000 < desk.client.pttl(HEARD) <= 20_000
        last_word_was(desk, "w1", 700)
        assert looks(desk, "w2") == {}
        last_word_was(desk, "w1", 800)
        assert looks(desk, "w2") == {"w1": True}
    assert looks(desk, "w2") == {"w1": False}


def test_what_is_inferred_is_done_unless_it_listens_or_is_heard_again(desk: Desk) -> None:
    desk.running()
    enter(desk)
    heard_at_ms = last_word_was(desk, "w1", 2_000)
    with listening(desk):
        assert desk.run(abandon(desk.moves, "w1", 100, heard_at_ms)) == []
        looks(desk)
    assert desk.run(abandon(desk.moves, "w1", 100, heard_at_ms)) == []
    heard_at_ms = last_word_was(desk, "w1", 2_000)
    assert [found.id for found in desk.run(abandon(desk.moves, "w1", 100, heard_at_ms))] == ["job"]
    assert desk.run(abandon(desk.moves, "w1", 100, heard_at_ms)) == []
    assert (desk.counters(), desk.client.exists(HEARD, desk.keys.workers)) == ((0, 1, 1), 0)


def test_who_was_taken_for_dead_and_lives_goes_on(desk: Desk) -> None:
    """Its next claim takes jobs, and its next word puts it on the roster again; what it ran is another's."""
    token = desk.running()
    enter(desk)
    desk.run(abandon(desk.moves, "w1", 100, last_word_was(desk, "w1", 2_000)))
    assert desk.run(desk.moves.renew([("job", token)])) == ["lost"]
    assert desk.claimed(worker="w1") == ["job"]
    enter(desk)
    with listening(desk):
        looks(desk)
    assert desk.client.exists(HEARD)
