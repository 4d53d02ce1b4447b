"""Sends jobs; without it a delay would travel as an instant of the sender's clock, and a callback would get a new id in
every run.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Final

from celery import current_app
from celery.app.amqp import AMQP

from queue_kit.errors import ConfigurationError, UnknownJob
from queue_kit.policy import Backoff, RetryPolicy
from queue_kit.transport.connection import connection_class
from queue_kit.transport.envelope import PROPERTY
from queue_kit.transport.kit import Kit
from queue_kit.worker.lineage import name_callbacks

_EMBED: Final = 2  # where a task body keeps callbacks, chain and chord


def amqp_class(base: type[AMQP], kit: Kit) -> type[AMQP]:
    """An AMQP class for one app, with our connection and our reading of delays, over whatever the app had."""
    return type("JobAMQP", (_JobAMQP, base), {"kit": kit, "Connection": connection_class(kit)})


#: What the mixin is mixed into; Celery is untyped.
_Host: Any = object


class _JobAMQP(_Host):
    kit: Kit
    _rtable: list[Any]

    def as_task_v2(self, task_id: str, name: str, *args: Any, **options: Any) -> Any:
        countdown = args[2] if len(args) > 2 else options.get("countdown")
        message = super().as_task_v2(task_id, name, *args, **options)
        if countdown is not None:
            delay_ms = max(0, round(float(countdown) * 1000))
            message.properties[PROPERTY] = {"delay_ms": delay_ms}
        embed = message.body[_EMBED]
        if embed["callbacks"]:
            embed["callbacks"] = name_callbacks(task_id, embed["callbacks"])
        return message

    def flush_routes(self) -> None:
        super().flush_routes()
        self._rtable = [*self._rtable, _route_declared]


def _route_declared(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> dict[str, str] | None:
    """The last route: the queue that the task was declared with."""
    declared = getattr(task, "declared", None)
    return {"queue": declared.queue} if declared is not None and declared.queue else None


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of an enqueue. The same id may be sent again safely."""

    id: str
    deduplicated: bool = False
    existing_state: str | None = None


def enqueue(
    name: str, payload: Any = None, *, delay_ms: int | None = None, attempts: int | None = None,
    backoff: Backoff | None = None, job_id: str | None = None, priority: int | None = None,
) -> Enqueued:  # fmt: skip
    """Send the declared job of this name and return its handle.

    :param payload: a mapping or an instance of the job's payload model; it is validated here, before Redis.
    :param delay_ms: milliseconds until it may run, 0 or more.
    :param attempts: runs in all, the first included; over what the job declares.
    :param priority: 0 (most urgent) to 9.
    :raises UnknownJob: no job of this name is declared in this process.
    :raises InvalidPayload: names each field at fault.
    :raises ValueError: for an option out of range, naming it.
    :raises kombu.exceptions.OperationalError: Redis could not take it.
    """
    task = _declared_task(name)
    if delay_ms is not None and (isinstance(delay_ms, bool) or not isinstance(delay_ms, int) or delay_ms < 0):
        raise ValueError("delay_ms: a whole number of milliseconds, 0 or more, is needed")
    headers = _policy_headers(attempts, backoff)
    options: dict[str, Any] = {"task_id": job_id, "priority": priority, "headers": headers}
    if delay_ms is not None:
        options["countdown"] = delay_ms / 1000
    options = {key: value for key, value in options.items() if value is not None}
    result = task.apply_async(kwargs=task.declared.dump(payload), **options)
    return Enqueued(result.id)


def _declared_task(name: str) -> Any:
    tasks = current_app.tasks
    task = tasks.get(name)
    if task is None or getattr(task, "declared", None) is None:
        known = [known for known, task in tasks.items() if getattr(task, "declared", None)]
        close = difflib.get_close_matches(name, known, n=1)
        raise UnknownJob(f"{name}: no such job is declared" + (f"; did you mean {close[0]}?" if close else ""))
    if getattr(current_app, "queue_kit", None) is None:
        raise ConfigurationError("the current Celery app has no queue_kit: call queue_kit.install(app) first")
    return task


def _policy_headers(attempts: int | None, backoff: Backoff | None) -> dict[str, Any] | None:
    ours: dict[str, Any] = {}
    if attempts is not None:
        ours["attempts"] = RetryPolicy(attempts, Backoff("fixed", 0)).attempts
    if backoff is not None:
        ours["backoff"] = backoff.as_dict()
    return {PROPERTY: ours} if ours else None
