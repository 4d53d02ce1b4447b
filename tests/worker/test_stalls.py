"""Workers that are lost while they run jobs: what was theirs runs again, soon, in turn, and so often and no more."""

from __future__ import annotations

import time

import pytest

from queue_kit.states import State
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import LEASE_S, POOLS, REAP_S, STALLED_ONCE, Stage

pytestmark = pytest.mark.crash

#: What the cases allow beside the bound itself.
SLACK = 1.2
SLACK_S = 0.25


def killed_with_its_job(stage: Stage, victim: WorkerProcess, job_id: str, start: int = 1) -> float:
    """Kill a worker once it runs the job; return the instant, in milliseconds."""
    stage.await_starts(job_id, start)
    at_ms = time.time() * 1000
    victim.kill_all()
    return at_ms


@pytest.mark.parametrize("pool", POOLS)
def test_a_killed_workers_job_runs_again_on_another(stage: Stage, pool: str) -> None:
    """B1: given a job that runs; killed: its whole worker, with another alive; then it waits again within lease and reap
    interval, its trace is S4's, and the rerun knows that it is one."""
    victim, _ = stage.workers({"pool": pool}, {"queues": ["elsewhere"]})
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    stage.worker()
    killed_at_ms = killed_with_its_job(stage, victim, job_id)
    rerun = stage.await_starts(job_id, 2)
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert stage.trace(job_id) == STALLED_ONCE
    assert (rerun["attempts_made"], rerun["attempts_started"], rerun["stalled_count"]) == (0, 2, 1)
    assert stage.await_event(job_id, "stalled") - killed_at_ms <= (LEASE_S + REAP_S) * 1000 * SLACK + SLACK_S * 1000


def test_all_four_jobs_of_a_killed_worker_run_again(stage: Stage) -> None:
    """B2: given four jobs that run; killed: their worker; then four stalls, and four that complete."""
    victim = stage.worker(concurrency=4)
    job_ids = [stage.send("hold", gate="go") for _ in range(4)]
    for job_id in job_ids:
        stage.await_starts(job_id)
    victim.kill_all()
    stage.open("go")
    stage.worker(concurrency=4)
    assert [job.state for job in stage.await_ends(job_ids)] == [State.COMPLETED] * 4
    assert [stage.counters(job_id) for job_id in job_ids] == [(1, 2, 1)] * 4
    assert [stage.trace(job_id).count("stalled") for job_id in job_ids] == [1] * 4


def test_without_any_stall_allowed_the_first_fails_the_job(stage: Stage) -> None:
    """B3: given a limit of 0; killed: the worker; then the job fails, and nobody runs it again."""
    stage.env["WORKER_MAX_STALLED_COUNT"] = "0"
    victim, _ = stage.workers({}, {"queues": ["elsewhere"]})
    job_id = stage.send("hold", gate="go")
    killed_with_its_job(stage, victim, job_id)
    job = stage.await_end(job_id)
    assert (job.state, job.reason) == (State.FAILED, "job stalled more than allowable limit")
    assert stage.counters(job_id) == (1, 1, 1)
    assert stage.starts(job_id) == 1


def test_the_second_stall_fails_the_job_however_many_attempts_it_has(stage: Stage) -> None:
    """B4: given five attempts and a limit of 1; killed: two workers in turn; then two starts, and a dead letter."""
    first, third = stage.workers({}, {"queues": ["elsewhere"]})
    job_id = stage.send("hold", gate="go")
    killed_with_its_job(stage, first, job_id)
    killed_with_its_job(stage, stage.worker(), job_id, start=2)
    job = stage.await_end(job_id)
    assert (job.state, job.cause, job.reason) == (State.FAILED, "stalled", "job stalled more than allowable limit")
    assert (stage.counters(job_id), stage.starts(job_id)) == ((1, 2, 2), 2)
    once = STALLED_ONCE[:-1]
    assert stage.trace(job_id) == [*once, "stalled", "failed", "dead-lettered"]
    assert [(letter.job_id, letter.cause) for letter in stage.letters()] == [(job_id, "stalled")]
    assert third.running


def test_a_stalled_job_runs_before_all_that_wait(stage: Stage) -> None:
    """B6: given five that wait behind it; killed: its worker; then it is the next to run."""
    victim, _ = stage.workers({}, {"queues": ["elsewhere"]})
    stalled = stage.send("hold", gate="go", each=True)
    stage.await_starts(stalled)
    waiting = [stage.send("quick") for _ in range(5)]
    stage.open("go2")
    victim.kill_all()
    stage.await_event(stalled, "stalled")
    stage.worker()
    stage.await_ends([stalled, *waiting])
    began = [line["id"] for line in stage.book("start")]
    assert began[-6:] == [stalled, *waiting]


def test_three_workers_count_one_stall_once(stage: Stage) -> None:
    """B9: given three workers that all look for stalled jobs; killed: a fourth with a job; then one stall is counted."""
    victim, *_ = stage.workers({}, {"pool": "threads"}, {"pool": "gevent"}, {"pool": "solo"})
    job_id = stage.send("hold", gate="go", each=True)
    taken_by = stage.await_starts(job_id)["main"]
    holder = next(worker for worker in (victim, *_) if worker.pid == taken_by)
    stage.open("go2")
    holder.kill_all()
    stage.await_end(job_id)
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))


@pytest.mark.parametrize("pool", POOLS)
def test_the_first_worker_to_boot_recovers_what_all_have_left(stage: Stage, pool: str) -> None:
    """B11, K4: given a job that runs; killed: the only worker; then the next one to boot, of whatever pool, runs it within
    one lease of its coming up."""
    victim = stage.worker()
    job_id = stage.send("hold", gate="go", each=True)
    killed_with_its_job(stage, victim, job_id)
    stage.open("go2")
    stage.worker(pool)
    ready_at_ms = time.time() * 1000
    assert stage.await_end(job_id).state == State.COMPLETED
    assert stage.await_event(job_id, "stalled") - ready_at_ms <= LEASE_S * 1000 * SLACK + SLACK_S * 1000
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))


def test_however_many_jobs_a_lost_worker_had_they_are_back_within_one_sweep(stage: Stage) -> None:
    """Given 350 jobs that run, more than a sweep's script takes at once; killed: their worker; then all are back before
    another sweep would have begun."""
    victim = stage.worker("gevent", concurrency=350)
    job_ids = [stage.send("hold", gate="go") for _ in range(350)]
    wait_until(lambda: len(stage.book("start")) == 350, says="all have begun", within_s=30)
    stage.env["WORKER_STALLED_INTERVAL_MS"] = "2000"
    victim.kill_all()
    stage.worker("gevent", queues=["elsewhere"])
    wait_until(lambda: not stage.census.counts(stage.queue)[State.ACTIVE], says="nobody holds them", within_s=25)
    came_back = [event.at_ms for event in stage.census.events(stage.queue) if event.kind == "stalled"]
    assert len(came_back) == len(job_ids)
    assert max(came_back) - min(came_back) < 1000


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_job_that_kills_its_worker_does_not_take_its_neighbours_along(stage: Stage, pool: str) -> None:
    """B15: given four jobs that start together, one of which kills each worker it runs in; then the three complete, and the
    one ends in the dead letters."""
    worker = stage.worker(pool, concurrency=4)
    killer = stage.send("die", whom="worker", gate="kill")
    others = [stage.send("hold", gate="go") for _ in range(3)]
    for job_id in (killer, *others):
        stage.await_starts(job_id)
    stage.open("kill")
    for _ in range(2):
        worker.wait_exit()
        worker.kill_all()  # what is left of it
        stage.open("go")
        worker = stage.worker(pool, concurrency=4, wait=False)  # it may be killed before it says that it is ready
    assert stage.await_end(killer).state == State.FAILED
    assert [job.state for job in stage.await_ends(others)] == [State.COMPLETED] * 3
    assert (stage.counters(killer), stage.starts(killer)) == ((1, 2, 2), 2)
    assert [stage.counters(job_id)[2] for job_id in others] == [1, 1, 1]
    assert [letter.cause for letter in stage.letters()] == ["stalled"]


def test_many_stalled_jobs_do_not_hold_up_the_others(stage: Stage) -> None:
    """Given eight jobs that stalled with their worker, each of which takes long now; then a worker runs one of them at a
    time, and all else in its other slots meanwhile."""
    victim = stage.worker(pool="threads", concurrency=8)
    suspects = [stage.send("hold", gate="go") for _ in range(8)]
    for job_id in suspects:
        stage.await_starts(job_id)
    victim.kill_all()
    stage.worker(pool="threads", concurrency=4)
    wait_until(lambda: len(stage.book("start")) == 9, says="one suspect runs again")
    others = [stage.send("quick") for _ in range(50)]
    assert {job.state for job in stage.await_ends(others)} == {State.COMPLETED}
    assert len(stage.book("start")) == 9 + 50, "a second suspect has begun beside the first"
    stage.open("go")
    assert {job.state for job in stage.await_ends(suspects)} == {State.COMPLETED}
    assert {stage.counters(job_id) for job_id in suspects} == {(1, 2, 1)}
