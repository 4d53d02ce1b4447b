"""A worker that is asked to end: what runs, what waits in it, and how long it takes; with Redis up, gone and frozen."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from queue_kit.states import State
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import POOLS, Stage

pytestmark = pytest.mark.crash

DEADLINE_MS = 1500
#: What may come on top of the deadline: the pool's processes end, Redis answers or does not, the interpreter ends.
BOUND_MS = 4000


class ShutdownStage(Stage):
    """A stage whose workers know the jobs of the shutdown app."""

    def worker(self, pool: str = "prefork", concurrency: int = 1, **options: Any) -> WorkerProcess:
        env = {"CRASH_FOLDER": str(self.folder), **self.env, **options.pop("env", {})}
        options = {"broker_url": self.url, "backend_url": "", "queues": [self.queue], **options}
        return self.start_worker("tests.apps.shutdown_app", pool=pool, concurrency=concurrency, env=env, **options)


@pytest.fixture
def stage(redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> ShutdownStage:
    """A stage on the shared Redis."""
    return ShutdownStage(redis_server.url(), queue_name, tmp_path, start_worker)


def in_a_hurry(pool: str, stage: Stage, **options: Any) -> WorkerProcess:
    """A worker whose running jobs have little time."""
    return stage.worker(pool, env={"SHUTDOWN_TIMEOUT_MS": str(DEADLINE_MS)}, **options)


# -- what runs has time -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_what_runs_finishes_under_its_lease_and_nothing_new_starts(stage: ShutdownStage, pool: str) -> None:
    """G1: given a job of three leases that runs, and one that waits; SIGTERM; then the first completes, the second waits."""
    worker = stage.worker(pool)
    running = stage.send("pause", seconds=3.0)
    stage.await_starts(running)
    waiting = stage.send("quick")
    assert worker.stop() == 0
    assert stage.trace(running) == ["added", "waiting", "active", "completed"]
    assert stage.counters(running) == (1, 1, 0)
    assert (stage.trace(waiting), stage.starts(waiting)) == (["added", "waiting"], 0)


@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_ends_soon(stage: ShutdownStage, pool: str) -> None:
    """G1: nothing to wait for."""
    worker = stage.worker(pool, concurrency=2)
    job_id = stage.send("quick")
    stage.await_end(job_id)
    clock = Stopwatch()
    assert worker.stop() == 0
    assert clock.elapsed_ms < 8000  # under gevent Celery itself takes four seconds


def test_an_outcome_of_the_last_moments_is_written_at_once(stage: ShutdownStage) -> None:
    """G1: given two that run; one ends while the other goes on; then its completion does not wait for the other."""
    worker = stage.worker(concurrency=2)
    first, second = stage.send("hold", gate="a"), stage.send("hold", gate="b")
    for job_id in (first, second):
        stage.await_starts(job_id)
    worker.sigterm()
    stage.open("a")
    stage.await_state(first, State.COMPLETED, within_s=2)
    assert stage.job(second).state is State.ACTIVE
    stage.open("b")
    assert worker.wait_exit() == 0
    assert stage.job(second).state is State.COMPLETED


def test_an_outcome_does_not_wait_for_neighbours_that_are_busy(stage: ShutdownStage) -> None:
    """G1: given six that run, in as many processes; one ends; then it is settled soon, not after half a second for each."""
    worker = stage.worker(concurrency=6)
    busy = [stage.send("hold", gate="b") for _ in range(5)]
    last = stage.send("hold", gate="a")
    for job_id in [*busy, last]:
        stage.await_starts(job_id)
    worker.sigterm()
    worker.wait_for_log("the worker ends")
    stage.open("a")
    wait_until(lambda: stage.book("end", last), says="its run is over")
    stage.await_state(last, State.COMPLETED, within_s=1.5)
    stage.open("b")
    assert worker.wait_exit() == 0
    assert {stage.job(job_id).state for job_id in busy} == {State.COMPLETED}


@pytest.mark.parametrize("pool", POOLS)
def test_a_claim_under_way_goes_back(stage: ShutdownStage, pool: str) -> None:
    """G2: given a job that waits; SIGTERM between a claim and its answer; then it waits again, in its place."""
    first, second = stage.send("quick"), stage.send("quick")
    worker = stage.worker(pool, env={"CRASH_AT": "term:claim sent"}, wait=False)
    assert worker.wait_exit(within_s=40) == 0
    assert waits(stage) == [first, second]
    assert stage.counters(first) == (0, 1, 0)
    assert not stage.book("start")


def test_sigint_once_is_like_sigterm(stage: ShutdownStage) -> None:
    """G1: Ctrl+C."""
    worker = stage.worker()
    job_id = stage.send("pause", seconds=1.0)
    stage.await_starts(job_id)
    worker.sigint()
    assert worker.wait_exit() == 0
    assert stage.job(job_id).state is State.COMPLETED


def test_remote_control_is_one_more_way_to_ask(stage: ShutdownStage) -> None:
    """G1: `celery control shutdown`."""
    worker = stage.worker("threads")
    job_id = stage.send("pause", seconds=2.0)
    stage.await_starts(job_id)
    stage.app.control.shutdown(destination=[worker.hostname])
    assert worker.wait_exit() == 0
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.COMPLETED, (1, 1, 0))


# -- the deadline -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_at_the_deadline_what_runs_is_handed_back_uncounted(stage: ShutdownStage, pool: str) -> None:
    """G3: given a job that goes on; the deadline passes; then it waits again, no stall, no attempt, exit code 1."""
    worker = in_a_hurry(pool, stage)
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    clock = Stopwatch()
    worker.sigterm()
    assert worker.wait_exit() == 1
    assert DEADLINE_MS <= clock.elapsed_ms < DEADLINE_MS + BOUND_MS
    assert stage.trace(job_id) == ["added", "waiting", "active", "waiting"]
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.WAITING, (0, 1, 0))
    stage.open("go2")
    stage.worker()
    stage.await_end(job_id)
    assert stage.counters(job_id) == (1, 2, 0)


def test_handed_back_jobs_keep_their_order(stage: ShutdownStage) -> None:
    """G3: given three that run and one that waits; the deadline passes; then the three stand before it, in order."""
    worker = in_a_hurry("prefork", stage, concurrency=3)
    running = [stage.send("hold", gate="never") for _ in range(3)]
    for job_id in running:
        stage.await_starts(job_id)
    waiting = stage.send("quick")
    worker.sigterm()
    assert worker.wait_exit() == 1
    assert waits(stage) == [*running, waiting]


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_is_told_before_the_deadline_and_may_stop_by_itself(stage: ShutdownStage, pool: str) -> None:
    """G3: given a run that heeds its token; then it is released with reason `shutdown` in time, exit code 0."""
    worker = stage.worker(pool, env={"SHUTDOWN_TIMEOUT_MS": "8000"})
    job_id = stage.send("heed")
    stage.await_starts(job_id)
    assert worker.stop() == 0
    assert [line["reason"] for line in stage.book("told", job_id)] == ["shutdown"]
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.WAITING, (0, 1, 0))


def test_a_task_that_may_run_only_once_has_failed_by_the_deadline(stage: ShutdownStage) -> None:
    """G3, K16: given `acks_late=False`; the deadline passes; then it is failed as lost, with a dead letter."""
    worker = in_a_hurry("prefork", stage)
    job_id = stage.send("once", gate="never")
    stage.await_starts(job_id)
    worker.sigterm()
    assert worker.wait_exit() == 1
    assert (stage.job(job_id).state, stage.job(job_id).cause) == (State.FAILED, "lost")
    assert stage.counters(job_id) == (1, 1, 0)
    assert [letter.job_id for letter in stage.letters()] == [job_id]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("pool", POOLS)
def test_a_second_signal_means_now(stage: ShutdownStage, pool: str, second: signal.Signals) -> None:
    """G4: given 30 s of time; two signals; then the job is handed back in order and the worker has ended soon."""
    worker = stage.worker(pool)
    job_id = stage.send("hold", gate="never")
    stage.await_starts(job_id)
    stage.send("quick")
    worker.sigterm()
    worker.wait_for_log("the worker ends")  # the kernel makes one of two equal signals that nobody has seen yet
    os.kill(worker.pid, second)
    clock = Stopwatch()
    assert worker.wait_exit() == 1
    assert clock.elapsed_ms < BOUND_MS
    assert waits(stage)[0] == job_id
    assert stage.counters(job_id) == (0, 1, 0)


def test_sigquit_alone_means_now(stage: ShutdownStage) -> None:
    """G4: Celery's cold shutdown."""
    worker = stage.worker(env={"REMAP_SIGTERM": "SIGQUIT"})
    job_id = stage.send("hold", gate="never")
    stage.await_starts(job_id)
    os.kill(worker.pid, signal.SIGQUIT)
    assert worker.wait_exit(within_s=BOUND_MS / 1000) == 1
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.WAITING, (0, 1, 0))


def test_a_remapped_sigterm_still_drains(stage: ShutdownStage) -> None:
    """G1: given `REMAP_SIGTERM=SIGQUIT`; SIGTERM; then what runs has its time."""
    worker = stage.worker(env={"REMAP_SIGTERM": "SIGQUIT"})
    job_id = stage.send("pause", seconds=1.0)
    stage.await_starts(job_id)
    assert worker.stop() == 0
    assert stage.job(job_id).state is State.COMPLETED


def test_a_worker_killed_while_it_ends_loses_nothing(stage: ShutdownStage) -> None:
    """G3: given a job that runs; SIGTERM, then SIGKILL; then it is an ordinary stall."""
    worker = stage.worker()
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    worker.sigterm()
    worker.kill_all()
    stage.open("go2")
    stage.worker()
    stage.await_end(job_id)
    assert stage.counters(job_id) == (1, 2, 1)


# -- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_a_failure_of_the_last_moments_has_its_dead_letter(stage: ShutdownStage, pool: str) -> None:
    """G6: given a job that fails while its worker ends; then its record is there when the worker has ended."""
    worker = stage.worker(pool)
    job_id = stage.send("fail", gate="go")
    stage.await_starts(job_id)
    worker.sigterm()
    stage.open("go")
    assert worker.wait_exit() == 0
    assert stage.job(job_id).state is State.FAILED
    assert [letter.job_id for letter in stage.letters()] == [job_id]


# -- Redis is gone ----------------------------------------------------------------------------------------------------


def alone(own_redis: OwnRedis, queue_name: str, folder: Path, start_worker: StartWorker) -> tuple[RedisServer, ShutdownStage]:
    server = own_redis()
    return server, ShutdownStage(server.url(), queue_name, folder, start_worker)


@pytest.mark.parametrize("trouble", ["down", "frozen"])
@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_ends_without_redis(
    own_redis: OwnRedis, queue_name: str, tmp_path: Path, start_worker: StartWorker, pool: str, trouble: str
) -> None:
    """G5: given a job that runs; Redis goes; SIGTERM; then the worker has ended by its deadline all the same."""
    server, stage = alone(own_redis, queue_name, tmp_path, start_worker)
    worker = in_a_hurry(pool, stage)
    job_id = stage.send("hold", gate="never")
    stage.await_starts(job_id)
    server.freeze() if trouble == "frozen" else server.kill()
    clock = Stopwatch()
    worker.sigterm()
    assert worker.wait_exit() == 1
    assert clock.elapsed_ms < DEADLINE_MS + BOUND_MS


@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_ends_while_redis_is_frozen(
    own_redis: OwnRedis, queue_name: str, tmp_path: Path, start_worker: StartWorker, pool: str
) -> None:
    """G5: given nothing that runs; Redis is frozen; SIGTERM; then the worker has ended by its deadline."""
    server, stage = alone(own_redis, queue_name, tmp_path, start_worker)
    worker = in_a_hurry(pool, stage)
    server.freeze()
    clock = Stopwatch()
    worker.sigterm()
    assert worker.wait_exit() in (0, 1)
    assert clock.elapsed_ms < DEADLINE_MS + BOUND_MS


@pytest.mark.parametrize("pool", POOLS)
def test_an_outcome_waits_for_redis_until_the_deadline(
    own_redis: OwnRedis, queue_name: str, tmp_path: Path, start_worker: StartWorker, pool: str
) -> None:
    """G5: given an outcome of a worker that ends, while Redis is frozen; Redis is back in time; then it is written."""
    server, stage = alone(own_redis, queue_name, tmp_path, start_worker)
    worker = stage.worker(pool, env={"WORKER_LOCK_DURATION_MS": "8000", "SHUTDOWN_TIMEOUT_MS": "10000"})
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    server.freeze()
    worker.sigterm()
    stage.open("go")
    wait_until(lambda: stage.book("end", job_id), says="the run is over")
    server.thaw()
    assert worker.wait_exit() == 0
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.COMPLETED, (1, 1, 0))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("loss", ["flushed", "restarted"])
def test_a_redis_that_forgets_everything_crashes_nobody(
    own_redis: OwnRedis, queue_name: str, tmp_path: Path, start_worker: StartWorker, pool: str, loss: str
) -> None:
    """H9: given a job that runs; FLUSHALL, or a restart without persistence; then its run ends, and the worker goes on."""
    server, stage = alone(own_redis, queue_name, tmp_path, start_worker)
    worker = stage.worker(pool)
    lost = stage.send("hold", gate="go")
    stage.await_starts(lost)
    if loss == "flushed":
        server.client().flushall()
    else:
        server.kill()
        server.start()
    stage.open("go")
    wait_until(lambda: stage.book("end", lost), says="the run is over")
    following = stage.send("quick")
    stage.await_end(following)
    assert stage.census.job(lost) is None
    assert (worker.running, worker.stop()) == (True, 0)


def waits(stage: Stage) -> list[str]:
    """Ids of the waiting jobs, the next first."""
    with stage.app.connection_for_read() as connection:
        return [job.decode() for job in connection.default_channel.client.zrange(f"qwk:q:{stage.queue}:wait", 0, -1)]
