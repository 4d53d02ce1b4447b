"""What a run may know about itself, and say; without it a task would dig in message properties, and poll Redis for a cancel."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Final

from celery import current_task
from redis.exceptions import RedisError

from queue_kit.errors import JobCancelled, NoCurrentJob
from queue_kit.states import StopReason
from queue_kit.store import Call, Ledger
from queue_kit.transport.envelope import PROPERTY
from queue_kit.transport.kit import Kit, Run
from queue_kit.worker.running.deadline import overdue

logger = logging.getLogger(__name__)

_GLANCE_S: Final = 0.05  # how often a sleeping run looks at its token
_PROGRESS_BYTES: Final = 4_096  # it is kept in the job's record and in an event


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The run that is going on. Counters are those at its beginning, as in BullMQ: this run is not yet an attempt made.

    It may be handed to threads that the run starts.
    """

    id: str
    name: str
    queue: str
    attempts_made: int
    attempts_started: int
    stalled_count: int
    correlation_id: str = ""
    #: The same in every run of this job, to hand on to a provider that knows such keys: job name and the caller's own key,
    #: where one was given, else the job's id.
    idempotency_key: str = ""
    _run: Run | None = field(default=None, repr=False, compare=False)
    _kit: Kit | None = field(default=None, repr=False, compare=False)

    @property
    def is_rerun(self) -> bool:
        """True when the job has been started before: what it does may have been done already."""
        return self.attempts_started > 1

    @property
    def cancelled(self) -> bool:
        """Whether this run should stop; see :attr:`cancel_reason`."""
        return self.cancel_reason is not None

    @property
    def cancel_reason(self) -> StopReason | None:
        """Why it should: ``timeout``, ``shutdown``, ``cancelled`` or ``lease_lost``; ``None`` while it should not."""
        return self._run.stop.reason if self._run is not None else None

    @property
    def time_left_s(self) -> float | None:
        """Seconds until the deadline, 0 after it; ``None`` without one. Made for the time limit of a call to elsewhere."""
        return self._run.stop.time_left_s if self._run is not None else None

    @property
    def deadline_at_ms(self) -> int | None:
        """The deadline by this machine's clock; ``None`` without one."""
        deadline = self._run.stop.deadline if self._run is not None else None
        return None if deadline is None else round((time.time() + deadline - time.monotonic()) * 1000)

    def raise_if_cancelled(self) -> None:
        """Stop here if the run should stop.

        :raises JobTimeoutError: its deadline is over.
        :raises JobCancelled: for every other reason, which it names.
        """
        reason = self.cancel_reason
        if reason is StopReason.TIMEOUT and self._run is not None:
            raise overdue(self._run)
        if reason is not None:
            raise JobCancelled(f"the job was asked to stop: {reason}")

    def sleep(self, seconds: float) -> bool:
        """Sleep, but wake up when the run should stop. Answer whether it may go on."""
        until = time.monotonic() + seconds
        while not self.cancelled and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _GLANCE_S))
        return not self.cancelled

    def progress(self, value: Any) -> None:
        """Say how far this run has come: a number, or whatever JSON can say. Kept with the job, and told as an event.

        A progress that cannot be written is no reason to fail: it is logged.

        :raises ValueError: for what JSON cannot say, or more than 4 KiB of it.
        """
        try:
            said = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"progress: a value that JSON can say is needed ({error})") from None
        if len(said) > _PROGRESS_BYTES:
            raise ValueError(f"progress: at most {_PROGRESS_BYTES} bytes of JSON are kept, this has {len(said)}")
        if self._run is not None and self._kit is not None:
            _say(self._kit, self._kit.moves.progress(self.id, self._run.token, said))

    def log(self, line: str) -> None:
        """Write a line into the job's own log, which keeps the last thousand. One that cannot be written is logged."""
        if self._run is not None and self._kit is not None:
            _say(self._kit, self._kit.moves.log(self.id, self._run.token, str(line)))


def _say(kit: Kit, call: Call[str]) -> None:
    try:
        Ledger(kit.sender.client).run(call)
    except RedisError as error:
        logger.warning("the %s of job %s could not be written: %s", call.script.name, call.arguments[1], error)


def current_job() -> CurrentJob:
    """The job that this code runs in.

    :raises NoCurrentJob: outside a run.
    """
    task: Any = current_task
    if not task or task.request.id is None:
        raise NoCurrentJob()
    request, kit = task.request, getattr(task.app, "queue_kit", None)
    facts = (request.properties or {}).get(PROPERTY) or {}
    ours = (request.headers or {}).get(PROPERTY) or {}
    key = ours.get("idempotency_key")
    return CurrentJob(
        id=request.id,
        name=task.name,
        queue=facts.get("queue") or (request.delivery_info or {}).get("routing_key") or "",
        attempts_made=facts.get("attempts_made", request.retries),
        attempts_started=facts.get("attempts_started", request.retries + 1),
        stalled_count=facts.get("stalled_count", 0),
        correlation_id=ours.get("correlation_id") or request.root_id or request.id,
        idempotency_key=f"{task.name}/{key}" if key else request.id,
        _run=kit.running.get(request.id) if kit is not None else None,
        _kit=kit,
    )
