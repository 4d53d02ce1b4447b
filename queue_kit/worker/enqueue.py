"""The typed front door: send a declared job by its name; without it a wrong payload would be found by a worker, later."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from queue_kit.errors import QueueUnavailable, UnknownJob
from queue_kit.policy import Backoff
from queue_kit.store.moves import Added
from queue_kit.worker.apps import app_with_queue_kit


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of an enqueue. ``existing_state``: where the job is whose id this is, if it was there already.

    ``error`` is set only by :func:`enqueue_many`; the same id may then be sent again safely.
    """

    id: str
    deduplicated: bool = False
    existing_state: str | None = None
    error: QueueUnavailable | None = None


def enqueue(
    name: str, payload: Any = None, *, delay_ms: int | None = None, attempts: int | None = None,
    backoff: Backoff | None = None, timeout_ms: int | None = None, job_id: str | None = None, priority: int | None = None,
    correlation_id: str | None = None, idempotency_key: str | None = None, idempotency_ttl_ms: int | None = None,
    dedup: str | None = None,
) -> Enqueued:  # fmt: skip
    """Send the declared job of this name and return its handle.

    :param payload: a mapping or an instance of the job's payload model; it is validated here, before Redis.
    :param delay_ms: milliseconds until it may run, 0 or more.
    :param attempts: runs in all, the first included; over what the job declares.
    :param backoff: the waits between them; over what the job declares.
    :param timeout_ms: the deadline of one run; over what the job declares.
    :param job_id: an id of the caller's own; a job that has it already is returned instead of a second one.
    :param priority: 0 (most urgent) to 9.
    :param correlation_id: carried to the job, its logs and its dead letter.
    :param idempotency_key: sends of one name, queue and key are one job; 1 to 200 characters.
    :param idempotency_ttl_ms: how long the key lives (24 h).
    :param dedup: ``ttl`` (default), ``until_finished``, ``extend``, ``replace`` or ``keep_last``;
        see :class:`queue_kit.policy.DedupPolicy`.
    :raises UnknownJob: no job of this name is declared in this process.
    :raises InvalidPayload: names each field at fault, or says how much too large the payload is.
    :raises ValueError: for an option out of range, naming it.
    :raises QueueUnavailable: Redis could not take it; says whether it may have been sent.
    """
    task = declared_task(name)
    _check_range("delay_ms", delay_ms, 0, None)
    _check_range("priority", priority, 0, 9)
    options = {
        "task_id": job_id, "priority": priority, "attempts": attempts, "backoff": backoff, "timeout_ms": timeout_ms,
        "correlation_id": correlation_id, "idempotency_key": idempotency_key,
        "idempotency_ttl_ms": idempotency_ttl_ms, "dedup": dedup,
        "countdown": None if delay_ms is None else delay_ms / 1000,
    }  # fmt: skip
    given = {key: value for key, value in options.items() if value is not None}
    result = task.apply_async(kwargs=task.declared.dump(payload), **given)
    return _handle(result.id, getattr(result, "added", None))


def enqueue_many(name: str, payloads: Iterable[Any], **options: Any) -> list[Enqueued]:
    """Send many jobs of one name in one round trip; a result for each, in order.

    :param options: those of :func:`enqueue`, for all of them; ``job_id`` excepted.
    :raises: what :func:`enqueue` raises, before anything is sent; a connection that breaks shows in ``error`` of each.
    """
    sender = declared_task(name).app.queue_kit.sender
    with sender.collecting() as postings:
        for payload in payloads:
            enqueue(name, payload, **options)
    return [
        Enqueued(posting.id, error=answer) if isinstance(answer, QueueUnavailable) else _handle(posting.id, answer)
        for posting, answer in zip(postings, sender.send_all(postings), strict=True)
    ]


def declared_task(name: str) -> Any:
    """The task that the app has under this name.

    :raises UnknownJob: none is declared; says which name is close.
    :raises ConfigurationError: no app in this process has queue_kit.
    """
    app = app_with_queue_kit()
    task = app.tasks.get(name)
    if task is None:
        app.loader.import_default_modules()  # a web process may not have imported its task modules yet
        task = app.tasks.get(name)
    if task is None or getattr(task, "declared", None) is None:
        known = [known for known, task in app.tasks.items() if getattr(task, "declared", None)]
        close = difflib.get_close_matches(name, known, n=1)
        raise UnknownJob(f"{name}: no such job is declared" + (f"; did you mean {close[0]}?" if close else ""))
    return task


def _handle(job_id: str, added: Added | None) -> Enqueued:
    if added is None or added.outcome not in ("duplicated", "deduplicated"):
        return Enqueued(job_id)
    return Enqueued(job_id, deduplicated=True, existing_state=added.state)


def _check_range(name: str, value: int | None, least: int, most: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ValueError(f"{name}: a whole number {bounds} is needed")
