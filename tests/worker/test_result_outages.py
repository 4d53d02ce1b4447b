"""A run ends while the Redis that keeps its result is away: it waits, and neither its work nor its chord is given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import chord

from queue_kit.states import State
from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.waiting import stays_true, wait_until
from tests.worker.stage import POOLS, Stage

pytestmark = pytest.mark.crash

LEASE_MS = 4000
AWAY_S = 1.0


@pytest.fixture
def away(own_redis: OwnRedis, tmp_path: Path, start_worker: StartWorker, queue_name: str) -> Stage:
    """A stage whose results lie in a Redis of their own."""
    limits = {"WORKER_LOCK_DURATION_MS": str(LEASE_MS)}
    return Stage(own_redis().url(), queue_name, tmp_path, start_worker, limits)


def test_a_result_waits_for_its_backend_and_the_chord_goes_on(
    away: Stage, own_redis: OwnRedis, own_proxy: OwnProxy
) -> None:
    """H2: given a chord in each pool, one part of which ends while the result backend is cut off; then each part has run once,
    no attempt was spent, and the body runs once."""
    results = own_redis()
    proxy = own_proxy(results)
    away.app.conf.result_backend = results.url()
    away.workers(*({"pool": pool, "queues": [pool], "backend_url": proxy.url()} for pool in POOLS))
    held, bodies = {}, {}
    tasks = away.app.tasks
    for pool in POOLS:
        held[pool], bodies[pool] = f"held-{pool}", f"body-{pool}"
        parts = [
            tasks["crash.plain"].si().set(queue=pool, task_id=f"part-{pool}"),
            tasks["crash.hold"].si(gate="go").set(queue=pool, task_id=held[pool]),
        ]
        chord(parts)(tasks["crash.plain"].si().set(queue=pool, task_id=bodies[pool]))
        away.await_starts(held[pool])
    proxy.cut()
    away.open("go")
    for job_id in held.values():
        wait_until(lambda j=job_id: away.book("end", j), says=f"the function of {job_id} has returned")
    stays_true(
        lambda: {away.job(job_id).state for job_id in held.values()} == {State.ACTIVE}, says="they wait", for_s=AWAY_S
    )
    proxy.restore()
    for job_id in (*held.values(), *bodies.values()):
        wait_until(lambda j=job_id: away.census.job(j), says=f"{job_id} is there", within_s=20)
        assert away.await_end(job_id).state is State.COMPLETED
        assert (away.counters(job_id), away.starts(job_id)) == ((1, 1, 0), 1)


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_chord_is_not_given_up_whichever_answer_is_lost(
    away: Stage, own_redis: OwnRedis, own_proxy: OwnProxy, nth: int
) -> None:
    """Given the last part of a chord; the nth answer of the result backend to it is lost with its connection; then the body
    runs once."""
    results = own_redis()
    proxy = own_proxy(results)
    away.app.conf.result_backend = results.url()
    away.worker("solo", backend_url=proxy.url())
    tasks = away.app.tasks
    parts = [tasks["crash.plain"].si().set(queue=away.queue), tasks["crash.hold"].si(gate="go").set(queue=away.queue)]
    body = chord(parts)(tasks["crash.plain"].si().set(queue=away.queue))
    wait_until(lambda: len(away.book("start")) == 2, says="the last part runs")
    proxy.lose_answer(nth)
    away.open("go")
    wait_until(lambda: away.census.job(body.id), says="the body is there", within_s=15)
    assert away.await_end(body.id).state is State.COMPLETED
    assert away.starts(body.id) == 1
    assert body.get(timeout=10) == "done"
