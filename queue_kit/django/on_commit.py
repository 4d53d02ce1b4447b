"""Sends a job when a transaction commits; without it a worker could look for a row that is not there yet, or never will be."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from queue_kit.errors import ConfigurationError, QueueUnavailable
from queue_kit.worker.sending.enqueue import Enqueued
from queue_kit.worker.sending.prepare import Prepared, prepare

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class OnCommit:
    """A job that its transaction sends. ``id`` is known at once; the rest is filled in when it has been tried.

    ``sent``: Redis has it. ``error``: why it has not; the same ``job_id`` may then be sent again safely. After a rollback neither
    is set. ``deduplicated`` and ``existing_state`` are those of :class:`queue_kit.Enqueued`, and ``id`` is then that of the job
    that was there.
    """

    id: str
    sent: bool = False
    deduplicated: bool = False
    existing_state: str | None = None
    error: Exception | None = None

    def note(self, answer: Enqueued) -> None:
        """Take over what became of the send."""
        self.id, self.sent, self.error = answer.id, answer.error is None, answer.error
        self.deduplicated, self.existing_state = answer.deduplicated, answer.existing_state


def enqueue_on_commit(name: str, payload: Any = None, *, using: str | None = None, **options: Any) -> OnCommit:
    """Send the declared job of this name once the transaction has committed, and return its handle; after a rollback, of a
    savepoint too, nothing is sent. Outside a transaction it is sent at once.

    Name, payload and options are checked now, and the payload is that of now; a delay counts from the commit. A job that Redis
    does not take raises nothing, since the commit stands and other hooks wait for their turn: the handle has the ``error``, the
    log a line. Where it must not be lost then, use :func:`queue_kit.django.outbox.add`.

    :param using: alias of the database whose transaction is meant (the default one).
    :param options: those of :func:`queue_kit.enqueue`.
    :raises: what ``enqueue`` raises, but for ``QueueUnavailable``.
    """
    return send_on_commit(prepare(name, payload, **options), name, using or DEFAULT_DB_ALIAS)


def send_on_commit(prepared: Prepared, name: str, alias: str) -> OnCommit:
    """The same for a job that is prepared."""
    handle, connection = OnCommit(prepared.id), connections[alias]
    # What an earlier commit on this connection met is no reason not to try.
    connection.__dict__.pop(_TROUBLE, None)
    send = partial(_send, prepared, name, handle, connection)
    # Robust, but in eager mode, where it is the task itself that may fail and a test wants to see that.
    transaction.on_commit(send, using=alias, robust=prepared.posting is not None)
    return handle


_TROUBLE = "_queue_kit_trouble"


def _send(prepared: Prepared, name: str, handle: OnCommit, connection: Any) -> None:
    """Send it, unless another of the same commit has just found that Redis does not answer: a thousand would wait a thousand
    times."""
    trouble = connection.__dict__.get(_TROUBLE)
    try:
        if trouble is not None:
            raise QueueUnavailable(f"not tried, the send before it failed: {trouble}", prepared.id, "no")
        handle.note(prepared.send())
    except (QueueUnavailable, ConfigurationError) as error:
        handle.error = error
    if handle.error is not None:
        connection.__dict__.setdefault(_TROUBLE, handle.error)
        logger.error("job %s[%s] was not sent, though its transaction has committed: %s", name, handle.id, handle.error)
