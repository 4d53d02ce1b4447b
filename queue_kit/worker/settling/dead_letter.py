"""The dead-letter handler: sees to it that whatever ends for good has its record, also where no script has written one.

The scripts write a record with the failure itself. What is left to this handler, a receiver of Celery's signals: a record
that could not be written then is written later, and a failure that nothing but a signal tells of is looked up. However often it
is told, there is one record: its id follows from the job and its attempts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from celery import signals
from redis import Redis
from redis.exceptions import RedisError

from queue_kit.rules.outcome import Failure
from queue_kit.states import Cause
from queue_kit.store import Ledger
from queue_kit.store.dead_letter_moves import bury
from queue_kit.store.moves import Settled
from queue_kit.transport.held import HeldJob
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role
from queue_kit.worker.running.failure import failure_of
from queue_kit.worker.settling.counts import DEAD_LETTERS_UNWRITTEN, Counts

logger = logging.getLogger(__name__)

#: Seconds from a signal to the look for its record: the settle that writes it is sent with the next claim.
_FIRST_LOOK_S: Final = 0.5
#: Longest pause between attempts to write one record.
_LONGEST_PAUSE_S: Final = 30.0
#: Failures remembered at a time, and looked up in one round trip.
_MOST, _AT_ONCE = 10_000, 100

#: What is said where the job's own record does not say it.
_EXPIRED: Final = Failure("", "it expired before it ran", "", Cause.EXPIRED, False)
_UNKNOWN: Final = Failure("", "", "", Cause.EXHAUSTED, False)


@dataclass(slots=True)
class _Told:
    """A failure to look up, when to, and until when it may be another run's affair."""

    failure: Failure
    look_at: float
    until: float
    pause_s: float = 1.0


class DeadLetterHandler(Role):
    """One a worker. It connects to signals when it starts; receivers do nothing in the pool's children, whose parent settles."""

    name = "dead letters"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit, counts: Counts) -> None:
        super().__init__(open_client, _FIRST_LOOK_S)
        self._settings, self._kit, self._counts = kit.settings, kit, counts
        self._patience_s = 2 * kit.moves.lease_ms / 1000 + 5
        self._told: dict[str, _Told] = {}  # any thread may add to it and take out
        self._pid = os.getpid()

    def start(self) -> None:
        for signal, receiver in self._receivers():
            signal.connect(receiver, weak=False)
        super().start()

    def stop(self, within_s: float = 2.0) -> None:
        for signal, receiver in self._receivers():
            signal.disconnect(receiver)
        super().stop(within_s)

    def flush(self) -> None:
        """Look up all that was told, once more; after the last settle has been sent. Any thread may call it, also twice."""
        told = dict(self._told)
        try:
            self._look(told)
        except (RedisError, OSError) as error:
            logger.warning("%d failures were not looked up before the end: %s", len(told), error)

    def tick(self) -> None:
        """Look up what is due."""
        now = monotonic()
        self._look({job_id: told for job_id, told in dict(self._told).items() if told.look_at <= now})

    # -- what it is told ----------------------------------------------------------------------------------------------

    def tell(self, job_id: str | None, failure: Failure) -> None:
        """A job may have failed for good. Told twice, it is looked up once."""
        if not job_id or os.getpid() != self._pid:
            return
        now = monotonic()
        if len(self._told) < _MOST:
            self._told.setdefault(job_id, _Told(failure, now + _FIRST_LOOK_S, now + self._patience_s))

    def unwritten(self, job: HeldJob | None, job_id: str, trouble: str) -> None:
        """A script has settled a failure and could not write its record: said, counted, and tried again later."""
        queue, name = (job.claimed.queue, job.name) if job else ("", "")
        logger.error("the dead letter of job %s[%s] could not be written: %s", name, job_id, trouble)
        self._counts.add(DEAD_LETTERS_UNWRITTEN, queue, name)
        self.tell(job_id, _UNKNOWN)

    def expired(self, job_id: str, ledger: Ledger) -> None:
        """A job has expired before it ran: it leaves a record if the setting asks for one, before this returns.

        :raises redis.exceptions.RedisError: Redis does not answer.
        """
        if self._settings.dead_letter_expired:
            answer = ledger.run(self._bury(job_id, _EXPIRED))
            if answer.trouble:
                self.unwritten(None, job_id, answer.trouble)

    def _receivers(self) -> list[tuple[Any, Callable[..., None]]]:
        return [
            (signals.task_failure, self._on_failure), (signals.task_rejected, self._on_rejected),
            (signals.task_unknown, self._on_unknown), (signals.task_revoked, self._on_revoked),
        ]  # fmt: skip

    def _on_failure(self, task_id: Any = None, exception: Any = None, einfo: Any = None, **kwargs: Any) -> None:
        self.tell(task_id, failure_of(exception, getattr(einfo, "traceback", "")))

    def _on_rejected(self, message: Any = None, exc: Any = None, **kwargs: Any) -> None:
        job_id = (getattr(message, "headers", None) or {}).get("id")
        self.tell(job_id, Failure(type(exc).__name__, str(exc or "it is no task message"), "", Cause.MALFORMED, False))

    def _on_unknown(self, id: Any = None, name: Any = None, exc: Any = None, **kwargs: Any) -> None:  # noqa: A002 - Celery's name
        self.tell(id, Failure(type(exc).__name__, f"no task named {name} is registered", "", Cause.UNKNOWN_TASK, False))

    def _on_revoked(self, request: Any = None, expired: bool = False, **kwargs: Any) -> None:
        if expired and self._settings.dead_letter_expired:
            self.tell(getattr(request, "id", None), _EXPIRED)

    # -- what it does -------------------------------------------------------------------------------------------------

    def _look(self, told: dict[str, _Told]) -> None:
        job_ids = list(told)
        for start in range(0, len(job_ids), _AT_ONCE):
            batch = job_ids[start : start + _AT_ONCE]
            answers = self.ledger.run_all([self._bury(job_id, told[job_id].failure) for job_id in batch])
            for job_id, answer in zip(batch, answers, strict=True):
                self._read(job_id, told[job_id], answer)

    def _bury(self, job_id: str, failure: Failure) -> Any:
        settings = self._settings
        return bury(
            settings.queue_prefix, job_id, settings.dead_letter_max_entries, expired=settings.dead_letter_expired,
            reason=failure.reason.removeprefix(": "), error_class=failure.error_class, stack=failure.stack,
        )  # fmt: skip

    def _read(self, job_id: str, told: _Told, answer: Settled | Exception) -> None:
        """Forget a failure that has its record, or leaves none; look again at the others."""
        now = monotonic()
        outcome = "unwritten" if isinstance(answer, Exception) else answer.outcome
        if outcome == "unwritten":
            told.look_at, told.pause_s = now + told.pause_s, min(_LONGEST_PAUSE_S, 2 * told.pause_s)
        elif outcome == "live" and now < told.until:
            told.look_at = now + _FIRST_LOOK_S
        else:
            self._told.pop(job_id, None)
        if outcome == "buried":
            logger.warning("job %s has its dead letter now: none was written when it ended", job_id)
