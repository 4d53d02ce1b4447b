"""enqueue_on_commit(): sent with the commit of the right database, by a handle that is known before it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from celery import Celery
from django.db import connections, transaction

from queue_kit import InvalidPayload, QueueUnavailable, UnknownJob, UnsupportedOperation, enqueue
from queue_kit.django import OnCommit, enqueue_on_commit
from queue_kit.states import State
from tests.support.fixtures import OwnRedis
from tests.support.waiting import Stopwatch
from tests.worker.sending import census_of, job_of, sending


class Undone(Exception):
    """Rolls a transaction back."""


def test_the_id_is_known_before_the_commit_and_the_job_is_there_after_it(app: Celery, database: str) -> None:
    """SPEC 5."""
    with transaction.atomic(using=database):
        handle = enqueue_on_commit("enq.free", {"value": 1}, using=database, priority=3)
        assert handle == OnCommit(handle.id)
        assert census_of(app).job(handle.id) is None
    assert handle == OnCommit(handle.id, sent=True)
    assert (job_of(app, handle.id).state, job_of(app, handle.id).priority) == (State.WAITING, 3)


def test_what_is_rolled_back_is_not_sent_nor_what_a_savepoint_takes_back(app: Celery, database: str) -> None:
    """SPEC 5."""
    handles: list[OnCommit] = []

    def undone() -> None:
        with transaction.atomic(using=database):
            handles.append(enqueue_on_commit("enq.free", using=database))
            raise Undone

    with pytest.raises(Undone):
        undone()
    with transaction.atomic(using=database):
        with pytest.raises(Undone):
            undone()
        kept = enqueue_on_commit("enq.free", using=database)
    assert [(one.sent, one.error, census_of(app).job(one.id)) for one in handles] == [(False, None, None)] * 2
    assert kept.sent


def test_outside_a_transaction_it_is_sent_at_once(app: Celery, database: str) -> None:
    handle = enqueue_on_commit("enq.free", using=database)
    assert handle.sent
    assert job_of(app, handle.id).state == State.WAITING


@pytest.mark.django_db(transaction=True)
def test_each_database_has_its_own_commit(app: Celery, database: str) -> None:
    """Given a transaction on each of two databases, the job goes with the one that it names."""
    with transaction.atomic(using=database):
        with transaction.atomic():
            own, theirs = enqueue_on_commit("enq.free"), enqueue_on_commit("enq.free", using=database)
        assert (own.sent, theirs.sent) == (True, False)
    assert theirs.sent


def test_what_is_wrong_is_told_to_the_caller_before_the_commit(app: Celery, database: str) -> None:
    with transaction.atomic(using=database):
        with pytest.raises(InvalidPayload, match=r"enq\.order: number: .*greater than or equal to 1"):
            enqueue_on_commit("enq.order", {"number": 0, "name": "x"}, using=database)
        with pytest.raises(UnknownJob, match=r"did you mean enq\.free"):
            enqueue_on_commit("enq.fre", using=database)
        with pytest.raises(TypeError, match="did you mean delay_ms"):
            enqueue_on_commit("enq.free", delay=5, using=database)
        with pytest.raises(InvalidPayload, match="at most 16384 are allowed"):
            enqueue_on_commit("enq.free", {"value": "x" * 20_000}, using=database)
    assert census_of(app).queues() == []


def test_the_payload_is_that_of_the_call(app: Celery, database: str) -> None:
    """What the caller changes afterwards does not reach the job."""
    payload = {"value": "then"}
    with transaction.atomic(using=database):
        handle = enqueue_on_commit("enq.free", payload, using=database)
        payload["value"] = "later"
    message = job_of(app, handle.id).message
    assert "then" in message
    assert "later" not in message


def test_a_key_that_is_taken_gives_the_id_of_the_job_that_is_there(app: Celery, database: str) -> None:
    """E1."""
    first = enqueue("enq.free", idempotency_key="k")
    with transaction.atomic(using=database):
        again = enqueue_on_commit("enq.free", using=database, idempotency_key="k")
    assert again == OnCommit(first.id, sent=True, deduplicated=True, existing_state="waiting")


# -- Redis is away -----------------------------------------------------------------------------------------------------


def test_with_redis_down_at_the_commit_it_stands_and_other_hooks_run(
    own_redis: OwnRedis, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """H4: the handle tells the error, the log says it once, and the same id may be sent again."""
    server, told = own_redis(), []
    with sending(server.url()) as app:
        server.stop()
        with caplog.at_level(logging.ERROR, "queue_kit.django.on_commit"), transaction.atomic(using=database):
            with connections[database].cursor() as cursor:
                cursor.execute("INSERT INTO effects (key) VALUES ('k')")
            handle = enqueue_on_commit("enq.free", using=database)
            transaction.on_commit(lambda: told.append("the next hook"), using=database)
        assert isinstance(handle.error, QueueUnavailable)
        assert (handle.sent, handle.error.job_id, handle.error.sent) == (False, handle.id, "no")
        assert told == ["the next hook"]
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
            f"job enq.free[{handle.id}] was not sent, though its transaction has committed"
        ]
        assert _effects(database) == 1
        server.start()
        assert enqueue("enq.free", job_id=handle.error.job_id).deduplicated is False
        assert job_of(app, handle.id).state == State.WAITING


def test_with_redis_frozen_many_jobs_of_one_commit_wait_once(own_redis: OwnRedis, database: str) -> None:
    """H4: a thousand sends of one transaction do not hold a request a thousand times as long; the next one tries again."""
    server = own_redis()
    with sending(server.url(), ENQUEUE_TIMEOUT_MS=500):
        enqueue("enq.free")
        server.freeze()
        watch = Stopwatch()
        with transaction.atomic(using=database):
            handles = [enqueue_on_commit("enq.free", using=database) for _ in range(20)]
        assert watch.elapsed_s < 5
        assert [_sent(handle) for handle in handles] == ["unknown", *["no"] * 19]
        server.thaw()
        with transaction.atomic(using=database):
            again = enqueue_on_commit("enq.free", using=database, job_id=handles[0].id)
        assert again.sent


def _sent(handle: OnCommit) -> str:
    assert isinstance(handle.error, QueueUnavailable)
    return handle.error.sent


def _effects(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM effects")
        return int(cursor.fetchone()[0])


# -- other ways --------------------------------------------------------------------------------------------------------


def test_celerys_eager_mode_runs_it_at_the_commit(app: Celery, database: str) -> None:
    """As in a project's own tests; nothing is sent."""
    app.conf.task_always_eager = True
    with transaction.atomic(using=database):
        with pytest.raises(InvalidPayload):
            enqueue_on_commit("enq.order", {"number": 0, "name": "x"}, using=database)
        handle = enqueue_on_commit("enq.order", {"number": 1, "name": "x"}, using=database)
        assert not handle.sent
    assert handle.sent
    assert census_of(app).queues() == []


def test_in_eager_mode_a_test_sees_what_the_job_raises(app: Celery, database: str) -> None:
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    with pytest.raises(InvalidPayload, match="at the worker"), transaction.atomic(using=database):
        enqueue_on_commit("enq.refuse", using=database)


def test_what_must_go_through_an_exchange_is_refused_and_not_sent_early(app: Celery, database: str) -> None:
    """Kombu would publish it at once, whatever becomes of the transaction."""
    routes: dict[str, Any] = {"enq.free": {"exchange": "elsewhere", "routing_key": "x"}}
    app.conf.task_routes = routes
    with (
        pytest.raises(UnsupportedOperation, match=r"enq\.free: it goes through an exchange of its own and cannot be kept"),
        transaction.atomic(using=database),
    ):
        enqueue_on_commit("enq.free", using=database)
