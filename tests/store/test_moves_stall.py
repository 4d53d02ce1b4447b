"""stall and reap: what becomes of a job whose worker is lost, and of leases that ran out."""

from __future__ import annotations

import threading

import pytest
import redis

from queue_kit.store.moves import Settled
from tests.store.desk import Desk
from tests.support.redis_server import RedisServer

PREFIX = "qwk"


def test_the_first_stall_runs_again_at_the_head(desk: Desk) -> None:
    """S4, B1, B6, B10: with five waiting it runs next; no attempt is counted; waiting, then stalled."""
    token = desk.running()
    desk.add_all("1", "2", "3", "4", "5")
    assert desk.run(desk.moves.stall("job", token)) == Settled("waiting", "")
    assert desk.counters() == (0, 1, 1)
    assert desk.trace() == "added waiting active waiting stalled"
    assert desk.claimed(1) == ["job"]
    assert desk.trace() == "added waiting active waiting stalled active"
    assert [run["cause"] for run in desk.runs()] == ["stalled"]


@pytest.mark.parametrize("found_by", ["its worker", "the reaper"])
def test_the_head_is_that_of_its_priority(desk: Desk, found_by: str) -> None:
    """B6: a stalled job of priority 5 does not overtake priority 0, whoever finds that its worker is lost."""
    token = desk.running(priority=5)
    desk.add("urgent")
    desk.add("same", priority=5)
    if found_by == "its worker":
        desk.run(desk.moves.stall("job", token))
    else:
        desk.lease_runs_out("job")
        desk.reap()
    assert desk.listed("wait") == ["urgent", "job", "same"]


def test_past_the_limit_it_fails_at_once(desk: Desk) -> None:
    """B4: am 1, as 2, st 2; stalled, failed, dead-lettered; no retries-exhausted; somebody tells the callers."""
    desk.stalled()
    assert desk.run(desk.moves.stall("job", desk.begin())) == Settled("failed", "")
    assert (desk.state(), desk.counters()) == ("failed", (1, 2, 2))
    assert desk.trace().split()[-3:] == ["stalled", "failed", "dead-lettered"]
    record = desk.record()
    assert (record["cause"], record["reason"]) == ("stalled", "job stalled more than allowable limit")
    assert desk.client.zrange(desk.keys.notes, 0, -1) == ["job"]


def test_max_stalled_0_fails_the_first(client: redis.Redis, queue_name: str) -> None:
    """B3: am 1, as 1, st 1."""
    desk = Desk(client, queue_name, max_stalled=0)
    assert desk.run(desk.moves.stall("job", desk.running())).outcome == "failed"
    assert desk.counters() == (1, 1, 1)
    assert desk.claimed() == []


def test_a_job_that_may_run_at_most_once_is_lost(desk: Desk) -> None:
    """K16: not run again, whatever the limit; cause `lost`."""
    desk.add()
    assert desk.run(desk.moves.stall("job", desk.begin(once={"work"}))).outcome == "failed"
    assert (desk.record()["cause"], desk.counters()) == ("lost", (1, 1, 1))
    assert desk.trace().split()[-3:] == ["stalled", "failed", "dead-lettered"]


def test_a_reserved_job_of_a_lost_worker_just_goes_back(desk: Desk) -> None:
    """G2: uncounted, also where it may run only once."""
    desk.add()
    token = desk.reserve(once={"work"})
    desk.add("next")
    assert desk.run(desk.moves.stall("job", token)) == Settled("released", "")
    assert (desk.counters(), desk.trace(), desk.runs()) == ((0, 0, 0), "added waiting", [])
    assert desk.listed("wait") == ["job", "next"]


# -- reap -------------------------------------------------------------------------------------------------------------


def test_the_reaper_stalls_what_ran_out_and_leaves_the_rest(desk: Desk) -> None:
    """B1: and says what became of each."""
    desk.running("runs")
    desk.running("lost")
    desk.lease_runs_out("lost")
    (row,) = desk.reap()
    assert (row.id, row.queue, row.outcome, row.worker, row.trouble) == ("lost", desk.queue, "waiting", "w1", "")
    assert (desk.state("runs"), desk.state("lost")) == ("active", "waiting")
    assert desk.trace("lost") == "added waiting active waiting stalled"
    assert desk.reap() == []


def test_all_queues_are_reaped_whoever_reaps(desk: Desk) -> None:
    for queue in ("q1", "q2"):
        desk.running(queue, queue=queue)
        desk.client.zadd(desk.key("active", queue), {queue: 5})
    assert sorted(row.id for row in desk.reap()) == ["q1", "q2"]


def test_a_reserved_lease_that_ran_out_goes_back_uncounted(desk: Desk) -> None:
    """G2: a worker killed with ten reserved jobs: only the begun ones are stalled."""
    desk.add_all("begun", "r1", "r2")
    desk.claim(3, begin=1)
    desk.lease_runs_out("begun")
    desk.lease_runs_out("r1", "r2", part="reserved")
    assert {(row.id, row.outcome) for row in desk.reap()} == {
        ("begun", "waiting"),
        ("r1", "released"),
        ("r2", "released"),
    }
    assert [desk.counters(job_id)[2] for job_id in ("begun", "r1", "r2")] == [1, 0, 0]


def test_what_has_waited_longest_runs_first_again(desk: Desk) -> None:
    """B2, B6: several jobs of one lost worker keep their order at the head."""
    desk.add_all("a", "b", "c", "next")
    desk.claim(3)
    for ago, job_id in enumerate(("c", "b", "a"), 1):
        desk.lease_runs_out(job_id, ago_ms=ago * 100)
    desk.reap()
    assert desk.listed("wait") == ["a", "b", "c", "next"]


def test_a_batch_bounds_what_one_call_handles(desk: Desk) -> None:
    desk.add_all(*(f"j{n}" for n in range(5)))
    desk.claim(5, begin=3)
    desk.lease_runs_out("j0", "j1", "j2")
    desk.lease_runs_out("j3", "j4", part="reserved")
    assert [len(desk.reap(batch=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_past_the_limit_the_reaper_fails_the_job(desk: Desk) -> None:
    """B4, B15: with its dead letter, by whichever worker reaps."""
    desk.stalled()
    desk.begin()
    desk.lease_runs_out("job")
    assert [(row.outcome, row.trouble) for row in desk.reap()] == [("failed", "")]
    assert desk.record()["cause"] == "stalled"


def test_an_entry_without_a_record_is_dropped(desk: Desk) -> None:
    """An operator's DEL, an eviction: it must not come up at each reap."""
    desk.running()
    desk.lease_runs_out("job")
    desk.client.delete(desk.keys.job("job"))
    assert desk.reap() == []
    assert desk.listed("active") == []


def test_many_reapers_at_once_stall_once(desk: Desk, redis_server: RedisServer) -> None:
    """B9: no leader: eight workers reap at the same moment."""
    for number in range(20):
        desk.running(f"j{number}")
    desk.lease_runs_out(*(f"j{number}" for number in range(20)))
    gate = threading.Barrier(8)
    found: list[str] = []

    def worker() -> None:
        with redis_server.client() as own:
            reaper = Desk(own, desk.queue)
            gate.wait()
            found.extend(row.id for _ in range(5) for row in reaper.reap(batch=3))

    threads = [threading.Thread(target=worker) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"j{number}" for number in range(20))
    assert {desk.counters(f"j{number}") for number in range(20)} == {(0, 1, 1)}
    assert desk.kinds().count("stalled") == 20


# -- after an outage --------------------------------------------------------------------------------------------------


def outage(desk: Desk, ago_ms: int) -> None:
    """Nobody has reaped for this long."""
    desk.client.hset(f"{PREFIX}:reap", "last", desk.now_ms() - ago_ms)


def hold_ends(desk: Desk) -> None:
    """One renewal interval has passed since."""
    desk.client.hset(f"{PREFIX}:reap", "hold_until", desk.now_ms() - 1)


def test_the_first_reaper_after_an_outage_gives_the_living_time_to_renew(desk: Desk) -> None:
    """H2: nobody reaped for more than two intervals (of 1,000 ms here): nothing for one renewal interval (2,500 ms)."""
    alive, dead = desk.running("alive"), desk.running("dead")
    desk.lease_runs_out("alive", "dead", ago_ms=500)
    outage(desk, 2_500)
    assert desk.run(desk.moves.reap()) == []
    assert 0 < int(desk.client.hget(f"{PREFIX}:reap", "hold_until")) - desk.now_ms() <= 2_500
    assert desk.run(desk.moves.renew([("alive", alive)])) == ["ok"]
    assert desk.run(desk.moves.reap()) == []
    hold_ends(desk)
    assert [row.id for row in desk.run(desk.moves.reap())] == ["dead"]
    assert desk.run(desk.moves.complete("alive", alive)) == "ok"
    assert desk.run(desk.moves.complete("dead", dead)) == "lost"


def test_the_very_first_reap_of_all_waits_too(desk: Desk) -> None:
    """B11: the first worker to boot recovers the jobs of a dead fleet, after one renewal interval."""
    desk.running()
    desk.lease_runs_out("job")
    assert desk.run(desk.moves.reap()) == []
    hold_ends(desk)
    assert [row.id for row in desk.run(desk.moves.reap())] == ["job"]


def test_a_short_pause_is_no_outage(desk: Desk) -> None:
    desk.running()
    desk.lease_runs_out("job")
    outage(desk, 1_500)
    assert [row.id for row in desk.run(desk.moves.reap())] == ["job"]


@pytest.mark.parametrize("field", ["last", "hold_until"])
def test_a_clock_that_was_set_back_does_not_stop_the_reaping_for_ever(desk: Desk, field: str) -> None:
    """Given a hold that was to end an hour ahead, by the clock of then: it ends one renewal interval after now."""
    desk.running()
    desk.lease_runs_out("job")
    now = desk.now_ms()
    desk.client.hset(f"{PREFIX}:reap", mapping={"last": now, "hold_until": 0} | {field: now + 3_600_000})
    desk.run(desk.moves.reap())
    assert int(desk.client.hget(f"{PREFIX}:reap", "hold_until")) <= desk.now_ms() + 2_500
    assert abs(int(desk.client.hget(f"{PREFIX}:reap", "last")) - desk.now_ms()) < 1_000
