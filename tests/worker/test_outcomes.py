"""What a run's end becomes: retried, failed, given back, put off, and how each is told and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_kit import fixed
from tests.apps import outcomes_app
from tests.support.waiting import wait_until
from tests.worker.outcomes import POOLS, QUEUE, Bench, attend, bench


@pytest.fixture(scope="module", params=POOLS)
def pooled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """A bench for each pool, with a worker of one slot."""
    with bench(tmp_path_factory.mktemp(request.param)) as made:
        made.worker(request.param, concurrency=1)
        yield made


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Bench]:
    """A bench with a prefork worker."""
    with bench(tmp_path_factory.mktemp("outcomes")) as made:
        made.worker()
        yield made


@pytest.fixture(autouse=True)
def attended(request: pytest.FixtureRequest) -> None:
    attend(request, "pooled", "one")


# -- released: no attempt, and nobody is told ---------------------------------------------------------------------------

TASKS = ("release", "plain_release", "autoretried_release")


def send(bench: Bench, task: str, kind: str, times: int = 1) -> str:
    kwargs = {"kind": kind, "times": times}
    return bench.send(task, kwargs) if task == "release" else bench.send_plain(task, kwargs=kwargs)


@pytest.mark.parametrize("task", TASKS)
def test_a_snoozed_job_runs_again_after_its_time_and_has_made_no_attempt(pooled: Bench, task: str) -> None:
    """A11: snooze 200 ms, then complete: more than 200 ms, am 1, as 2; whether declared, plain, or retried on everything."""
    job_id = send(pooled, task, "snooze")
    view = pooled.ended(job_id)
    assert pooled.trace(job_id) == ["added", "waiting", "active", "delayed", "waiting", "active", "completed"]
    assert pooled.at_ms(job_id, "active", 1) - pooled.at_ms(job_id, "delayed") >= 200
    assert (pooled.counters(job_id), view.reason) == ((1, 2, 0), "")
    assert pooled.result(job_id).get(timeout=5) == "done"
    (run,) = pooled.runs(job_id)
    assert (run.cause, run.reason) == ("released", "snoozed for 200 ms")


@pytest.mark.parametrize("task", TASKS)
def test_a_job_that_is_given_back_is_the_next_one(pooled: Bench, task: str) -> None:
    """A11: trace … active waiting active completed, am 1; at the head, whatever else waits."""
    job_id = send(pooled, task, "give_back")
    pooled.ended(job_id)
    assert pooled.trace(job_id) == ["added", "waiting", "active", "waiting", "active", "completed"]
    assert pooled.counters(job_id) == (1, 2, 0)
    assert pooled.starts(job_id) == 2


def test_a_rate_limited_job_holds_its_queue_off(pooled: Bench) -> None:
    """D5 and SPEC 6: back in waiting, attempts untouched, nothing of the queue begins for 250 ms, then it is the next."""
    job_id = pooled.send("release", {"kind": "limited"})
    wait_until(lambda: pooled.trace(job_id)[-2:] == ["active", "waiting"], says="it has gone back")
    other = pooled.send("release", {"kind": "give_back", "times": 0})
    pooled.ended(other)
    went_back = pooled.at_ms(job_id, "waiting", 1)
    assert pooled.at_ms(job_id, "active", 1) - went_back >= 250
    assert pooled.at_ms(other, "active") - went_back >= 250
    assert pooled.at_ms(job_id, "active", 1) <= pooled.at_ms(other, "active")
    assert pooled.counters(job_id) == (1, 2, 0)


def test_a_job_may_go_back_more_often_than_it_has_attempts(one: Bench) -> None:
    """SPEC 1: a release is never an attempt; nothing is stored as a failure meanwhile."""
    job_id = one.send("release", {"kind": "give_back", "times": 6})
    one.ended(job_id)
    assert one.counters(job_id) == (1, 7, 0)
    assert one.stack.dead_letters(job_id) == []
    assert "FAILURE" not in one.stack.workers[0].logs()


# -- failed ---------------------------------------------------------------------------------------------------------------


def test_what_failed_twice_and_then_completed_keeps_both_failures(pooled: Bench) -> None:
    """A10: start, end, worker, cause and message of each."""
    job_id = pooled.send("fail", {"kinds": ["transient", "unexpected"]})
    view = pooled.ended(job_id)
    first, second = pooled.runs(job_id)
    assert (first.cause, first.reason) == ("transient", "TransientError: no answer")
    assert (second.cause, second.reason) == ("unexpected", "KeyError: 'seat'")
    assert first.worker == second.worker == view.worker != ""
    assert view.added_at_ms is not None
    assert view.added_at_ms <= first.started_at_ms <= first.ended_at_ms <= second.started_at_ms <= second.ended_at_ms
    assert pooled.counters(job_id) == (3, 3, 0)


@pytest.mark.parametrize("kind", ["final", "gone", "reject", "not there"])
def test_a_permanent_error_ends_it_at_the_second_of_three_attempts(pooled: Bench, kind: str) -> None:
    """A7, A9: 2 starts, failed, am 2, no `retries-exhausted`, cause `non_retryable`; also a subclass raised in a child."""
    job_id = pooled.send("fail", {"kinds": ["transient", kind]})
    view = pooled.ended(job_id, "failed")
    assert pooled.counters(job_id) == (2, 2, 0)
    assert "retries-exhausted" not in pooled.trace(job_id)
    assert (view.cause, pooled.letter(job_id)["cause"]) == ("non_retryable", "non_retryable")
    assert pooled.causes(job_id) == ["transient", "non_retryable"]


def test_attempts_that_run_out_are_said_to(pooled: Bench) -> None:
    """A3: three starts, exhausted, one dead letter."""
    job_id = pooled.send("fail", {"kinds": ["unexpected"] * 9})
    pooled.ended(job_id, "failed")
    assert pooled.trace(job_id)[-3:] == ["failed", "retries-exhausted", "dead-lettered"]
    assert (pooled.counters(job_id), pooled.letter(job_id)["cause"]) == ((3, 3, 0), "exhausted")
    assert pooled.result(job_id).state == "FAILURE"


def test_an_error_that_cannot_be_pickled_is_settled_with_its_text(pooled: Bench) -> None:
    """A9."""
    job_id = pooled.send("fail", {"kinds": ["unspeakable"] * 9}, attempts=1)
    pooled.ended(job_id, "failed")
    letter = pooled.letter(job_id)
    assert (letter["error_class"], letter["cause"]) == ("Unspeakable", "exhausted")
    assert "what it is" in letter["reason"]


def test_a_plain_task_that_retries_everything_does_not_retry_what_cannot_succeed(one: Bench) -> None:
    """SPEC 6: NonRetryableError is never retried."""
    job_id = one.send_plain("plain_final")
    one.ended(job_id, "failed")
    assert (one.starts(job_id), one.letter(job_id)["cause"]) == (1, "non_retryable")


def test_an_invalid_payload_found_at_the_worker_names_its_field(one: Bench) -> None:
    """A8: H never starts, one attempt, dead letter whose reason names cause and field; the worker goes on."""
    stranger = outcomes_app.make(one.stack.broker_url)
    assert stranger.tasks.pop("outcome.typed")  # who does not know the job does not know its payload either
    job_id = str(stranger.send_task("outcome.typed", kwargs={"row": "front", "place": "a"}).id)
    one.ended(job_id, "failed")
    letter = one.letter(job_id)
    assert (letter["cause"], one.starts(job_id), one.counters(job_id)) == ("invalid_payload", 0, (1, 1, 0))
    assert "row: Input should be a valid integer" in letter["reason"]
    assert one.ended(one.send("typed", {"row": 3, "place": "a"})).state == "completed"


def test_a_run_that_says_it_is_cancelled_without_being_asked_ends_cancelled(one: Bench) -> None:
    """SPEC 6: it stops for good, and that is no failure."""
    job_id = one.send("fail", {"kinds": ["cancelled"]})
    assert one.ended(job_id, "cancelled").cause == "cancelled"
    assert (one.starts(job_id), one.stack.dead_letters(job_id)) == (1, [])
    wait_until(lambda: one.result(job_id).state == "REVOKED", says="its callers are told")


# -- how long a retry waits -----------------------------------------------------------------------------------------------


def test_a_backoff_of_ones_own_chooses_by_the_error(pooled: Bench) -> None:
    """A6: it is handed the exception and can choose by its class; "stop" → failed there, and nothing was exhausted."""
    job_id = pooled.send("choosy", {"kinds": ["transient", "unexpected", "transient"]})
    view = pooled.ended(job_id, "failed")
    assert pooled.counters(job_id) == (2, 2, 0)
    assert (view.cause, "retries-exhausted" in pooled.trace(job_id)) == ("non_retryable", False)
    assert pooled.at_ms(job_id, "active", 1) - pooled.at_ms(job_id, "delayed") >= 40
    asked = [(line["error"], line["attempts_made"]) for line in pooled.book("asked")]
    assert asked[-2:] == [("TransientError", 1), ("KeyError", 2)]


def test_a_backoff_that_stops_at_once_leaves_one_start(one: Bench) -> None:
    """A6: one start, failed."""
    job_id = one.send("choosy", {"kinds": ["unexpected"]})
    one.ended(job_id, "failed")
    assert (one.starts(job_id), one.counters(job_id)) == (1, (1, 1, 0))
    assert "KeyError" in one.letter(job_id)["reason"]


def test_a_backoff_that_fails_does_not_take_the_job_with_it(one: Bench) -> None:
    """The wait is then that of the settings, and the job's own error is what is kept."""
    job_id = one.send("broken_backoff", {"kinds": ["transient", "unexpected"]})
    one.ended(job_id)
    assert one.causes(job_id) == ["transient", "unexpected"]
    assert "the backoff function" in one.stack.workers[0].logs()


def test_a_server_that_says_when_is_left_alone_until_then(one: Bench) -> None:
    """SPEC 6: `Retry-After` is kept: the job, whose own backoff is 0, waits the 0.6 s that a 503 asked for."""
    job_id = one.send("fail", {"kinds": ["busy"]})
    one.ended(job_id)
    assert one.at_ms(job_id, "active", 1) - one.at_ms(job_id, "active") >= 600
    assert one.causes(job_id) == ["transient"]


def test_the_calls_policy_wins_over_the_tasks(one: Bench) -> None:
    """SPEC 6: call over task over setting; the declared job has 3 attempts without a wait."""
    job_id = one.send("fail", {"kinds": ["transient"] * 9}, attempts=2, backoff=fixed(30))
    one.ended(job_id, "failed")
    assert one.counters(job_id) == (2, 2, 0)
    assert one.at_ms(job_id, "active", 1) - one.at_ms(job_id, "delayed") >= 30


# -- what a run says ------------------------------------------------------------------------------------------------------


def test_a_run_says_how_far_it_is_and_writes_its_log(pooled: Bench) -> None:
    """SPEC 6: `progress(value)`, `log(line)`, correlation id, idempotency key."""
    job_id = pooled.send("say", correlation_id="c-7", idempotency_key="welcome:42", idempotency_ttl_ms=1)
    view = pooled.ended(job_id)
    assert view.progress == {"pages": [1, 2], "of": "é"}
    assert [(line.line, line.attempt) for line in pooled.census.log(job_id)] == [("first line", 1), ("second line", 1)]
    said = [event.fields["value"] for event in pooled.census.timeline(job_id) if event.kind == "progress"]
    assert said == ["25", '{"pages": [1, 2], "of": "\\u00e9"}']
    assert pooled.result(job_id).get(timeout=5) == ["c-7", "outcome.say/welcome:42", QUEUE, "outcome.say", False]


def test_without_a_key_of_its_own_the_jobs_id_is_handed_on(one: Bench) -> None:
    job_id = one.send("say")
    one.ended(job_id)
    assert one.result(job_id).get(timeout=5)[1] == job_id
