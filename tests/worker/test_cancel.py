"""Cancel by id, and the other reasons for which a run is asked to stop: its lease is lost, its worker shuts down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import chord
from celery.exceptions import ChordError

from queue_kit import State, cancel, dead_letters
from queue_kit.errors import JobNotFound, QueueUnavailable
from queue_kit.worker.operating.control import pause, resume
from tests.apps import outcomes_app
from tests.apps.outcomes_app import LEASE_MS, REAP_MS
from tests.support.waiting import let_pass, stays_true, wait_until
from tests.worker.outcomes import POOLS, QUEUE, RENEWAL_S, Bench, attend, bench
from tests.worker.stack import fresh_id

LEASE_S = LEASE_MS / 1000


@pytest.fixture(scope="module", params=POOLS)
def pooled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """A bench for each pool, with a worker of one slot."""
    with bench(tmp_path_factory.mktemp(request.param)) as made:
        made.worker(request.param, concurrency=1)
        yield made


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """A bench with a prefork worker."""
    with bench(tmp_path_factory.mktemp("one")) as made:
        made.worker()
        yield made


@pytest.fixture
def alone(tmp_path: Path, engine: Path) -> Iterator[Bench]:
    """A bench of this test's own, without a worker."""
    with bench(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def attended(request: pytest.FixtureRequest) -> None:
    attend(request, "pooled", "one", "alone")


def assert_revoked(bench: Bench, job_id: str) -> None:
    """Whoever waits for it is told; nothing of it is kept as a failure."""
    wait_until(lambda: bench.result(job_id).state == "REVOKED", says=f"the callers of {job_id} are told")
    assert bench.stack.dead_letters(job_id) == []


# -- not running ----------------------------------------------------------------------------------------------------------


def test_a_delayed_job_that_is_cancelled_never_runs(one: Bench) -> None:
    """J4."""
    job_id = one.send("fail", {"kinds": []}, delay_ms=300)
    assert cancel(job_id) == State.CANCELLED
    assert one.trace(job_id) == ["added", "delayed", "cancelled"]
    assert_revoked(one, job_id)
    stays_true(lambda: one.starts(job_id) == 0, says="it does not run", for_s=0.5)


def test_a_waiting_job_that_is_cancelled_never_runs(one: Bench) -> None:
    """J4."""
    pause(QUEUE)
    job_id = one.send("fail", {"kinds": []})
    assert cancel(job_id) == State.CANCELLED
    resume(QUEUE)
    one.ended(one.send("fail", {"kinds": []}))
    assert (one.starts(job_id), one.trace(job_id)) == (0, ["added", "waiting", "cancelled"])
    assert_revoked(one, job_id)


def test_a_job_that_a_worker_has_taken_ahead_never_runs_either(alone: Bench) -> None:
    """J4: it is reserved, still waiting, when it is cancelled."""
    alone.worker(concurrency=1, options=("--without-gossip", "--without-mingle", "--prefetch-multiplier", "4"))
    running = alone.send("gated", {"gate": "ahead"})
    alone.await_line("start", running)
    job_id = alone.send("fail", {"kinds": []})
    wait_until(lambda: alone.job(job_id).reserved, says="it is taken ahead")
    assert cancel(job_id) == State.CANCELLED
    alone.open("ahead")
    alone.ended(running)
    alone.ended(alone.send("fail", {"kinds": []}))
    assert alone.starts(job_id) == 0
    assert_revoked(alone, job_id)


def test_what_has_ended_stays_as_it_is(one: Bench) -> None:
    job_id = one.send("fail", {"kinds": []})
    one.ended(job_id)
    assert cancel(job_id) == State.COMPLETED
    assert (one.job(job_id).state, one.trace(job_id)[-1]) == ("completed", "completed")


def test_an_id_that_nobody_knows_is_said_so(one: Bench) -> None:
    with pytest.raises(JobNotFound, match="cancel: no job has the id nobody"):
        cancel("nobody")


def test_without_redis_the_caller_hears_so(alone: Bench) -> None:
    job_id = alone.send("fail", {"kinds": []})
    alone.stack.server.freeze()
    with pytest.raises(QueueUnavailable):
        cancel(job_id)
    alone.stack.server.thaw()


# -- running --------------------------------------------------------------------------------------------------------------


def start_held(bench: Bench, then: str = "raise") -> str:
    job_id = bench.send("hold", {"then": then})
    bench.await_line("start", job_id)
    return job_id


def test_the_token_of_a_running_job_fires_within_a_renewal(pooled: Bench) -> None:
    """J4: on every pool; its run stops for it, the job ends cancelled and is not retried."""
    job_id = start_held(pooled)
    before = pooled.now_s()
    assert cancel(job_id) == State.ACTIVE
    view = pooled.ended(job_id, "cancelled")
    woke = pooled.await_line("woke", job_id)
    assert (woke["reason"], woke["went_on"], view.cause) == ("cancelled", False, "cancelled")
    assert woke["at"] - before <= 1.2 * RENEWAL_S + 0.25
    assert pooled.trace(job_id) == ["added", "waiting", "active", "cancelled"]
    assert (pooled.starts(job_id), pooled.causes(job_id)) == (1, ["cancelled"])
    assert_revoked(pooled, job_id)


@pytest.mark.parametrize("then", ["error", "final", "snooze", "retry", "exit"])
def test_whatever_a_run_raises_after_a_cancel_is_its_stop(pooled: Bench, then: str) -> None:
    """J4: an error of its own, a permanent one, a release, a retry, an exit."""
    job_id = start_held(pooled, then)
    cancel(job_id)
    pooled.ended(job_id, "cancelled")
    assert (pooled.starts(job_id), pooled.trace(job_id)) == (1, ["added", "waiting", "active", "cancelled"])
    assert_revoked(pooled, job_id)


def test_a_run_that_returns_all_the_same_has_completed(pooled: Bench) -> None:
    """J4, SPEC 2."""
    job_id = start_held(pooled, "return")
    cancel(job_id)
    pooled.ended(job_id)
    assert pooled.trace(job_id)[-1] == "completed"
    assert pooled.result(job_id).get(timeout=5) == "done all the same"


def test_a_plain_task_has_a_token_too(pooled: Bench) -> None:
    job_id = pooled.send_plain("plain_hold")
    pooled.await_line("start", job_id)
    cancel(job_id)
    assert pooled.ended(job_id, "cancelled").cause == "cancelled"
    assert_revoked(pooled, job_id)


@pytest.mark.parametrize("kind", ["unexpected", "final"])
def test_a_job_that_fails_before_it_hears_of_its_cancel_is_cancelled(one: Bench, kind: str) -> None:
    """J4: it looks at no token, and raises while the request is on its way to it: not retried, and no failure."""
    gate = f"late-cancel-{kind}"
    job_id = one.send("fail_at_gate", {"gate": gate, "kind": kind})
    one.await_line("start", job_id)
    cancel(job_id)
    one.open(gate)
    one.ended(job_id, "cancelled")
    assert one.starts(job_id) == 1
    assert_revoked(one, job_id)
    assert "failed" not in one.trace(job_id)


def test_a_chord_one_of_whose_jobs_is_cancelled_fails(one: Bench) -> None:
    """J4, SPEC 3: nobody waits for ever."""
    header = [outcomes_app.hold.s(then="raise").set(task_id=fresh_id("member")), outcomes_app.fail.s(kinds=[])]
    result = chord(header)(outcomes_app.body.s())
    job_id = header[0].options["task_id"]
    one.await_line("start", job_id)
    cancel(job_id)
    wait_until(lambda: result.state == "FAILURE", says="the chord has failed")
    assert isinstance(result.result, ChordError)
    assert "TaskRevokedError" in str(result.result)


def test_a_cancelled_job_may_be_replayed(one: Bench) -> None:
    """SPEC 2: replay: cancelled to waiting; the request is not held against it."""
    job_id = start_held(one)
    cancel(job_id)
    one.ended(job_id, "cancelled")
    dead_letters().replay_job(job_id, "ada")
    one.ended(job_id)
    assert one.trace(job_id)[-4:] == ["cancelled", "waiting", "active", "completed"]
    assert one.result(job_id).get(timeout=5) == "done by another"


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_a_job_that_was_asked_to_stop_and_loses_its_worker_ends_cancelled(alone: Bench, pool: str) -> None:
    """J4: a restart of the worker does not forget the request; the job stalls, and does not run again."""
    victim = alone.worker(pool, concurrency=1)
    job_id = alone.send("gated", {"gate": "never"})
    alone.await_line("start", job_id)
    assert cancel(job_id) == State.ACTIVE
    victim.kill_all()
    alone.worker()
    view = alone.ended(job_id, "cancelled", within_s=15)
    assert (view.cause, alone.starts(job_id)) == ("cancelled", 1)
    assert alone.trace(job_id) == ["added", "waiting", "active", "stalled", "cancelled"]
    assert_revoked(alone, job_id)


# -- the lease is lost ----------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_the_token_of_a_run_whose_lease_another_worker_has_fires(alone: Bench, pool: str) -> None:
    """B8: given a worker that is frozen past its lease while another takes the job and completes it; thawed, its run is told
    `lease_lost` within one renewal, what it returns is refused, and that is said once."""
    frozen = alone.worker(pool, concurrency=1)
    job_id = start_held(alone, "return")
    alone.worker()
    frozen.sigstop()
    alone.ended(job_id)
    assert alone.result(job_id).get(timeout=5) == "done by another"
    thawed_at = alone.now_s()
    frozen.sigcont()
    woke = alone.await_line("woke", job_id)
    assert woke["reason"] == "lease_lost"
    assert woke["at"] - thawed_at <= 1.2 * RENEWAL_S + 0.25
    frozen.wait_for_log(f"job outcome.hold[{job_id}] has lost its lease")
    alone.ended(alone.send("fail", {"kinds": []}))
    assert alone.trace(job_id).count("completed") == 1
    assert alone.result(job_id).get(timeout=5) == "done by another"
    assert frozen.logs().count("has lost its lease") == 1


@pytest.mark.crash
def test_after_an_outage_longer_than_the_lease_the_first_run_is_told(alone: Bench) -> None:
    """H3: a stall and a second run, am 1, st 1; the first run's token fires."""
    alone.worker(concurrency=1)
    job_id = start_held(alone, "return")
    alone.stack.server.freeze()
    let_pass(LEASE_S + 2 * RENEWAL_S + REAP_MS / 1000, because="the lease has to run out, and one renewal interval after it")
    alone.stack.server.thaw()
    assert alone.await_line("woke", job_id)["reason"] == "lease_lost"
    alone.ended(job_id)
    assert (alone.counters(job_id), alone.starts(job_id)) == ((1, 2, 1), 2)
    assert alone.result(job_id).get(timeout=5) == "done by another"


# -- the worker ends ------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_a_run_that_stops_for_a_forced_shutdown_is_given_back(alone: Bench, pool: str) -> None:
    """SPEC 6, 10: its token fires with reason `shutdown`; no attempt, no stall; another worker completes it."""
    worker = alone.worker(pool, concurrency=1)
    job_id = start_held(alone)
    worker.sigterm()
    worker.sigint()
    assert alone.await_line("woke", job_id)["reason"] == "shutdown"
    worker.wait_exit()
    alone.worker()
    alone.ended(job_id)
    assert alone.trace(job_id) == ["added", "waiting", "active", "waiting", "active", "completed"]
    assert alone.counters(job_id) == (1, 2, 0)
    (run,) = alone.runs(job_id)
    assert (run.cause, run.reason) == ("released", "stopped for the shutdown of its worker")
