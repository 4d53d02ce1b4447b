"""Jobs that a worker has taken ahead: leased, still waiting, and nobody's loss."""

from __future__ import annotations

from itertools import accumulate

import pytest

from queue_kit.states import State
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import POOLS, Stage

pytestmark = pytest.mark.crash

AHEAD = ("--without-gossip", "--without-mingle", "--prefetch-multiplier", "11")


def members(stage: Stage, part: str) -> list[str]:
    """Ids of the jobs in one part of the stage's queue, in order."""
    with stage.app.connection_for_read() as connection:
        found = connection.default_channel.client.zrange(f"qwk:q:{stage.queue}:{part}", 0, -1)
    return [job_id.decode() for job_id in found]


def with_ten_ahead(stage: Stage, pool: str) -> tuple[WorkerProcess, str, list[str]]:
    """A worker that runs one job and has taken ten more."""
    running = stage.send("hold", gate="go", each=True)
    ahead = [stage.send("quick") for _ in range(10)]
    worker = stage.worker(pool, options=AHEAD)
    stage.await_starts(running)
    wait_until(lambda: len(members(stage, "reserved")) == 10, says="ten are reserved")
    return worker, running, ahead


@pytest.mark.parametrize("pool", POOLS)
def test_what_is_taken_ahead_goes_back_at_once_and_in_order(stage: Stage, pool: str) -> None:
    """G2: given one that runs and ten taken ahead; SIGTERM; then the ten wait again while the one still runs: no event, no
    counter, the same order."""
    worker, running, ahead = with_ten_ahead(stage, pool)
    later = stage.send("quick")
    worker.sigterm()
    wait_until(lambda: members(stage, "wait") == [*ahead, later], says="all wait again, in order", within_s=2)
    assert (stage.job(running).state, members(stage, "reserved")) == (State.ACTIVE, [])
    assert {tuple(stage.trace(job_id)) for job_id in ahead} == {("added", "waiting")}
    assert {stage.counters(job_id) for job_id in ahead} == {(0, 0, 0)}
    stage.open("go1")
    assert worker.wait_exit() == 0
    assert stage.job(running).state is State.COMPLETED
    assert not [line for line in stage.book("start") if line["id"] in ahead]


@pytest.mark.parametrize("pool", POOLS)
def test_a_killed_worker_has_stalled_only_what_it_had_begun(stage: Stage, pool: str) -> None:
    """G2: given one that runs and ten taken ahead; SIGKILL; then one stall is counted, and all complete."""
    worker, running, ahead = with_ten_ahead(stage, pool)
    worker.kill_all()
    stage.open("go2")
    stage.worker()
    stage.await_ends([running, *ahead])
    assert stage.counters(running) == (1, 2, 1)
    assert {stage.counters(job_id) for job_id in ahead} == {(1, 1, 0)}


@pytest.mark.parametrize("pool", POOLS)
def test_what_is_taken_ahead_begins_when_a_slot_is_free(stage: Stage, pool: str) -> None:
    """B13: given one that runs and ten taken ahead for longer than their lease; then each begins in its turn, once."""
    _, running, ahead = with_ten_ahead(stage, pool)
    renewed = stage.send("pause", seconds=0.0)
    stage.open("go1")
    stage.await_ends([running, *ahead, renewed])
    assert [line["id"] for line in stage.book("start")] == [running, *ahead, renewed]
    assert {stage.counters(job_id) for job_id in [running, *ahead, renewed]} == {(1, 1, 0)}
    assert {tuple(stage.trace(job_id)) for job_id in ahead} == {("added", "waiting", "active", "completed")}


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_worker_that_takes_ahead_runs_no_more_at_once_than_it_has_slots(stage: Stage, pool: str) -> None:
    """D1: given twelve of 0.1 s and two slots; then never more than two are begun."""
    jobs = [stage.send("pause", seconds=0.1) for _ in range(12)]
    stage.worker(pool, concurrency=2, options=AHEAD)
    stage.await_ends(jobs)
    steps = sorted([(line["at"], 1) for line in stage.book("start")] + [(line["at"], -1) for line in stage.book("end")])
    assert max(accumulate(step for _, step in steps)) == 2
    assert {stage.counters(job_id) for job_id in jobs} == {(1, 1, 0)}


@pytest.mark.parametrize("pool", POOLS)
def test_jobs_in_a_rate_limit_bucket_go_back_at_once(stage: Stage, pool: str) -> None:
    """G2, K10: given jobs that Celery's own rate limit holds back; SIGTERM; then they wait again, uncounted."""
    jobs = [stage.send("limited") for _ in range(4)]
    worker = stage.worker(pool, options=AHEAD)
    stage.await_end(jobs[0])
    assert worker.stop() == 0
    assert members(stage, "wait") == jobs[1:]
    assert {stage.counters(job_id) for job_id in jobs[1:]} == {(0, 0, 0)}
