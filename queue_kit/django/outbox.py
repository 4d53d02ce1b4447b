"""Writes a job into the caller's own transaction; without it a process that dies between commit and send would lose the job,
and one sent before the commit could run for a row that never was.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import router, transaction

from queue_kit.transport.stored import as_text
from queue_kit.worker.sending.enqueue import Enqueued
from queue_kit.worker.sending.prepare import Prepared, prepare


def add(name: str, payload: Any = None, *, using: str | None = None, **options: Any) -> Enqueued:
    """Write the declared job of this name into the outbox and return its handle; ``manage.py outbox_relay`` sends it.

    It is part of the transaction that is open: committed with it, or gone with it. Redis is not asked, and may be away. Name,
    payload and options are checked now, its id is fixed now, and a delay counts from now. Whether a deduplication key is taken
    is found out when it is sent.

    :param using: alias of the database whose transaction this is; a relay runs for each that is used.
    :param options: those of :func:`queue_kit.enqueue`.
    :raises: what ``enqueue`` raises, but for ``QueueUnavailable``.
    """
    return write(prepare(name, payload, **options), name, using)


def write(prepared: Prepared, name: str, using: str | None) -> Enqueued:
    """The same for a job that is prepared."""
    model = apps.get_model("queue_kit", "OutboxJob")
    alias = using or router.db_for_write(model)
    posting = prepared.posting
    if posting is None:  # Celery's eager mode has no relay either
        transaction.on_commit(prepared.send, using=alias)
        return Enqueued(prepared.id)
    model._base_manager.using(alias).create(
        job_id=posting.id, name=name, queue=posting.message.queue, correlation_id=posting.correlation_id,
        posting=as_text(posting),
    )  # fmt: skip
    prepared.hand_over()
    return Enqueued(prepared.id)
