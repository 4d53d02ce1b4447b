"""Leases: kept as long as the work goes on, whatever it does to the processor; and once lost, lost."""

from __future__ import annotations

import time

import pytest

from queue_kit.states import State
from tests.support.fixtures import OwnProxy
from tests.support.waiting import let_pass, stays_true, wait_until
from tests.worker.stage import LEASE_S, POOLS, Stage

pytestmark = pytest.mark.crash

BURNT_LEASE_S = 0.5


@pytest.mark.timeout(90)
def test_a_lease_lasts_forty_times_its_length_while_the_work_goes_on(stage: Stage) -> None:
    """B7: given runs of forty leases, some of which keep a processor busy without a pause, in every pool; then no stall."""
    stage.env["WORKER_LOCK_DURATION_MS"], stage.env["REDIS_TIMEOUT_MS"] = str(round(BURNT_LEASE_S * 1000)), "400"
    seconds = 40 * BURNT_LEASE_S
    stage.workers(*({"pool": pool, "queues": [pool], "concurrency": 1 if pool == "solo" else 2} for pool in POOLS))
    burning = {pool: stage.send("burn", queue=pool, seconds=seconds) for pool in POOLS}
    holding = {pool: stage.send("hold", queue=pool, gate="go") for pool in ("prefork", "threads")}
    for job_id in (*burning.values(), *holding.values()):
        stage.await_starts(job_id)
    stage.await_ends(list(burning.values()), within_s=seconds * 2)
    stage.open("go")
    stage.await_ends(list(holding.values()))
    for pool, job_id in (*burning.items(), *holding.items()):
        assert (stage.trace(job_id, pool), stage.starts(job_id)) == (["added", "waiting", "active", "completed"], 1)


@pytest.mark.parametrize("pool", POOLS)
def test_the_outcome_of_a_lost_lease_is_refused(stage: Stage, own_proxy: OwnProxy, pool: str) -> None:
    """B8, H3: given a worker whose network hangs for so long that another has its job; when it is back, the run is told so,
    its outcome is refused, its worker goes on, and the job completes once, by the other."""
    proxy = own_proxy()
    cut_off = stage.worker(pool, broker_url=proxy.url())
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    stage.worker()
    proxy.stall()
    stage.await_starts(job_id, 2)
    proxy.resume()
    wait_until(lambda: stage.book("told", job_id), says="the first run is told to stop")
    assert [line["reason"] for line in stage.book("told", job_id)] == ["lease_lost"]
    stage.open("go1")
    stage.await_end(stage.send("quick"))  # the other is busy
    assert (len(stage.book("end", job_id)), stage.job(job_id).state) == (1, State.ACTIVE)
    assert cut_off.logs().count("has lost its lease") == 1
    stage.open("go2")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id).count("completed"), stage.counters(job_id)) == (1, (1, 2, 1))


@pytest.mark.parametrize("pool", POOLS)
def test_a_frozen_workers_late_outcome_changes_nothing(stage: Stage, pool: str) -> None:
    """B12: given a worker that is frozen past its lease; another finishes its job; thawed, its own outcome is refused."""
    frozen = stage.worker(pool)
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    stage.freeze(frozen)
    stage.open("go2")
    stage.worker()
    assert stage.await_end(job_id).state == State.COMPLETED
    before = stage.snapshot(job_id)
    stage.thaw(frozen)
    frozen.wait_for_log("has lost its lease")
    stage.open("go1")
    wait_until(lambda: len(stage.book("end", job_id)) == 2, says="the late run has ended")
    _goes_on(stage, job_id)
    assert stage.snapshot(job_id) == before
    assert (stage.trace(job_id).count("completed"), stage.counters(job_id)) == (1, (1, 2, 1))


def test_a_run_that_ends_while_its_main_process_is_frozen_is_refused_too(stage: Stage) -> None:
    """B12: given a main process that is frozen while its child goes on to the end; another worker has the job by then."""
    frozen = stage.worker()
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    frozen.sigstop()
    stage.open("go1")
    wait_until(lambda: stage.book("end", job_id), says="the child has ended its run")
    rescuer = stage.worker()
    stage.await_starts(job_id, 2)
    stage.open("go2")
    assert stage.await_end(job_id).worker.split(":")[1] == str(rescuer.pid)
    before = stage.snapshot(job_id)
    frozen.sigcont()
    frozen.wait_for_log("has lost its lease")
    _goes_on(stage, job_id)
    assert stage.snapshot(job_id) == before


def _goes_on(stage: Stage, *done: str) -> None:
    """Both workers take jobs again."""
    more = [stage.send("pause", seconds=0.02) for _ in range(20)]
    assert {job.state for job in stage.await_ends(more)} == {State.COMPLETED}
    assert len({line["main"] for line in stage.book("start") if line["id"] not in done}) == 2


@pytest.mark.parametrize("pool", POOLS)
def test_jobs_that_a_frozen_worker_had_just_claimed_do_not_start_there(stage: Stage, pool: str) -> None:
    """Given a worker frozen between its claim and the answer, past its lease; another runs the job; thawed, the first does
    not begin what it finds in its socket."""
    job_id = stage.send("hold", gate="go")
    frozen = stage.worker(pool, at="freeze:claim sent", wait=False)
    wait_until(lambda: stage.book("point"), says="the worker is frozen", within_s=40)
    stage.await_state(job_id, State.ACTIVE)
    stage.worker()
    stage.await_starts(job_id)
    stage.thaw(frozen)
    frozen.wait_for_log("answered too late")
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.starts(job_id), stage.counters(job_id)) == (1, (1, 2, 1))
    _goes_on(stage, job_id)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_main_loop_that_hangs_does_not_hold_its_jobs_for_ever(stage: Stage, pool: str) -> None:
    """Given a main loop that hangs with a job that it has not given to its pool; after a lease its leases are no longer
    renewed, another worker runs the job; and when the loop moves again, the job does not start a second time."""
    stuck = stage.worker(pool, at="hang:job taken")
    job_id = stage.send("hold", gate="go")
    stage.await_state(job_id, State.ACTIVE)
    stage.worker()
    stage.await_starts(job_id)
    assert "has not moved for longer than a lease" in stuck.logs()
    stage.open("hang")
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    stuck.wait_for_log("lost its lease")
    assert (stage.starts(job_id), stage.counters(job_id)) == (1, (1, 2, 1))
    _goes_on(stage, job_id)


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_job_that_its_pool_has_lost_stalls(stage: Stage, pool: str) -> None:
    """K10: given a run whose end never reaches the settle, because what handles it breaks; then its lease is no longer
    renewed, its slot comes back, and the job runs again."""
    worker = stage.worker(pool, at="break:result arrived")
    job_id = stage.send("quick")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.starts(job_id), stage.counters(job_id)) == (2, (1, 2, 1))
    assert "without a word" in worker.logs()


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_celerys_rate_limit_holds_back_is_leased(stage: Stage, pool: str) -> None:
    """K10: given a task limited to one in two seconds; one that waits in the worker for longer than a lease does not stall,
    has no start counted, and runs in its turn."""
    stage.worker(pool, concurrency=2)
    job_ids = [stage.send("limited") for _ in range(3)]
    stage.await_end(job_ids[0])
    wait_until(lambda: stage.job(job_ids[1]).reserved, says="the second is reserved")
    stays_true(lambda: stage.job(job_ids[1]).reserved, says="the second is reserved", for_s=1.2 * LEASE_S)
    assert stage.counters(job_ids[1]) == (0, 0, 0)
    assert {job.state for job in stage.await_ends(job_ids)} == {State.COMPLETED}
    assert [stage.counters(job_id) for job_id in job_ids] == [(1, 1, 0)] * 3


def test_what_the_rate_limit_held_goes_back_uncounted_when_its_worker_dies(stage: Stage) -> None:
    """K10, G2: given a job held back by the rate limit; killed: its worker; then it waits again, no counter moved."""
    victim, _ = stage.workers({"concurrency": 2}, {"queues": ["elsewhere"]})
    job_ids = [stage.send("limited") for _ in range(2)]
    stage.await_end(job_ids[0])
    wait_until(lambda: stage.job(job_ids[1]).reserved, says="the second is reserved")
    victim.kill_all()
    wait_until(lambda: not stage.job(job_ids[1]).reserved, says="the second is free again")
    assert (stage.counters(job_ids[1]), stage.trace(job_ids[1])) == ((0, 0, 0), ["added", "waiting"])
    stage.worker()
    assert stage.await_end(job_ids[1]).state == State.COMPLETED


def test_gevent_takes_the_next_job_when_a_slot_comes_free(stage: Stage) -> None:
    """K20: given two slots and twelve jobs of 50 ms, one fetched ahead; then they take less than a second, not ten."""
    job_ids = [stage.send("pause", seconds=0.05) for _ in range(12)]
    stage.worker("gevent", concurrency=2)
    stage.await_ends(job_ids)
    began, ended = stage.book("start")[0]["at"], stage.book("end")[-1]["at"]
    assert ended - began < 1.0


@pytest.mark.parametrize("pool", ["gevent", "threads", "solo"])
def test_an_idle_worker_does_not_take_itself_for_dead(stage: Stage, pool: str) -> None:
    """Given nothing to do for several leases; then no word of a main loop that hangs, and the next job runs at once."""
    worker = stage.worker(pool)
    let_pass(2.5 * LEASE_S, because="a main loop that did not beat would be found out after one lease")
    began = time.time()
    job_id = stage.send("quick")
    stage.await_end(job_id)
    assert stage.book("start", job_id)[0]["at"] - began < 0.5
    assert "has not moved" not in worker.logs()
