"""Limits of queues, with real workers: concurrency, rate, hold-off, pause, and what an operator may do to jobs meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import pytest
import redis

from queue_kit import JobNotFound, KeyView, QueueLimits, QueueUnavailable, WrongState, control, enqueue, enqueue_many
from queue_kit.states import State
from tests.store.desk import HOUR_MS, LATER, Desk
from tests.support.fixtures import OwnRedis
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, stays_true, wait_until
from tests.worker.sending import current, sending
from tests.worker.stage import LEASE_S, POOLS, REAP_S, Stage


def most_at_once(stage: Stage) -> int:
    """How many jobs ran at one moment, by the book."""
    steps = sorted([(line["at"], 1) for line in stage.book("start")] + [(line["at"], -1) for line in stage.book("end")])
    return max(itertools.accumulate(step for _, step in steps))


def in_order(stage: Stage) -> list[str]:
    return [line["id"] for line in stage.book("start")]


# -- concurrency ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_runs_as_many_as_it_has_slots(stage: Stage, pool: str) -> None:
    """D1: eight jobs, four slots."""
    job_ids = [stage.send("pause", seconds=0.1) for _ in range(8)]
    stage.worker(pool, concurrency=4)
    stage.await_ends(job_ids)
    assert most_at_once(stage) <= 4


@pytest.mark.parametrize("options", [(), ("--prefetch-multiplier", "4")])
def test_one_at_a_time_over_two_workers_and_in_order(stage: Stage, options: Sequence[str]) -> None:
    """D2: fifteen jobs, two workers of four slots; also where workers take jobs ahead."""
    control.limit(stage.queue, concurrency=1, app=stage.app)
    job_ids = [stage.send("pause", seconds=0.02) for _ in range(15)]
    quiet = ("--without-gossip", "--without-mingle")
    stage.workers({"concurrency": 4, "options": [*quiet, *options]}, {"concurrency": 4, "options": [*quiet, *options]})
    assert {job.state for job in stage.await_ends(job_ids)} == {State.COMPLETED}
    assert (most_at_once(stage), in_order(stage)) == (1, job_ids)


def test_one_at_a_time_with_jobs_that_fail_all_finish(stage: Stage) -> None:
    """D2: a slot that a failing job leaves for its backoff is another's meanwhile."""
    control.limit(stage.queue, concurrency=1, app=stage.app)
    stage.workers({"concurrency": 4}, {"concurrency": 4})
    job_ids = [stage.send("flaky", failures=number % 3) for number in range(15)]
    assert {job.state for job in stage.await_ends(job_ids)} == {State.COMPLETED}
    assert sorted(stage.counters(job_id)[0] for job_id in job_ids) == [1] * 5 + [2] * 5 + [3] * 5


@pytest.mark.crash
def test_slots_of_killed_holders_come_back_with_the_stall(stage: Stage) -> None:
    """D3: given two slots in all, both held; killed: the holders' worker; then all complete, two at a time."""
    control.limit(stage.queue, concurrency=2, app=stage.app)
    victim = stage.worker(concurrency=4)
    held = [stage.send("hold", gate="go") for _ in range(2)]
    for job_id in held:
        stage.await_starts(job_id)
    others = [stage.send("pause", seconds=0.05) for _ in range(4)]
    survivor = stage.worker(concurrency=4, env={"WORKER_MAX_SUSPECTS": "2"})
    stays_true(lambda: len(stage.book("start")) == 2, says="nobody else runs", for_s=0.3)
    victim.kill_all()
    watch = Stopwatch()
    stage.open("go")
    assert {job.state for job in stage.await_ends([*held, *others])} == {State.COMPLETED}
    assert watch.elapsed_s < (LEASE_S + REAP_S) * 1.2 + 0.25 + 4.0
    assert [stage.counters(job_id) for job_id in held] == [(1, 2, 1)] * 2
    later = [line for line in stage.book("start") if line["main"] == survivor.pid]
    assert len(later) == 6


@pytest.mark.parametrize("pool", POOLS)
def test_a_limit_can_be_raised_while_jobs_wait(stage: Stage, pool: str) -> None:
    """D2: idle workers learn of it at once."""
    control.limit(stage.queue, concurrency=1, app=stage.app)
    stage.workers({"pool": pool}, {"pool": pool})
    first, second = (stage.send("hold", gate="go") for _ in range(2))
    stage.await_starts(first)
    stays_true(lambda: stage.starts(second) == 0, says="the second waits", for_s=0.2)
    control.limit(stage.queue, concurrency=2, app=stage.app)
    stage.await_starts(second)
    stage.open("go")
    stage.await_ends([first, second])


def test_what_is_taken_ahead_respects_a_limit_that_comes_later(stage: Stage) -> None:
    """D2, D6: reserved jobs of a queue that is limited or paused meanwhile go back, and no counter moves."""
    worker = stage.worker("threads", concurrency=2, options=("--prefetch-multiplier", "4"))
    running = [stage.send("hold", gate="go") for _ in range(2)]
    for job_id in running:
        stage.await_starts(job_id)
    ahead = [stage.send("quick") for _ in range(6)]
    wait_until(lambda: sum(stage.job(job_id).reserved for job_id in ahead) == 6, says="six are taken ahead")
    control.pause(stage.queue, app=stage.app)
    stage.open("go")
    stage.await_ends(running)
    wait_until(lambda: not any(stage.job(job_id).reserved for job_id in ahead), says="they have gone back")
    assert {stage.counters(job_id) for job_id in ahead} == {(0, 0, 0)}
    stays_true(lambda: len(stage.book("start")) == 2, says="none has begun", for_s=0.2)
    control.resume(stage.queue, app=stage.app)
    assert {job.state for job in stage.await_ends(ahead)} == {State.COMPLETED}
    assert worker.running


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_the_most_urgent_run_first_and_equals_in_order(stage: Stage, pool: str) -> None:
    """D7: 0 before 1 before … 9; first in, first out within one."""
    urgencies = (9, 5, 0, 1, 5, 0, 9)
    sent = [(urgency, stage.app.send_task("crash.quick", queue=stage.queue, priority=urgency).id) for urgency in urgencies]
    stage.worker(pool)
    stage.await_ends([job_id for _, job_id in sent])
    assert in_order(stage) == [job_id for _, job_id in sorted(sent, key=lambda pair: pair[0])]


@pytest.mark.parametrize("name", ["a:b:wait", "with space", "näme", "0", "x" * 100])
def test_a_queue_may_have_any_name(stage: Stage, name: str) -> None:
    """A separator in it is no end of it: neither for its keys, nor for its limits, nor for a wake-up."""
    queue = f"{stage.queue}{name}"
    stage.worker("threads", queues=[queue])
    control.limit(queue, concurrency=1, app=stage.app)
    with current(stage.app):
        first = stage.app.tasks["crash.quick"].apply_async(queue=queue, idempotency_key=name)
        assert stage.app.tasks["crash.quick"].apply_async(queue=queue, idempotency_key=name).id == first.id
    assert stage.await_end(first.id).queue == queue
    assert stage.census.counts(queue)[State.COMPLETED] == 1


# -- rate and hold-off ----------------------------------------------------------------------------------------------------


def test_a_rate_holds_over_all_workers(stage: Stage) -> None:
    """D4: two a second over three workers, eight jobs: in no window more than two, and a fourth window is needed."""
    control.limit(stage.queue, rate=(2, 500), app=stage.app)
    stage.workers({"pool": "threads", "concurrency": 4}, {"pool": "solo"}, {"pool": "gevent", "concurrency": 4})
    job_ids = [stage.send("quick") for _ in range(8)]
    stage.await_ends(job_ids)
    starts = sorted(stage.await_event(job_id, "active") for job_id in job_ids)
    assert all(later - earlier >= 500 for earlier, later in zip(starts[::2], starts[2::2], strict=False))
    assert starts[-1] - starts[0] < 3 * 500 * 1.2 + 1_000


def test_a_queue_that_is_held_off_resumes_by_itself(stage: Stage) -> None:
    """D5: attempts untouched, and no wake-up is needed."""
    stage.worker("threads", concurrency=2)
    control.hold_off(stage.queue, 400, app=stage.app)
    job_id = stage.send("quick")
    view = stage.await_end(job_id)
    assert view.added_at_ms is not None
    waited_ms = stage.await_event(job_id, "active") - view.added_at_ms
    assert 300 < waited_ms < 400 * 1.2 + 1_250
    assert stage.counters(job_id) == (1, 1, 0)


def test_a_hold_off_can_be_ended(stage: Stage) -> None:
    control.hold_off(stage.queue, HOUR_MS, app=stage.app)
    stage.worker("threads")
    job_id = stage.send("quick")
    stays_true(lambda: stage.starts(job_id) == 0, says="it is held off", for_s=0.2)
    assert control.limits(stage.queue, app=stage.app).held_off_ms > HOUR_MS - 60_000
    control.hold_off(stage.queue, 0, app=stage.app)
    stage.await_end(job_id)


# -- pause ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_a_paused_queue_gives_out_nothing_over_restarts(stage: Stage, pool: str) -> None:
    """D6, C2: five jobs, one of them due meanwhile: none runs before, all after; a due one waits, and is not active."""
    worker = stage.worker(pool)
    assert control.pause(stage.queue, app=stage.app) is True
    assert control.pause(stage.queue, app=stage.app) is False
    job_ids = [stage.send("quick") for _ in range(4)]
    due = str(stage.app.send_task("crash.quick", queue=stage.queue, countdown=0.1).id)
    stage.await_state(due, State.WAITING)
    worker.stop()
    stage.worker(pool)
    stays_true(lambda: stage.book("start") == [], says="nothing runs", for_s=0.3)
    assert control.resume(stage.queue, app=stage.app) is True
    stage.await_ends([*job_ids, due])
    assert in_order(stage) == [*job_ids, due]
    assert control.resume(stage.queue, app=stage.app) is False


# -- what an operator asks ------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(redis_server: RedisServer, client: redis.Redis, queue_name: str) -> Iterator[Desk]:
    """A desk, and an app that is the current one."""
    with sending(redis_server.url()):
        yield Desk(client, queue_name)


def test_a_delayed_job_is_promoted_or_put_off(desk: Desk) -> None:
    """C5: it runs now, or at another time; counted from now by the clock of Redis."""
    desk.add_all("a", "b", when=LATER)
    control.promote("a")
    assert desk.state("a") == "waiting"
    control.postpone("b", 2 * HOUR_MS)
    assert int(desk.record("b")["due_at"]) > desk.now_ms() + HOUR_MS
    control.postpone("b", 0)
    assert desk.claimed() == ["a", "b"]


@pytest.mark.parametrize("state", ["waiting", "active", "completed", "gone"])
@pytest.mark.parametrize("verb", ["promote", "postpone", "remove"])
def test_any_other_job_is_a_clear_error(desk: Desk, state: str, verb: str) -> None:
    """C5: the error names the job, and where it is."""
    if state != "gone":
        desk.add()
    if state in {"active", "completed"}:
        token = desk.begin()
        if state == "completed":
            desk.run(desk.moves.complete("job", token))
    verbs: dict[str, Any] = {
        "promote": lambda: control.promote("job"), "postpone": lambda: control.postpone("job", 5),
        "remove": lambda: control.remove("job"),
    }  # fmt: skip
    if state == "gone":
        with pytest.raises(JobNotFound, match="no job has the id job"):
            verbs[verb]()
    elif verb == "remove" and state != "active":
        verbs[verb]()
        assert desk.record() == {}
    else:
        with pytest.raises(WrongState, match=f"job job is {state}") as wrong:
            verbs[verb]()
        assert wrong.value.state == state


REFUSED: dict[str, Any] = {
    "concurrency: ": lambda: control.limit("q", concurrency=0),
    "rate starts: ": lambda: control.limit("q", rate=(0, 1000)),
    "rate window_ms: ": lambda: control.limit("q", rate=(1, None)),  # type: ignore[arg-type]
    "delay_ms: ": lambda: control.hold_off("q", -1),
    "delay_ms: a": lambda: control.postpone("job", -1),
    "delay_ms: a whole number": lambda: control.postpone("job", True),
    "queue: ": lambda: control.pause(""),
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_limit_out_of_range_is_refused_by_name(desk: Desk, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        REFUSED[words]()
    assert desk.client.keys("qwk:*") == []


def test_limits_can_be_read_and_lifted(desk: Desk) -> None:
    assert control.limits(desk.queue) == QueueLimits()
    control.limit(desk.queue, concurrency=3, rate=(10, 1_000))
    control.pause(desk.queue)
    assert control.limits(desk.queue) == QueueLimits(paused=True, concurrency=3, rate=(10, 1_000))
    control.limit(desk.queue, concurrency=None)
    assert control.limits(desk.queue).rate == (10, 1_000), "what is left out stays"
    control.limit(desk.queue, rate=None)
    control.resume(desk.queue)
    assert control.limits(desk.queue) == QueueLimits()
    assert desk.kinds() == ["paused", "resumed"]


def test_drain_removes_what_waits_and_on_request_what_is_delayed(desk: Desk) -> None:
    """What runs goes on; keys are free; thousands go in a few trips."""
    running = desk.running("running")
    handles = enqueue_many("enq.free", [{}] * 2_100, idempotency_key=None)
    enqueue("enq.free", delay_ms=HOUR_MS, idempotency_key="k")
    assert control.drain("celery") == 2_100
    assert control.drain("celery") == 0
    assert control.drain("celery", delayed=True) == 1
    assert [key for key in desk.client.keys("qwk:job:*") if handles[0].id in key] == []
    assert enqueue("enq.free", idempotency_key="k").deduplicated is False
    assert desk.run(desk.moves.complete("running", running)) == "ok"


def test_keys_can_be_looked_up_and_freed(desk: Desk) -> None:
    """SPEC 5: by name and key; where the queue is not named, it is the one that a plain send goes to."""
    assert control.find_key("enq.order", "k") is None
    order = {"number": 1, "name": "ada"}
    first = enqueue("enq.order", order, idempotency_key="k", idempotency_ttl_ms=60_000)
    found = control.find_key("enq.order", "k")
    assert found is not None
    assert (found.job_id, found.mode, found.state, found.kept) == (first.id, "ttl", "waiting", False)
    assert found.ttl_ms is not None
    assert found.ttl_ms > 50_000
    assert control.find_key("enq.order", "k", queue="elsewhere") is None
    assert control.release_key("enq.order", "k") == first.id
    assert control.release_key("enq.order", "k") is None
    assert enqueue("enq.order", order, idempotency_key="k").deduplicated is False


def test_freeing_a_key_loses_no_payload_that_was_kept(desk: Desk) -> None:
    own = Desk(desk.client, "celery")
    first = enqueue("enq.free", {"value": 1}, idempotency_key="k", dedup="keep_last")
    token = own.begin(first.id)
    enqueue("enq.free", {"value": 2}, idempotency_key="k", dedup="keep_last")
    assert control.find_key("enq.free", "k") == KeyView(first.id, "keep_last", "active", None, kept=True)
    assert control.release_key("enq.free", "k") == first.id
    assert len(own.listed("wait")) == 1
    assert own.run(own.moves.complete(first.id, token)) == "ok"
    assert len(own.listed("wait")) == 1


@pytest.mark.crash
def test_each_call_is_bounded(own_redis: OwnRedis) -> None:
    """SPEC 12: a frozen server is told within a second, as at a send."""
    server = own_redis()
    with sending(server.url()):
        server.freeze()
        calls: list[Any] = [
            lambda: control.pause("q"), lambda: control.limits("q"), lambda: control.promote("job"),
            lambda: control.find_key("enq.free", "k"), lambda: control.drain("q"), lambda: control.cancel("job"),
        ]  # fmt: skip
        for call in calls:
            watch = Stopwatch()
            with pytest.raises(QueueUnavailable):
                call()
            assert watch.elapsed_s < 1.45


# -- retention and memory -------------------------------------------------------------------------------------------------


def test_records_go_by_number_and_age_without_traffic(stage: Stage) -> None:
    """F2, SPEC 2: the janitor of any worker trims every queue, also those that it does not consume; an id stays known."""
    env = {"JOB_REMOVE_ON_COMPLETE_COUNT": "3", "JOB_REMOVE_ON_FAIL_COUNT": "100", "JANITOR_INTERVAL_MS": "100"}
    job_ids = [stage.send("quick") for _ in range(10)]
    worker = stage.worker("threads", env=env)
    stage.await_ends(job_ids)
    wait_until(lambda: stage.census.counts(stage.queue)[State.COMPLETED] == 3, says="three records are kept", within_s=15)
    assert [stage.job(job_id).trimmed for job_id in job_ids].count(True) == 7
    worker.stop()
    stage.worker("threads", queues=["elsewhere"], env={**env, "JOB_REMOVE_AFTER_S": "1"})
    wait_until(lambda: stage.census.counts(stage.queue)[State.COMPLETED] == 0, says="the old ones have gone", within_s=15)


def test_a_hundred_thousand_delayed_jobs_are_in_no_workers_memory(stage: Stage, client: redis.Redis) -> None:
    """C8: resident memory within 10 MB of that of the idle worker."""
    worker = stage.worker("threads", concurrency=2)
    done = stage.send("quick")
    stage.await_end(done)
    process, desk = psutil.Process(worker.pid), Desk(client, stage.queue)
    most = process.memory_info().rss + 10_000_000
    for start in range(0, 100_000, 1_000):
        ids = (f"d{number}" for number in range(start, start + 1_000))
        desk.ledger.run_all([desk.moves.add(job_id, desk.message(name="crash.quick"), when=LATER) for job_id in ids])
    stage.await_end(stage.send("quick"))
    stays_true(lambda: process.memory_info().rss < most, says="memory stays", for_s=1.5, every_s=0.1)
    client.flushall()


def test_two_hundred_queues_on_one_worker(stage: Stage) -> None:
    """Each is served at once, whichever it is, and so is a delayed job."""
    queues = [f"{stage.queue}-{number}" for number in range(200)]
    stage.worker("threads", concurrency=2, queues=queues)
    for queue in (queues[0], queues[199], queues[77]):
        watch = Stopwatch()
        job_id = stage.send("quick", queue=queue)
        stage.await_end(job_id)
        assert watch.elapsed_s < 1.0
    handle = stage.app.send_task("crash.quick", queue=queues[123], countdown=0.3)
    stage.await_end(str(handle.id))
