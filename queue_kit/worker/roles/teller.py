"""Tells whoever waits for a job that ended outside its own run; without it a chord or a `.get()` would wait for ever."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from random import randint
from time import monotonic
from typing import Any, Final

from celery import signals
from celery.app.task import Context
from celery.exceptions import NotRegistered
from kombu.compression import decompress
from kombu.serialization import loads as loads_body
from kombu.serialization import prepare_accept_content
from kombu.transport.virtual import Base64
from kombu.utils.json import loads
from redis import Redis
from redis.exceptions import RedisError

from queue_kit.errors import JobLostError, JobStalledError, QueueKitError
from queue_kit.observe import transitions
from queue_kit.states import Cause, State
from queue_kit.store.errands import Note
from queue_kit.transport import points
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role
from queue_kit.worker.running.backend import free_claim
from queue_kit.worker.running.lineage import replaced_by
from queue_kit.worker.running.tracing import tell_ended
from queue_kit.worker.settling.dead_letter import DeadLetterHandler

logger = logging.getLogger(__name__)

_ERRORS: dict[str, type[Exception]] = {
    Cause.STALLED: JobStalledError, Cause.LOST: JobLostError, Cause.UNKNOWN_TASK: NotRegistered,
}  # fmt: skip

#: What comes of a message that makes no sense, and will not make more of it later; a backend that is down says other things.
_UNREADABLE: Final = (TypeError, ValueError, AttributeError, LookupError, RecursionError)
#: Between two tries lie a second, two, four, and then a minute: what has not passed after hours will not.
_LONGEST_S: Final = 60
_MOST_TRIES: Final = 300


class Teller(Role):
    """Acts on the notes that scripts leave: result, errbacks, chord, the rest of a canvas. At least once."""

    name = "teller"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit, app: Any, burials: DeadLetterHandler) -> None:
        super().__init__(open_client, min(1.0, kit.moves.reap_ms / 1000))
        self._moves, self._app, self._burials = kit.moves, app, burials
        self._tried: Counter[str] = Counter()
        self._mark = randint(1, 2047)  # one that two tellers share costs a second telling, at worst
        self._lost_until = 0.0

    def tick(self) -> None:
        """Take the notes that are due, act on each, strike it out.

        Whatever Redis has not answered it may have done, now or when it wakes up: for as long as a note is its taker's, what
        it may so have given to this teller is asked for again.
        """
        try:
            for note in self.ledger.run(self._moves.notes(self._mark, lost=monotonic() < self._lost_until)):
                points.reached("note read")
                self._act(note)
        except (RedisError, OSError):
            self._lost_until = monotonic() + _LONGEST_S
            raise

    def _act(self, note: Note) -> None:
        if note.cause == Cause.EXPIRED:
            self._burials.expired(note.id, self.ledger)
        try:
            self._tell(note)
        except Exception as error:
            self._tried[note.id] += 1
            if isinstance(error, _UNREADABLE) or self._tried[note.id] >= _MOST_TRIES:
                logger.exception("those who wait for job %s cannot be told", note.id)
                self._strike(note)
            else:
                logger.exception("those who wait for job %s could not be told; trying again later", note.id)
                self.ledger.run(self._moves.put_off(note.id, 1000 * min(_LONGEST_S, 2 ** (self._tried[note.id] - 1))))
        else:
            points.reached("note told")
            self._strike(note)
            points.reached("note struck")

    def _strike(self, note: Note) -> None:
        self._tried.pop(note.id, None)
        self.ledger.run(self._moves.strike(note.id))

    def _tell(self, note: Note) -> None:
        if not note.message or note.state not in (State.FAILED, State.CANCELLED):
            return
        request = _context(note.message, self._app)
        if request is None:
            return
        if note.state == State.FAILED:
            self._tell_failure(note, request)
        else:
            self._tell_revoked(note, request)

    def _tell_failure(self, note: Note, request: Context) -> None:
        error = _ERRORS.get(note.cause, QueueKitError)(note.reason or note.cause)
        task = self._app.tasks.get(request.task)
        backend = task.backend if task is not None else self._app.backend
        free_claim(backend, request)
        backend.mark_as_failure(note.id, error, request=request)
        if task is not None:
            signals.task_failure.send(
                sender=task, task_id=note.id, exception=error, args=request.args, kwargs=request.kwargs,
                traceback=None, einfo=None,
            )  # fmt: skip
        tell_ended(request, note.id, note.cause)
        self._fail_replaced(note, request, type(error).__name__)

    def _tell_revoked(self, note: Note, request: Context) -> None:
        task = self._app.tasks.get(request.task)
        backend = task.backend if task is not None else self._app.backend
        free_claim(backend, request)
        backend.mark_as_revoked(note.id, note.cause, request=request, store_result=True)
        if task is not None:
            signals.task_revoked.send(
                sender=task, request=request, terminated=False, signum=None, expired=note.cause == Cause.EXPIRED
            )
        self._fail_replaced(note, request, "TaskRevokedError")

    def _fail_replaced(self, note: Note, request: Context, error_class: str) -> None:
        """A job that replaced itself by a canvas cannot go on once a step of it will not run."""
        for job_id, nesting in replaced_by({"chain": request.chain, "chord": request.chord}):
            reason = f"step {note.id} of its canvas: {note.reason or note.cause}"
            cause = Cause.NON_RETRYABLE if note.cause in (Cause.REVOKED, Cause.CANCELLED) else note.cause
            call = self._moves.fail(job_id, "replaced", cause, reason, error_class=error_class, nesting=nesting)
            transitions.step_failed(job_id, cause, self.ledger.run(call))


def _read_body(raw: dict[str, Any], properties: dict[str, Any], app: Any) -> Any:
    body = raw.get("body") or ""
    if properties.get("body_encoding") == "base64":
        body = Base64().decode(body)
    compression = (raw.get("headers") or {}).get("compression")
    if compression:
        body = decompress(body, compression)
    accepted = prepare_accept_content(app.conf.accept_content)
    return loads_body(body, raw.get("content-type"), raw.get("content-encoding"), accept=accepted)


def _context(message: str, app: Any) -> Context | None:
    """Celery's view of a job's message, body and callbacks decoded; ``None`` for what is no task message.

    A body that nobody can read names no callbacks; who asks for the result by the job's id is told all the same.
    """
    raw = loads(message)
    headers = raw.get("headers") or {}
    if not headers.get("task"):
        return None
    properties = raw.get("properties") or {}
    try:
        args, kwargs, embed = _read_body(raw, properties, app)
    except Exception:  # noqa: BLE001 - that may be the very reason why the job has failed
        args, kwargs, embed = (), {}, None
    return Context({**headers, **(embed or {}), "args": args, "kwargs": kwargs, "properties": properties,
                    "reply_to": properties.get("reply_to"), "correlation_id": properties.get("correlation_id"),
                    "delivery_info": properties.get("delivery_info") or {}})  # fmt: skip
