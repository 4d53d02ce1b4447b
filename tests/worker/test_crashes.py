"""Pool children that are killed while their worker lives: a stall at once, counted and limited, and never a lost job."""

from __future__ import annotations

import os
import signal

import pytest

from queue_kit.states import State
from tests.support.waiting import wait_until
from tests.worker.stage import STALLED_ONCE, Stage

pytestmark = pytest.mark.crash

# SIGKILL is also what the kernel's OOM killer sends; the other is what a fault in C code ends with.
FATAL = [signal.SIGKILL, signal.SIGSEGV]


@pytest.mark.parametrize("signum", FATAL)
def test_a_child_that_is_killed_costs_a_stall_and_no_lease(stage: Stage, signum: signal.Signals) -> None:
    """B10: given a job in a child; killed: the child; then the job is back at the head at once, no attempt made, and runs
    before what waits."""
    stage.env["WORKER_LOCK_DURATION_MS"] = "30000"
    worker = stage.worker()
    job_id = stage.send("hold", gate="go", each=True)
    child = stage.await_starts(job_id)["pid"]
    waiting = stage.send("quick")
    stage.open("go2")
    os.kill(child, signum)
    jobs = stage.await_ends([job_id, waiting])
    assert [job.state for job in jobs] == [State.COMPLETED] * 2
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))
    rerun = stage.await_starts(job_id, 2)
    assert (rerun["attempts_made"], rerun["stalled_count"]) == (0, 1)
    assert [line["id"] for line in stage.book("start")] == [job_id, job_id, waiting]
    assert worker.running


def test_the_stall_of_a_killed_child_takes_less_than_a_second(stage: Stage) -> None:
    """B10: under 1 s, without waiting for a lease to run out."""
    stage.env["WORKER_LOCK_DURATION_MS"] = "30000"
    stage.worker()
    job_id = stage.send("die", deaths=1)
    stage.await_end(job_id)
    died, came_back = (stage.await_event(job_id, kind) for kind in ("active", "stalled"))
    assert came_back - died < 1000


def test_a_job_that_always_kills_its_child_ends_in_the_dead_letters(stage: Stage) -> None:
    """B10: then it has run twice, whatever its attempts, and the worker goes on."""
    worker = stage.worker(concurrency=2)
    job_id = stage.send("die")
    job = stage.await_end(job_id)
    assert (job.state, job.cause, stage.counters(job_id), stage.starts(job_id)) == (
        State.FAILED,
        "stalled",
        (1, 2, 2),
        2,
    )
    assert stage.trace(job_id)[-4:] == ["active", "stalled", "failed", "dead-lettered"]
    assert [letter.cause for letter in stage.letters()] == ["stalled"]
    after = [stage.send("quick") for _ in range(10)]
    assert {job.state for job in stage.await_ends(after)} == {State.COMPLETED}
    assert worker.running


def test_several_children_killed_at_once_each_cost_one_stall(stage: Stage) -> None:
    """Given four jobs in four children; killed: all four at once; then four stalls, and four that complete."""
    stage.worker(concurrency=4)
    job_ids = [stage.send("hold", gate="go", each=True) for _ in range(4)]
    children = [stage.await_starts(job_id)["pid"] for job_id in job_ids]
    stage.open("go2")
    for child in children:
        os.kill(child, signal.SIGKILL)
    assert [job.state for job in stage.await_ends(job_ids)] == [State.COMPLETED] * 4
    assert [stage.counters(job_id) for job_id in job_ids] == [(1, 2, 1)] * 4


def test_idle_children_that_are_killed_cost_nothing(stage: Stage) -> None:
    """Given idle children; killed: all of them, and then a job arrives; it runs as if nothing had been."""
    worker = stage.worker(concurrency=2)
    for _ in range(3):
        for child in worker.child_pids():
            os.kill(child, signal.SIGKILL)
        job_ids = [stage.send("quick") for _ in range(4)]
        assert [job.state for job in stage.await_ends(job_ids)] == [State.COMPLETED] * 4
        for job_id in job_ids:
            stage.assert_explained(job_id)
            assert stage.counters(job_id)[0] == 1


def test_children_killed_while_jobs_rush_in_lose_none(stage: Stage) -> None:
    """Given a stream of short jobs; killed: a child of the pool, again and again, at whatever moment; then every job ends
    once, and each start beyond the first is explained by a stall."""
    stage.env["WORKER_MAX_STALLED_COUNT"] = "20"
    worker = stage.worker(concurrency=2)
    job_ids = [stage.send("quick") for _ in range(200)]
    for nth in range(1, 7):
        wait_until(lambda n=nth: len(stage.book("start")) >= 25 * n, says=f"{25 * nth} runs have begun")
        for child in worker.child_pids()[:1]:
            os.kill(child, signal.SIGKILL)
    assert {job.state for job in stage.await_ends(job_ids)} == {State.COMPLETED}
    for job_id in job_ids:
        stage.assert_explained(job_id)
    assert sum(stage.counters(job_id)[2] for job_id in job_ids) <= 6


@pytest.mark.parametrize("code", [0, 1])
def test_a_child_that_leaves_without_a_word_is_a_stall_whatever_it_says(stage: Stage, code: int) -> None:
    """Given a job that ends its process by itself, in C code or by `os._exit`; then it has stalled, and runs again."""
    worker = stage.worker()
    job_id = stage.send("die", whom="exit", signum=code, deaths=1)
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))
    assert worker.running


def test_a_greenlet_that_is_killed_is_a_stall(stage: Stage) -> None:
    """Given a job in a greenlet; killed: the greenlet, as gevent's pool does for a revoke; then its slot comes back and the
    job runs again. Stock Celery would count it as done."""
    stage.worker("gevent")
    job_id = stage.send("die", whom="greenlet", deaths=1)
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))


def test_children_that_are_replaced_in_turn_cost_nothing(stage: Stage) -> None:
    """Given children that end in order after each job; then no stall, and each job runs once."""
    options = ("--without-gossip", "--without-mingle", "--max-tasks-per-child=1")
    stage.worker(concurrency=2, options=options)
    job_ids = [stage.send("quick") for _ in range(20)]
    assert {job.state for job in stage.await_ends(job_ids)} == {State.COMPLETED}
    assert {stage.counters(job_id) for job_id in job_ids} == {(1, 1, 0)}
    assert {stage.starts(job_id) for job_id in job_ids} == {1}


def test_a_terminated_child_is_a_stall_too(stage: Stage) -> None:
    """Given a job in a child; SIGTERM to the child alone, by whatever else runs on the machine; then the job runs again."""
    worker = stage.worker()
    job_id = stage.send("hold", gate="go", each=True)
    child = stage.await_starts(job_id)["pid"]
    stage.open("go2")
    os.kill(child, signal.SIGTERM)
    assert stage.await_end(job_id).state == State.COMPLETED
    assert stage.counters(job_id) == (1, 2, 1)
    assert worker.running
