"""The typed front door: send a declared job by its name; without it a wrong payload would be found by a worker, later."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Never

from queue_kit.errors import InvalidPayload, QueueUnavailable, UnknownJob
from queue_kit.policy import Backoff
from queue_kit.rules.backoff import LONGEST_MS
from queue_kit.store.moves import Added
from queue_kit.worker.apps import app_with_queue_kit
from queue_kit.worker.sending.mould import mould_of
from queue_kit.worker.sending.options import check_job_id
from queue_kit.worker.sending.producer import Collector

_OPTIONS: Final = (
    "delay_ms", "attempts", "backoff", "timeout_ms", "job_id", "priority", "correlation_id", "idempotency_key",
    "idempotency_ttl_ms", "dedup",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of an enqueue. ``deduplicated``: no new job was made; ``id`` is that of the one that was there.

    ``existing_state``: its state, ``unknown`` if nobody knows any more; ``None`` where a new job was made.
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
    dedup: str | None = None, **unknown: Never,
) -> Enqueued:  # fmt: skip
    """Send the declared job of this name and return its handle.

    :param payload: a mapping or an instance of the job's payload model; it is validated here, before Redis.
    :param delay_ms: milliseconds until it may run, 0 or more, a year at most.
    :param attempts: runs in all, the first included; over what the job declares.
    :param backoff: the waits between them; over what the job declares.
    :param timeout_ms: the deadline of one run; over what the job declares.
    :param job_id: an id of the caller's own; a job that has it already is returned instead of a second one.
    :param priority: 0 (most urgent) to 9.
    :param correlation_id: carried to the job, its logs and its dead letter; else that of the job that sends this one. One that
        does not fit ``[A-Za-z0-9._:-]{1,200}`` is replaced by a new one.
    :param idempotency_key: sends of one name, queue and key are one job; 1 to 200 characters.
    :param idempotency_ttl_ms: how long the key lives (24 h).
    :param dedup: ``ttl`` (default), ``until_finished``, ``extend``, ``replace`` or ``keep_last``;
        see :class:`queue_kit.policy.DedupPolicy`.
    :raises UnknownJob: no job of this name is declared in this process.
    :raises InvalidPayload: names each field at fault, or says how much too large the payload is.
    :raises ValueError: for an option out of range, naming it.
    :raises TypeError: for an option that does not exist; says which is close.
    :raises QueueUnavailable: Redis could not take it; says whether it may have been sent.
    """
    options = {
        "delay_ms": delay_ms, "attempts": attempts, "backoff": backoff, "timeout_ms": timeout_ms, "job_id": job_id,
        "priority": priority, "correlation_id": correlation_id, "idempotency_key": idempotency_key,
        "idempotency_ttl_ms": idempotency_ttl_ms, "dedup": dedup, **unknown,
    }  # fmt: skip
    task = declared_task(name)
    result = _send(task, payload, options_of(options))
    if getattr(result, "deduplicated", False):
        return Enqueued(result.id, deduplicated=True, existing_state=result.existing_state)
    return Enqueued(result.id)


def enqueue_many(name: str, payloads: Iterable[Any], **options: Any) -> list[Enqueued]:
    """Send many jobs of one name, a thousand in each round trip; a result for each, in order.

    :param options: those of :func:`enqueue`, for all of them; ``job_id`` excepted.
    :raises Exception: what :func:`enqueue` raises, before anything is sent. What Redis did not take shows in ``error`` of each.
    """
    task = declared_task(name)
    if "job_id" in options:
        raise ValueError("job_id: each job needs an id of its own: leave it out, or use enqueue for each")
    given = options_of(options)
    if task.app.conf.task_always_eager:
        return [Enqueued(_send(task, payload, given).id) for payload in payloads]
    with Collector(task.app) as collector:
        given["producer"], mould = collector, None
        for number, payload in enumerate(payloads):
            if mould is not None:
                collector.postings.append(mould.cast(_checked(task, payload)))
                continue
            _send(task, payload, given)
            if number == 0:
                mould = mould_of(task, collector.postings[0], _checked(task, payload))
        answers = collector.send()
    return [handle_of(posting.id, answer) for posting, answer in zip(collector.postings, answers, strict=True)]


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
    if task is None:
        known = [known for known, task in app.tasks.items() if getattr(task, "declared", None)]
        close = difflib.get_close_matches(name, known, n=1)
        raise UnknownJob(f"{name}: no such job is declared" + (f"; did you mean {close[0]}?" if close else ""))
    if getattr(task, "declared", None) is None:
        raise UnknownJob(f"{name}: it is a plain Celery task, not declared with @job; send it with apply_async")
    return task


def _send(task: Any, payload: Any, options: dict[str, Any]) -> Any:
    return task.apply_async(kwargs=fields_of(task, payload), **options)


def fields_of(task: Any, payload: Any) -> dict[str, Any]:
    """A payload as keyword arguments of its task.

    :raises InvalidPayload: the task takes no such arguments, or it is no payload at all.
    """
    fields: dict[str, Any] = task.declared.fields(payload)
    if task.typing:
        try:
            task.__header__(**fields)
        except TypeError as error:
            raise InvalidPayload(f"{task.name}: {error}") from None
    return fields


def _checked(task: Any, payload: Any) -> dict[str, Any]:
    """Keyword arguments as `apply_async` would send them."""
    checked: dict[str, Any] = task.declared.check((), fields_of(task, payload))
    return checked


def handle_of(job_id: str, answer: Added | QueueUnavailable) -> Enqueued:
    """What a caller is told of a job that was sent among others."""
    if isinstance(answer, QueueUnavailable):
        return Enqueued(job_id, error=answer)
    if answer.outcome in ("duplicated", "deduplicated"):
        return Enqueued(answer.id, deduplicated=True, existing_state=answer.state)
    return Enqueued(job_id)


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    """Check options, and give them the names that ``apply_async`` knows.

    :raises ValueError, TypeError: as :func:`enqueue`.
    """
    for option in options:
        if option not in _OPTIONS:
            close = difflib.get_close_matches(option, _OPTIONS, n=1)
            raise TypeError(f"enqueue: unknown option {option}" + (f"; did you mean {close[0]}?" if close else ""))
    given = {option: value for option, value in options.items() if value is not None}
    _check_range("delay_ms", given.get("delay_ms"), LONGEST_MS)
    _check_range("priority", given.get("priority"), 9)
    if "job_id" in given:
        given["task_id"] = check_job_id(given.pop("job_id"))
    if "delay_ms" in given:
        given["countdown"] = given.pop("delay_ms") / 1000
    return given


def _check_range(name: str, value: Any, most: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most):
        raise ValueError(f"{name}: a whole number from 0 to {most} is needed")
