"""The outbox: a job that is part of its caller's transaction, on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
import redis
from celery import Celery, signals
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.utils import timezone

from queue_kit import InvalidPayload, UnknownJob, enqueue, exponential
from queue_kit.django import outbox
from queue_kit.django.conf import project_settings
from queue_kit.django.outbox_doctor import examine_outbox
from queue_kit.django.relay import BATCH, Relay
from queue_kit.states import State
from tests.support.fixtures import OwnRedis
from tests.support.waiting import Stopwatch, wait_until
from tests.worker.sending import census_of, job_of, sending


class Undone(Exception):
    """Rolls a transaction back."""


def rows(alias: str) -> Any:
    return apps.get_model("queue_kit", "OutboxJob").objects.using(alias).order_by("pk")


def states(alias: str) -> list[str]:
    return list(rows(alias).values_list("state", flat=True))


def relay(app: Celery, alias: str) -> Relay:
    return Relay(app, alias, project_settings())


def add(alias: str, value: Any = 1, **options: Any) -> str:
    """Add a job of the kind that takes anything, in a transaction of its own."""
    with transaction.atomic(using=alias):
        return outbox.add("enq.free", {"value": value}, using=alias, **options).id


@contextmanager
def running(app: Celery, alias: str) -> Iterator[Relay]:
    """A relay on a thread of its own."""
    stop, one = threading.Event(), relay(app, alias)

    def run() -> None:
        try:
            one.run(stop)
        finally:
            connections[alias].close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield one
    finally:
        stop.set()
        thread.join(15)
        assert not thread.is_alive()


# -- the caller's transaction ------------------------------------------------------------------------------------------


def test_a_row_commits_with_its_transaction_and_a_relay_sends_it(app: Celery, database: str) -> None:
    """SPEC 5."""
    with transaction.atomic(using=database):
        handle = outbox.add("enq.free", {"value": 1}, using=database, priority=3, attempts=2, backoff=exponential(50))
    assert (states(database), census_of(app).job(handle.id)) == (["pending"], None)
    assert relay(app, database).drain() is None
    assert states(database) == ["sent"]
    job = job_of(app, handle.id)
    assert (job.state, job.priority, job.name, job.queue) == (State.WAITING, 3, "enq.free", "celery")
    assert '"attempts": 2' in job.message


def test_what_is_rolled_back_leaves_no_row(app: Celery, database: str) -> None:
    """SPEC 5."""
    with pytest.raises(Undone), transaction.atomic(using=database):
        _add_and_undo(database)
    with transaction.atomic(using=database):
        with pytest.raises(Undone), transaction.atomic(using=database):
            _add_and_undo(database)
        kept = outbox.add("enq.free", using=database)
    assert list(rows(database).values_list("job_id", flat=True)) == [kept.id]


def _add_and_undo(alias: str) -> None:
    outbox.add("enq.free", using=alias)
    raise Undone


def test_what_can_never_be_sent_is_refused_to_the_caller(app: Celery, database: str) -> None:
    """The transaction goes on, and has no such row."""
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InvalidPayload, r"number: .*greater than or equal to 1", {"name": "enq.order", "payload": {"number": 0, "name": "x"}}),
        (InvalidPayload, r"at most 16384 are allowed", {"name": "enq.free", "payload": {"value": "x" * 20_000}}),
        (UnknownJob, r"did you mean enq\.free", {"name": "enq.fre"}),
        (TypeError, r"did you mean delay_ms", {"name": "enq.free", "delay": 5}),
        (ValueError, r"priority: a whole number from 0 to 9", {"name": "enq.free", "priority": 10}),
    ]
    with transaction.atomic(using=database):
        for kind, words, call in wrong:
            with pytest.raises(kind, match=words):
                outbox.add(using=database, **call)
        outbox.add("enq.free", using=database)
    assert states(database) == ["pending"]


def test_redis_is_not_asked_for_a_row(own_redis: OwnRedis, database: str) -> None:
    """H4: with Redis away a transaction is as quick as ever."""
    server = own_redis()
    with sending(server.url(), ENQUEUE_TIMEOUT_MS=30_000) as app:
        enqueue("enq.free")
        server.freeze()
        watch = Stopwatch()
        job_id = add(database)
        assert watch.elapsed_s < 20
        server.thaw()
        relay(app, database).drain()
        assert job_of(app, job_id).state == State.WAITING


def test_a_delay_counts_from_when_the_row_was_written(app: Celery, database: str) -> None:
    long_ago, now = add(database, delay_ms=60_000), add(database, delay_ms=60_000)
    rows(database).filter(job_id=long_ago).update(added_at=timezone.now() - timedelta(minutes=5))
    relay(app, database).drain()
    assert (job_of(app, long_ago).state, job_of(app, now).state) == (State.WAITING, State.DELAYED)


def test_a_correlation_id_is_that_of_the_caller(app: Celery, database: str) -> None:
    job_id = add(database, correlation_id="order:42")
    relay(app, database).drain()
    assert job_of(app, job_id).correlation_id == "order:42"


def test_listeners_of_celerys_signals_hear_of_both_ends_of_a_send(app: Celery, database: str) -> None:
    """Tracers open a span before a send and close it after; the relay, which has neither, says nothing."""
    heard: list[str] = []

    def before(**_: Any) -> None:
        heard.append("before")

    def after(**_: Any) -> None:
        heard.append("after")

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        add(database)
        relay(app, database).drain()
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    assert heard == ["before", "after"]


def test_celerys_eager_mode_runs_it_at_the_commit_without_a_row(app: Celery, database: str) -> None:
    app.conf.task_always_eager = True
    add(database)
    assert states(database) == []


# -- the relay ---------------------------------------------------------------------------------------------------------


def test_rows_are_sent_first_in_first_out_and_batch_after_batch(app: Celery, database: str) -> None:
    with transaction.atomic(using=database):
        ids = [outbox.add("enq.free", {"value": n}, using=database).id for n in range(BATCH + 5)]
    one = relay(app, database)
    assert one.send_batch().read == BATCH
    assert one.drain() is None
    assert (one.sent, set(states(database))) == (BATCH + 5, {"sent"})
    assert [job.id for job in census_of(app).jobs("celery", State.WAITING, BATCH + 5)] == ids


def test_a_running_relay_sends_what_is_committed(app: Celery, database: str) -> None:
    with running(app, database):
        for _ in range(2):
            job_id = add(database)
            wait_until(lambda job_id=job_id: census_of(app).job(job_id), says="it is sent")


def test_several_relays_at_once_send_each_row_once(app: Celery, database: str) -> None:
    with transaction.atomic(using=database):
        ids = {outbox.add("enq.free", {"value": n}, using=database).id for n in range(2 * BATCH)}

    def drain(_: int) -> int:
        try:
            one = relay(app, database)
            assert one.drain() is None
            return one.sent
        finally:
            connections[database].close()

    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(drain, range(4)))
    assert set(states(database)) == {"sent"}
    waiting = [job.id for job in census_of(app).jobs("celery", State.WAITING, 3 * BATCH)]
    assert (len(waiting), set(waiting)) == (len(ids), ids)
    if connections[database].vendor == "postgresql":
        assert sum(sent) == len(ids)


def test_of_rows_that_another_relay_holds_none_is_waited_for(app: Celery, database: str) -> None:
    """SKIP LOCKED, on PostgreSQL; SQLite locks no rows, and there the ids keep a second send harmless."""
    held, free = add(database), add(database)
    if connections[database].vendor != "postgresql":
        assert [relay(app, database).send_batch().read for _ in range(2)] == [2, 0]
        return
    with ThreadPoolExecutor(1) as pool, transaction.atomic(using=database):
        list(rows(database).select_for_update().filter(job_id=held))
        assert pool.submit(_drained_elsewhere, app, database).result(20) == 1
    assert (census_of(app).job(held), job_of(app, free).state) == (None, State.WAITING)
    assert relay(app, database).send_batch().read == 1


def _drained_elsewhere(app: Celery, alias: str) -> int:
    try:
        one = relay(app, alias)
        one.drain()
        return one.sent
    finally:
        connections[alias].close()


def test_a_row_that_was_sent_and_not_marked_is_one_job(app: Celery, database: str) -> None:
    """E9: as after a kill between the two; also when the job has run and ended meanwhile."""
    job_id = add(database)
    relay(app, database).drain()
    rows(database).update(state="pending")
    relay(app, database).drain()
    assert states(database) == ["sent"]
    assert [job.id for job in census_of(app).jobs("celery", State.WAITING)] == [job_id]


def test_a_key_that_is_taken_is_noted_with_the_job_that_has_it(app: Celery, database: str) -> None:
    """E1."""
    first = enqueue("enq.free", idempotency_key="k")
    add(database, idempotency_key="k")
    own = add(database, idempotency_key="other")
    relay(app, database).drain()
    assert list(rows(database).values_list("state", "sent_as")) == [("sent", first.id), ("sent", "")]
    assert job_of(app, own).state == State.WAITING


# -- what goes wrong ---------------------------------------------------------------------------------------------------

_HALF = json.dumps({
    "message": {"body": None, "queue": "celery", "name": "x", "nesting": 0}, "when": {}, "priority": 0, "expires_at_ms": None,
    "correlation_id": "", "unique": None,
})  # fmt: skip
#: A row that no relay can send, and what is said of it.
SPOILT: dict[str, tuple[Callable[[str, str, redis.Redis], Any], str]] = {
    "no posting": (
        lambda alias, job, client: rows(alias).filter(job_id=job).update(posting="{}"), "no job can be read from it: 'when'",
    ),
    "no JSON": (
        lambda alias, job, client: rows(alias).filter(job_id=job).update(posting="<script>"), "no job can be read from it",
    ),
    "half a posting": (
        lambda alias, job, client: rows(alias).filter(job_id=job).update(posting=_HALF), "has not been written by queue_kit",
    ),
    "something else at its place": (
        lambda alias, job, client: client.set(f"qwk:job:{job}", "not a record"), "WRONGTYPE",
    ),
}  # fmt: skip


@pytest.mark.leaves("qwk:job:*")
@pytest.mark.parametrize("fault", SPOILT)
def test_a_row_that_can_never_be_sent_is_marked_and_holds_up_nobody(
    app: Celery, client: redis.Redis, database: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, words = SPOILT[fault]
    before, spoilt, after = add(database), add(database), add(database)
    spoil(database, spoilt, client)
    with caplog.at_level(logging.ERROR, "queue_kit.django.relay"):
        one = relay(app, database)
        assert one.drain() is None
    assert states(database) == ["sent", "failed", "sent"]
    assert words in rows(database).get(job_id=spoilt).error
    assert "can never be sent" in caplog.text
    assert [job_of(app, job).state for job in (before, after)] == [State.WAITING] * 2
    assert (one.sent, one.failed) == (2, 1)


@pytest.mark.leaves("qwk:job:*")
def test_a_failed_row_is_tried_again_when_somebody_says_so(app: Celery, client: redis.Redis, database: str) -> None:
    job_id = add(database)
    client.set(f"qwk:job:{job_id}", "not a record")
    with pytest.raises(CommandError, match="0 sent, 1 failed") as ended:
        call_command("outbox_relay", "--once", f"--database={database}", stderr=StringIO())
    assert ended.value.returncode == 3
    client.delete(f"qwk:job:{job_id}")
    said = StringIO()
    call_command("outbox_relay", "--once", "--retry-failed", f"--database={database}", stdout=said, stderr=StringIO())
    assert said.getvalue() == "1 to be tried again\n1 sent, 0 failed\n"
    assert (states(database), rows(database).get().error) == (["sent"], "")


@pytest.mark.leaves("qwk:job:*")
def test_what_a_restored_redis_has_forgotten_is_sent_again_under_its_id(app: Celery, client: redis.Redis, database: str) -> None:
    """A job that it still knows stays one job; a row sent before that time is left alone."""
    old, forgotten = add(database), add(database)
    assert relay(app, database).drain() is None
    client.flushdb()
    known = add(database)
    assert relay(app, database).drain() is None
    rows(database).filter(job_id=old).update(sent_at=timezone.now() - timedelta(hours=3))
    said = StringIO()
    call_command("outbox_relay", "--once", "--sent-since=2h", f"--database={database}", stdout=said, stderr=StringIO())
    assert said.getvalue() == "2 to be sent again\n2 sent, 0 failed\n"
    assert [census_of(app).job(job_id) is None for job_id in (old, known, forgotten)] == [True, False, False]
    assert job_of(app, known).state is State.WAITING


def test_while_redis_is_away_rows_wait_and_it_is_said_once(
    own_redis: OwnRedis, database: str, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    """H4: and they are sent when it is back."""
    settings.QUEUE_KIT = {"REDIS_RETRY_MAX_MS": 200}
    server = own_redis()
    with sending(server.url(), ENQUEUE_TIMEOUT_MS=200) as app, caplog.at_level(logging.INFO, "queue_kit.django.relay"):
        server.stop()
        with running(app, database) as one:
            job_id = add(database)
            wait_until(lambda: one._troubles > 3, says="it has tried several times", within_s=20)
            assert states(database) == ["pending"]
            server.start()
            wait_until(lambda: states(database) == ["sent"], says="it is sent", within_s=20)
            wait_until(lambda: not one._troubles, says="the relay knows that it is over")
        assert job_of(app, job_id).state == State.WAITING
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert [line.partition(":")[0] for line in said] == ["rows wait, going on trying", "rows are sent again"]


def test_with_redis_away_the_command_says_so_by_its_status(own_redis: OwnRedis, database: str) -> None:
    server = own_redis()
    with sending(server.url(), ENQUEUE_TIMEOUT_MS=200):
        add(database)
        server.stop()
        with pytest.raises(CommandError, match="0 sent, 0 failed, the rest waits: the queue is not available") as ended:
            call_command("outbox_relay", "--once", f"--database={database}", stderr=StringIO())
    assert ended.value.returncode == 4
    assert states(database) == ["pending"]


def test_rows_that_were_sent_are_kept_for_a_while_and_then_forgotten(app: Celery, database: str, settings: Any) -> None:
    """Those that failed stay until somebody has looked."""
    settings.QUEUE_KIT = {"OUTBOX_KEEP_S": 3600}
    for _ in range(4):
        add(database)
    relay(app, database).drain()
    old, young, failed, pending = rows(database)
    hour_ago = timezone.now() - timedelta(seconds=3601)
    rows(database).exclude(pk=young.pk).update(sent_at=hour_ago)
    rows(database).filter(pk=failed.pk).update(state="failed")
    rows(database).filter(pk=pending.pk).update(state="pending")
    relay(app, database).drain()
    assert list(rows(database).values_list("pk", flat=True)) == [young.pk, failed.pk, pending.pk]
    assert old.pk not in rows(database).values_list("pk", flat=True)


def test_a_project_without_the_table_is_told_what_to_do(app: Celery, database: str) -> None:
    with connections[database].cursor() as cursor:
        cursor.execute("DROP TABLE queue_kit_outboxjob")
    with pytest.raises(CommandError, match=r"is `manage\.py migrate queue_kit` done\?") as ended:
        call_command("outbox_relay", "--once", f"--database={database}", stderr=StringIO())
    assert ended.value.returncode == 1


# -- what the doctor says ----------------------------------------------------------------------------------------------


def verdicts(alias: str) -> list[tuple[str, str]]:
    return [(str(one.verdict), one.says) for one in examine_outbox() if f"database {alias}" in one.says]


@pytest.mark.django_db
def test_the_doctor_finds_rows_that_nobody_sends_and_rows_that_nobody_can(app: Celery, database: str) -> None:
    assert verdicts(database) == [("ok", f"nothing is stuck in that of database {database}")]
    add(database)
    assert verdicts(database)[0][0] == "ok"
    rows(database).update(added_at=timezone.now() - timedelta(minutes=5))
    [(verdict, says)] = verdicts(database)
    assert (verdict, says.partition(", the oldest")[0]) == ("bad", f"1 rows wait in database {database}")
    rows(database).update(state="failed")
    assert verdicts(database) == [("warn", f"1 rows in database {database} can never be sent as they are")]
    with connections[database].cursor() as cursor:
        cursor.execute("DROP TABLE queue_kit_outboxjob")
    assert verdicts(database) == []
