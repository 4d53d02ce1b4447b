"""A run ends while the Redis that keeps its result is away: it waits, and neither its work nor its chord is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def test_a_chord_is_not_given_up_whichever_answer_is_lost(
    away: Stage, own_redis: OwnRedis, own_proxy: OwnProxy
) -> None:
    """Given the last part of a chord, one after the other; each time another answer of the result backend to it is lost with
    its connection; then the body runs once."""
    results = own_redis()
    proxy = own_proxy(results)
    away.app.conf.result_backend = results.url()
    away.worker("solo", backend_url=proxy.url())
    for nth in range(1, 9):
        body = _chord(away, f"go{nth}")
        proxy.lose_answer(nth)
        away.open(f"go{nth}")
        wait_until(lambda b=body: away.census.job(b.id), says=f"the body is there without answer {nth}", within_s=15)
        assert away.await_end(body.id).state is State.COMPLETED
        assert away.starts(body.id) == 1
        assert body.get(timeout=10) == "done"


def _chord(stage: Stage, gate: str, each: bool = False) -> Any:
    """A chord of two, the last part of which runs and waits for a gate, or each of its runs for one."""
    tasks, before = stage.app.tasks, len(stage.book("start"))
    parts = [tasks["crash.plain"].si().set(queue=stage.queue), tasks["crash.hold"].si(gate=gate, each=each)]
    parts[1].set(queue=stage.queue)
    body = chord(parts)(tasks["crash.plain"].si().set(queue=stage.queue))
    wait_until(lambda: len(stage.book("start")) == before + 2, says="the last part runs")
    return body


def test_a_chord_that_was_cut_off_is_ended_by_a_rerun(away: Stage, own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    """The same; killed: the worker, once the answer is lost. Then the part's rerun on another sends the body."""
    results = own_redis()
    proxy = own_proxy(results)
    away.app.conf.result_backend = results.url()
    victim = away.worker("solo", backend_url=proxy.url())
    body = _chord(away, "go")
    proxy.lose_answers()
    away.open("go")
    victim.wait_for_log("cannot be stored, trying again")
    victim.kill_all()
    away.worker("threads", backend_url=results.url())
    wait_until(lambda: away.census.job(body.id), says="the body is there", within_s=20)
    assert away.await_end(body.id).state is State.COMPLETED
    assert away.starts(body.id) == 1


def test_a_run_that_has_lost_its_lease_does_not_end_the_chord_of_its_rerun(
    away: Stage, own_redis: OwnRedis, own_proxy: OwnProxy
) -> None:
    """Given the last part of a chord, whose worker is cut off from everything as it returns, until another worker runs the part
    again and the first has given up to store what it returned. Back again, it stores its trouble nowhere: the rerun's result
    counts, and the body runs."""
    broker, results = own_redis(), own_redis()
    away = Stage(broker.url(), away.queue, away.folder, away.start_worker, away.env)
    networks = own_proxy(broker), own_proxy(results)
    away.app.conf.result_backend = results.url()
    first = away.worker("threads", broker_url=networks[0].url(), backend_url=networks[1].url())
    body = _chord(away, "go", each=True)
    for network in networks:
        network.cut()
    away.open("go1")
    away.worker("solo", backend_url=results.url())
    first.wait_for_log("Exception raised outside body")
    wait_until(lambda: len(away.book("start")) == 3, says="the part runs again", within_s=20)
    for network in networks:
        network.restore()
    first.wait_for_log("has lost its lease")
    first.sigterm()
    first.wait_exit(within_s=20)
    away.open("go2")
    wait_until(lambda: away.census.job(body.id), says="the body is there", within_s=20)
    assert away.await_end(body.id).state is State.COMPLETED
