"""Sends what stands in the outbox. Without it each project would write this loop, and most would double a job when killed.

A batch is read, sent in one trip, and marked. A relay killed before the mark leaves rows that are sent again, under the ids that
they had: Redis answers that those jobs are there. Several relays share the rows: where the database can lock a row and skip the
locked, each takes others; where it cannot (SQLite), they may send the same, which the ids make harmless.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event
from time import monotonic
from typing import Any, Final

from django.apps import apps
from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.utils import timezone

from queue_kit.django.conf import ProjectSettings
from queue_kit.errors import QueueKitError, QueueUnavailable
from queue_kit.observe import transitions
from queue_kit.policy import exponential
from queue_kit.rules.backoff import delay_ms
from queue_kit.store.moves import Added
from queue_kit.transport import points
from queue_kit.transport.envelope import Posting
from queue_kit.transport.stored import from_text

logger = logging.getLogger(__name__)

#: Rows in a batch. Older SQLite takes less than a thousand parameters.
BATCH: Final = 500
_TRIMS_EVERY_S: Final = 60
#: What Redis says where a job's record should be and something else is. All else that it refuses may pass.
_FOR_EVER: Final = "WRONGTYPE"


@dataclass(slots=True)
class Batch:
    """What became of the rows of one batch. ``trouble``: why some are still to be sent."""

    read: int = 0
    sent: list[int] = field(default_factory=list)
    sent_as: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    trouble: Exception | None = None


class Relay:
    """One relay for one database. ``sent`` and ``failed`` count the rows so far."""

    def __init__(self, app: Any, alias: str, settings: ProjectSettings) -> None:
        self._app, self._alias, self._settings = app, alias, settings
        self._rows = apps.get_model("queue_kit", "OutboxJob")._base_manager.using(alias)
        self._locks = connections[alias].features.has_select_for_update_skip_locked
        self._trimmed_at, self._troubles = -float(_TRIMS_EVERY_S), 0
        self.sent = self.failed = 0

    def run(self, stop: Event) -> None:
        """Send what comes, until ``stop`` is set. Trouble with Redis or the database is told once, until it is over."""
        while not stop.is_set():
            try:
                batch = self.send_batch()
                self._trim_now_and_then()
            except DatabaseError as error:
                batch = Batch(trouble=error)
                connections[self._alias].close()
            self._tell(batch)
            stop.wait(self._pause_s(batch))

    def drain(self) -> Exception | None:
        """Send what is there now, and answer what kept some of it from being sent."""
        batch = Batch(read=BATCH)
        while batch.read == BATCH and batch.trouble is None:
            batch = self.send_batch()
        self._trim()
        return batch.trouble

    def retry_failed(self) -> int:
        """Have those that could not be sent tried again, and return how many there are."""
        failed = self._rows.filter(state="failed")
        return int(failed.update(state="pending", error=""))

    def send_again(self, since: datetime) -> int:
        """Have those that were sent at ``since`` or later sent once more, under their ids, and return how many there are: for a
        Redis that has forgotten them."""
        sent = self._rows.filter(state="sent", sent_at__gte=since)
        return int(sent.update(state="pending", sent_at=None, sent_as=""))

    def waiting(self) -> int:
        """How many rows are to be sent."""
        return int(self._rows.filter(state="pending").count())

    # -- one batch ----------------------------------------------------------------------------------------------------

    def send_batch(self) -> Batch:
        """Send the oldest rows that are to be sent, in their order.

        :raises django.db.Error: the database does not answer; what was sent is sent again, under the same ids.
        """
        connections[self._alias].close_if_unusable_or_obsolete()
        with self._locked():
            batch, postings = Batch(), {}
            for row in self._pending():
                batch.read += 1
                try:
                    postings[row.pk] = _posting_of(row)
                except (ValueError, QueueKitError) as error:
                    batch.failed[row.pk] = str(error)
            points.reached("rows read")
            if postings:
                self._send(batch, postings)
            points.reached("rows sent")
            if batch.read:
                self._mark(batch)
            points.reached("rows marked")
        points.reached("rows committed")
        self.sent, self.failed = self.sent + len(batch.sent), self.failed + len(batch.failed)
        return batch

    def _locked(self) -> AbstractContextManager[Any]:
        """A transaction that holds the rows, where others can skip them. A database that is locked as a whole is not, while
        Redis is asked."""
        return transaction.atomic(using=self._alias) if self._locks else nullcontext()

    def _pending(self) -> Iterable[Any]:
        rows: Any = self._rows.filter(state="pending").order_by("pk")
        pending: Iterable[Any] = (rows.select_for_update(skip_locked=True) if self._locks else rows)[:BATCH]
        return pending

    def _send(self, batch: Batch, postings: dict[int, Posting]) -> None:
        answers = self._app.queue_kit.sender.send_all(list(postings.values()))
        for (pk, posting), answer in zip(postings.items(), answers, strict=True):
            if isinstance(answer, Added):
                transitions.sent(self._app.queue_kit, posting, answer)
                batch.sent.append(pk)
                if answer.id and answer.id != posting.id:
                    batch.sent_as[pk] = answer.id
            elif _is_for_ever(answer):
                batch.failed[pk] = str(answer)
            else:
                batch.trouble = batch.trouble or answer

    def _mark(self, batch: Batch) -> None:
        """Write what became of the rows; of those alone that nobody else has marked meanwhile."""
        pending = self._rows.filter(state="pending")
        with transaction.atomic(using=self._alias):
            pending.filter(pk__in=batch.sent).update(state="sent", sent_at=timezone.now())
            for pk, job_id in batch.sent_as.items():
                self._rows.filter(pk=pk).update(sent_as=job_id)
            for pk, error in batch.failed.items():
                logger.error("outbox row %s can never be sent: %s", pk, error)
                pending.filter(pk=pk).update(state="failed", error=error.replace("\x00", "\N{REPLACEMENT CHARACTER}"))

    # -- between batches ----------------------------------------------------------------------------------------------

    def _pause_s(self, batch: Batch) -> float:
        """None while there is more; longer each time that there is trouble."""
        poll_ms = self._settings.outbox_poll_ms
        if batch.trouble is None:
            return 0 if batch.read == BATCH else poll_ms / 1000
        backoff = exponential(poll_ms, jitter=0.5, cap_ms=max(poll_ms, self._settings.redis_retry_max_ms))
        return delay_ms(backoff, self._troubles, random.random()) / 1000

    def _tell(self, batch: Batch) -> None:
        if batch.trouble is None:
            if self._troubles:
                logger.info("outbox of %s: rows are sent again", self._alias)
            self._troubles = 0
            return
        self._troubles += 1
        if self._troubles == 1:
            logger.warning("outbox of %s: rows wait, going on trying: %s", self._alias, batch.trouble)

    def _trim_now_and_then(self) -> None:
        if monotonic() - self._trimmed_at >= _TRIMS_EVERY_S:
            self._trim()

    def _trim(self) -> None:
        """Forget rows that were sent long ago: a batch of them, and soon the next, so that nobody waits long for it."""
        before = timezone.now() - timedelta(seconds=self._settings.outbox_keep_s)
        old = self._rows.filter(state="sent", sent_at__lt=before).order_by("sent_at").values_list("pk", flat=True)
        pks = list(old[:BATCH])
        self._rows.filter(pk__in=pks).delete()
        if len(pks) < BATCH:
            self._trimmed_at = monotonic()


def _posting_of(row: Any) -> Posting:
    age_ms = (timezone.now() - row.added_at) / timedelta(milliseconds=1)
    return from_text(row.job_id, row.posting, max(0, int(age_ms)))


def _is_for_ever(answer: QueueUnavailable) -> bool:
    """Whether Redis refuses this one row, whenever it is sent."""
    return answer.sent == "no" and _FOR_EVER in str(answer)
