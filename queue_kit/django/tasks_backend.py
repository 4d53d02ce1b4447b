"""Django's own Tasks (Django 6 and later) on queue_kit. Without it ``@task`` would have no backend that counts a crash, retries,
or keeps what failed.

Each task is a declared job of its own, named by its path, so that the admin, metrics, limits and dead letters tell them apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.utils import timezone

try:
    from django.tasks import DEFAULT_TASK_QUEUE_NAME, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.exceptions import InvalidTaskBackend
    from django.tasks.signals import task_enqueued
    from django.utils.json import normalize_json
except ImportError as missing:
    raise ImproperlyConfigured("queue_kit.django.tasks_backend needs django.tasks, which comes with Django 6") from missing

from queue_kit.django import on_commit, outbox
from queue_kit.django.conf import celery_app
from queue_kit.django.tasks_results import ABOUT, AnyResult, AnyTask, read_result
from queue_kit.django.tasks_runner import declare
from queue_kit.errors import ConfigurationError
from queue_kit.policy import Backoff
from queue_kit.worker.sending.enqueue import Enqueued
from queue_kit.worker.sending.prepare import Prepared, prepare_task


class JobTask(AnyTask):
    """What ``@task`` makes: each is declared as a job, with the policy that its function has."""

    __slots__ = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        declare(self, **getattr(self.func, _POLICY, {}))


_POLICY: Final = "queue_kit_policy"


def job_policy(
    *, attempts: int | None = None, backoff: Backoff | None = None, timeout_ms: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function what :func:`queue_kit.job` would take; ``@task`` stands above it, and has no place for this itself."""

    def give(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _POLICY, {"attempts": attempts, "backoff": backoff, "timeout_ms": timeout_ms})
        return function

    return give


class QueueKitBackend(BaseTaskBackend):
    """``TASKS = {"default": {"BACKEND": "queue_kit.django.tasks_backend.QueueKitBackend"}}``.

    ``OPTIONS``: ``SEND`` is ``"at_once"`` (as Django has it), ``"on_commit"`` or ``"outbox"``.
    """

    task_class = JobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        send = self.options.get("SEND", "at_once")
        unknown = [name for name in self.options if name != "SEND"]
        if unknown or send not in _SENDS:
            what = f"OPTIONS {', '.join(unknown)}: only SEND is known" if unknown else "SEND: use one of " + ", ".join(_SENDS)
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {what}")
        self._send = _SENDS[send]

    def enqueue(self, task: AnyTask, args: Any, kwargs: Any) -> AnyResult:
        """Send a task.

        :raises QueueUnavailable: Redis could not take it; says whether it may have been sent.
        :raises TypeError: its function takes no such arguments, or JSON cannot say them.
        """
        self.validate_task(task)
        _bind(task, args, kwargs)
        args, kwargs = normalize_json(args), normalize_json(kwargs)
        prepared = prepare_task(celery_app().tasks[task.module_path], tuple(args), kwargs, self._options_of(task))
        result: AnyResult = TaskResult(
            task=task, id=prepared.id, status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            finished_at=None, last_attempted_at=None, args=args, kwargs=kwargs, backend=self.alias, errors=[], worker_ids=[],
        )  # fmt: skip
        self._send(prepared, task.module_path)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Read a result, for as long as its job's record is kept.

        :raises TaskResultDoesNotExist: there is none, or not any more, or not yet (see ``SEND``).
        :raises QueueUnavailable: Redis does not answer.
        """
        return read_result(celery_app().queue_kit, self.alias, result_id)

    def check(self, **kwargs: Any) -> Iterator[checks.CheckMessage]:  # type: ignore[override]
        """Queues that no worker asks for unless it is told to."""
        try:
            consumed = celery_app().amqp.queues
        except ConfigurationError:  # said by the checks of queue_kit
            return
        for name in sorted(map(self._queue_of, self.queues)):
            if name not in consumed:
                yield checks.Warning(
                    f"TASKS[{self.alias!r}]: a worker that is started without -Q does not consume the queue {name}: its tasks "
                    "would wait for ever.",
                    hint=f"Name it in task_queues, or start a worker with -Q {name}.",
                    id="queue_kit.W020",
                )

    def _options_of(self, task: AnyTask) -> dict[str, Any]:
        """Options of a send; what a result tells of its task travels in a header."""
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        about = {
            "path": task.module_path, "priority": task.priority, "queue_name": task.queue_name, "backend": self.alias,
            "run_after": task.run_after.isoformat() if task.run_after else None, "enqueued_at": timezone.now().isoformat(),
        }  # fmt: skip
        return {
            "queue": self._queue_of(task.queue_name), "priority": priority_of(task.priority), "headers": {ABOUT: about},
            **({"eta": run_after} if isinstance(run_after, datetime) else {}),
        }  # fmt: skip

    def _queue_of(self, name: str) -> str:
        """Django's default queue is Celery's, unless there is one of that name."""
        app = celery_app()
        is_default = name == DEFAULT_TASK_QUEUE_NAME and name not in app.amqp.queues
        return str(app.conf.task_default_queue) if is_default else name


def priority_of(priority: int) -> int:
    """Django's -100 to 100, the highest first, as 9 to 0, the lowest first."""
    return round((100 - priority) * 9 / 200)


# -- ways to send ------------------------------------------------------------------------------------------------------


def _at_once(prepared: Prepared, name: str) -> None:
    sent: Enqueued = prepared.send()
    if sent.error is not None:
        raise sent.error


def _on_commit(prepared: Prepared, name: str) -> None:
    on_commit.send_on_commit(prepared, name, DEFAULT_DB_ALIAS)


def _outbox(prepared: Prepared, name: str) -> None:
    outbox.write(prepared, name, None)


_SENDS: Final[dict[str, Callable[[Prepared, str], None]]] = {
    "at_once": _at_once, "on_commit": _on_commit, "outbox": _outbox,
}  # fmt: skip


def _bind(task: AnyTask, args: Any, kwargs: Any) -> None:
    """Refuse to the caller what the function would refuse to the worker."""
    context = (None,) if task.takes_context else ()
    try:
        inspect.signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}: {error}") from None
