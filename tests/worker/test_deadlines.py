"""Deadlines: the token fires, then the run is interrupted, then its process is killed; each time that is an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.outcomes_app import GRACE_MS, KILL_MS
from tests.support.processes import is_alive
from tests.support.waiting import wait_until
from tests.worker.outcomes import POOLS, Bench, attend, bench

TIMEOUT_S, GRACE_S, KILL_S = 0.3, GRACE_MS / 1000, KILL_MS / 1000


def slack(seconds: float) -> float:
    """The upper bound of a time that has to be met."""
    return 1.2 * seconds + 0.25


@pytest.fixture(scope="module", params=POOLS)
def pooled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """A bench for each pool, with a worker of one slot."""
    with bench(tmp_path_factory.mktemp(request.param)) as made:
        made.worker(request.param, concurrency=1)
        yield made


@pytest.fixture(scope="module")
def prefork(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """A bench with a prefork worker of one slot."""
    with bench(tmp_path_factory.mktemp("prefork")) as made:
        made.worker(concurrency=1)
        yield made


@pytest.fixture
def alone(tmp_path: Path, engine: Path) -> Iterator[Bench]:
    """A bench of this test's own, without a worker."""
    with bench(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def attended(request: pytest.FixtureRequest) -> None:
    attend(request, "pooled", "prefork", "alone")


# -- the token ------------------------------------------------------------------------------------------------------------


def test_a_run_that_heeds_the_token_fails_as_timed_out_and_is_retried(pooled: Bench) -> None:
    """J1: on every pool; the second attempt completes."""
    job_id = pooled.send("heed", {"always": False})
    pooled.ended(job_id)
    start, woke = pooled.book("start", job_id)[0], pooled.book("woke", job_id)[0]
    assert (woke["reason"], woke["went_on"]) == ("timeout", False)
    assert 0 < start["left_s"] <= TIMEOUT_S
    assert 0.9 * TIMEOUT_S <= woke["at"] - start["at"] <= slack(TIMEOUT_S)
    (run,) = pooled.runs(job_id)
    assert (run.cause, run.reason) == ("timeout", "JobTimeoutError: the job ran past its deadline of 300 ms")
    assert pooled.counters(job_id) == (2, 2, 0)


def test_a_deadline_on_the_last_attempt_is_the_cause_of_its_end(pooled: Bench) -> None:
    """J1, SPEC 7: retryable, and `timeout` when it was the last."""
    job_id = pooled.send("heed")
    view = pooled.ended(job_id, "failed")
    assert (view.cause, pooled.counters(job_id)) == ("timeout", (2, 2, 0))
    assert pooled.trace(job_id)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]
    letter = pooled.letter(job_id)
    assert (letter["cause"], letter["error_class"]) == ("timeout", "JobTimeoutError")
    assert pooled.causes(job_id) == ["timeout", "timeout"]


def test_a_run_that_ends_within_the_grace_completes(pooled: Bench) -> None:
    """SPEC 7: it had been told, and was done all the same."""
    job_id = pooled.send("late")
    pooled.ended(job_id)
    assert [line["reason"] for line in pooled.book("late", job_id)] == ["timeout"]
    assert (pooled.counters(job_id), pooled.runs(job_id)) == ((1, 1, 0), [])


@pytest.mark.parametrize(
    ("name", "options", "left_s"),
    [("left", {}, 30), ("left_of_task", {}, 5), ("left", {"timeout_ms": 2_000}, 2), ("left_of_task", {"timeout_ms": 8_000}, 8)],
)
def test_the_calls_deadline_wins_over_the_tasks_and_that_over_the_settings(
    prefork: Bench, name: str, options: dict[str, int], left_s: float
) -> None:
    """SPEC 7: 30 s by default."""
    job_id = prefork.send(name, **options)
    prefork.ended(job_id)
    assert left_s - 0.5 < prefork.result(job_id).get(timeout=5) <= left_s


# -- interrupted ----------------------------------------------------------------------------------------------------------


def test_a_run_that_ignores_the_token_is_interrupted_after_the_grace(pooled: Bench) -> None:
    """J2: pure Python; in prefork and solo also where it never pauses, in gevent where it lets others run. Threads cannot."""
    pool = pooled.stack.workers[0].pool
    if pool == "threads":
        return  # see the test after this
    job_id = pooled.send("ignore", {"how": "sleepy" if pool == "gevent" else "busy"})
    view = pooled.ended(job_id, "failed")
    starts, interrupted = pooled.book("start", job_id), pooled.book("interrupted", job_id)
    assert (len(starts), len(interrupted), view.cause, pooled.counters(job_id)) == (2, 2, "timeout", (2, 2, 0))
    for start, end in zip(starts, interrupted, strict=True):
        assert 0.9 * (TIMEOUT_S + GRACE_S) <= end["at"] - start["at"] <= slack(TIMEOUT_S + GRACE_S)
    assert pooled.causes(job_id) == ["timeout", "timeout"]


def test_in_the_threads_pool_a_job_stays_active_until_its_function_returns(pooled: Bench) -> None:
    """SPEC 7: a thread cannot be interrupted; what it then returns counts."""
    if pooled.stack.workers[0].pool != "threads":
        return
    job_id = pooled.send("late", {"seconds": 0.2 + GRACE_S + KILL_S + 0.4})
    pooled.ended(job_id)
    assert (pooled.counters(job_id), pooled.runs(job_id)) == ((1, 1, 0), [])


def test_a_stray_signal_of_one_run_does_not_hit_the_next(prefork: Bench) -> None:
    """A child that got the soft limit's signal late is already at its next job, which has time left."""
    job_id = prefork.send("gated", {"gate": "stray"})
    child = prefork.await_line("start", job_id)["pid"]
    prefork.signal_soft_limit(child)
    prefork.open("stray")
    prefork.ended(job_id)
    assert prefork.counters(job_id) == (1, 1, 0)


# -- killed ---------------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_a_run_that_is_stuck_in_c_is_killed(prefork: Bench) -> None:
    """J3: an attempt is spent, the slot is free, and the work has stopped."""
    job_id = prefork.send("stuck", {"runs": 1})
    stuck = prefork.await_line("start", job_id)
    again = prefork.await_line("start", job_id, 2)
    wait_until(lambda: not is_alive(stuck["pid"]), says="the stuck process is gone", within_s=2)
    prefork.ended(job_id)
    assert again["pid"] != stuck["pid"]
    assert again["at"] - stuck["at"] >= 0.9 * (TIMEOUT_S + GRACE_S + KILL_S)
    assert prefork.counters(job_id) == (2, 2, 0)
    (run,) = prefork.runs(job_id)
    assert run.cause == "timeout"
    assert "and was killed after 0.9 s" in run.reason
    prefork.ended(prefork.send("fail", {"kinds": []}))


@pytest.mark.crash
def test_a_run_that_is_killed_on_its_last_attempt_fails_once(prefork: Bench) -> None:
    """J3, I9, K5: one failure, one dead letter, cause `timeout`; its callers hear of it."""
    job_id = prefork.send("stuck", attempts=1)
    view = prefork.ended(job_id, "failed")
    assert (view.cause, prefork.counters(job_id)) == ("timeout", (1, 1, 0))
    assert prefork.trace(job_id)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]
    assert prefork.letter(job_id)["cause"] == "timeout"
    wait_until(lambda: prefork.result(job_id).state == "FAILURE", says="its callers are told")


@pytest.mark.crash
def test_a_run_that_swallows_the_error_is_killed_later(prefork: Bench) -> None:
    """SPEC 7: the hard limit does not ask."""
    job_id = prefork.send("swallow")
    view = prefork.ended(job_id, "failed")
    assert (view.cause, bool(prefork.book("swallowed"))) == ("timeout", True)


def test_a_limit_of_celerys_own_keeps_its_own_error(prefork: Bench) -> None:
    """SPEC 7: a `soft_time_limit` is what the task asked for, and raises what Celery documents."""
    job_id = prefork.send("own_limit")
    view = prefork.ended(job_id, "failed")
    assert (view.cause, prefork.letter(job_id)["error_class"]) == ("timeout", "SoftTimeLimitExceeded")
    assert len(prefork.book("soft limit")) == 1


@pytest.mark.crash
def test_in_solo_a_run_that_nothing_can_end_is_given_up_at_its_hard_limit(alone: Bench) -> None:
    """SPEC 4, 7: a job that runs in the main loop counts as its beat up to its hard limit; then its lease runs out, the job
    stalls, and another worker takes it."""
    alone.worker("solo", concurrency=1)
    job_id = alone.send("stone")
    alone.await_line("start", job_id)
    alone.worker()
    alone.ended(job_id)
    assert alone.trace(job_id) == ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]
    assert alone.counters(job_id) == (1, 2, 1)


# -- plain tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_a_plain_task_is_never_cut(alone: Bench, pool: str) -> None:
    """K18: with a deadline of 100 ms for declared jobs, and grace and kill soon after."""
    alone.worker(pool, env={"JOB_TIMEOUT_MS": "100", "JOB_TIMEOUT_GRACE_MS": "0", "JOB_TIMEOUT_KILL_MS": "100"})
    job_id = alone.send_plain("plain_long", args=[1.2])
    alone.ended(job_id)
    (line,) = alone.book("plain", job_id)
    assert (line["reason"], line["left_s"]) == (None, None)
    assert alone.counters(job_id) == (1, 1, 0)
