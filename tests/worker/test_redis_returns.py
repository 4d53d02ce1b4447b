"""Redis goes away and comes back, with its append-only file: what workers do meanwhile, and that every job ends once."""

from __future__ import annotations

from pathlib import Path

import pytest

from queue_kit.states import State
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import let_pass, stays_true, wait_until
from tests.worker.stage import LEASE_S, POOLS, Stage

pytestmark = pytest.mark.crash

RENEWAL_S = LEASE_S / 4


@pytest.fixture
def server(own_redis: OwnRedis) -> RedisServer:
    """A Redis that keeps what it was told, whatever happens to it."""
    return own_redis(appendonly=True, options={"appendfsync": "always"})


@pytest.fixture
def stage(server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> Stage:
    """A stage on that Redis."""
    return Stage(server.url(), queue_name, tmp_path, start_worker)


def test_a_worker_that_boots_without_redis_waits_and_then_consumes(stage: Stage, server: RedisServer) -> None:
    """H1: it stays up, says so once per step of its backoff, and consumes after the recovery."""
    server.kill()
    worker = stage.worker(wait=False)
    worker.wait_for_log("Cannot connect to redis")
    stays_true(lambda: worker.running, says="the worker stays up", for_s=1.0)
    said = worker.logs().count("Cannot connect to redis")
    assert 1 <= said <= 10, "once per step, and no flood"
    server.restart()
    job_id = stage.send("quick")
    assert stage.await_end(job_id).state is State.COMPLETED


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("phase", [0.0, 0.5, 0.9])
def test_an_outage_shorter_than_the_bound_costs_nothing(
    stage: Stage, server: RedisServer, pool: str, phase: float
) -> None:
    """H2: given a job that runs; Redis killed at some moment of the renewal interval and back within lease less renewal
    interval; then one run, one attempt, no stall."""
    stage.worker(pool)
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    let_pass(phase * RENEWAL_S, because="the outage is to begin at this moment of the interval")
    server.kill()
    let_pass((LEASE_S - RENEWAL_S) / 3, because="the outage lasts so long; boot and reconnecting take their time too")
    server.restart()
    let_pass(2 * LEASE_S, because="a lease that was not renewed would be reaped by then")
    stage.open("go")
    assert stage.await_end(job_id).state is State.COMPLETED
    assert (stage.counters(job_id), stage.starts(job_id)) == ((1, 1, 0), 1)


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_that_ends_during_an_outage_is_settled_after_it(stage: Stage, server: RedisServer, pool: str) -> None:
    """H2: the outcome waits in the worker until Redis is back."""
    stage.worker(pool)
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    server.kill()
    stage.open("go")
    wait_until(lambda: stage.book("end", job_id), says="the run has ended")
    server.restart()
    assert stage.await_end(job_id).state is State.COMPLETED
    assert (stage.counters(job_id), stage.starts(job_id)) == ((1, 1, 0), 1)


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_an_outage_longer_than_the_lease_is_a_stall(stage: Stage, server: RedisServer, pool: str) -> None:
    """H3: longer than the lease plus one renewal interval: a stall and a second run; one attempt."""
    stage.worker(pool, concurrency=2)
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    server.kill()
    let_pass(1.5 * (LEASE_S + RENEWAL_S), because="the outage outlasts the lease")
    server.restart()
    stage.worker(pool, concurrency=2)
    stage.await_starts(job_id, 2)
    stage.open("go1")
    stage.open("go2")
    assert stage.await_end(job_id).state is State.COMPLETED
    assert stage.counters(job_id) == (1, 2, 1)


def test_waiting_active_and_delayed_jobs_survive_everything_that_can_restart(stage: Stage, server: RedisServer) -> None:
    """C6, H8: all workers and Redis are killed and started again; every job ends once."""
    first = stage.worker(concurrency=2)
    active = [stage.send("hold", gate="go") for _ in range(2)]
    for job_id in active:
        stage.await_starts(job_id)
    waiting = [stage.send("quick") for _ in range(3)]
    delayed = [
        str(stage.app.send_task("crash.quick", queue=stage.queue, countdown=1.5 + turn / 10).id) for turn in range(3)
    ]
    server.kill()
    first.kill_all()
    server.restart()
    assert {stage.job(job_id).state for job_id in delayed} <= {State.DELAYED, State.WAITING}
    stage.open("go")
    stage.worker(concurrency=2)
    assert {job.state for job in stage.await_ends([*active, *waiting, *delayed])} == {State.COMPLETED}
    for job_id in [*active, *waiting, *delayed]:
        stage.assert_explained(job_id)
    assert [stage.starts(job_id) for job_id in [*waiting, *delayed]] == [1] * 6
