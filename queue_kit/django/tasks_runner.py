"""Runs Django's own tasks in a worker: declares each as a job, tells its function and Django of the run, keeps what it returns.

Redis is not asked for what the run knows by itself: an outage while it runs is then no failure of the task.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Final

from celery import current_task
from celery.exceptions import Ignore
from django.tasks import TaskContext, TaskResultStatus
from django.tasks.base import TaskError
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from queue_kit.django.tasks_results import ABOUT, AnyResult, AnyTask, begun_result, error_line
from queue_kit.errors import JobReleased, NonRetryableError
from queue_kit.worker.running.current import CurrentJob, current_job
from queue_kit.worker.running.results import keep_result
from queue_kit.worker.running.task import job

logger = logging.getLogger(__name__)

#: The function that was last declared under each path. ``using()`` makes a task anew, of the same function.
_declared: Final[dict[str, Callable[..., Any]]] = {}


def declare(task: AnyTask, **policy: Any) -> None:
    """Declare a task as a job, once."""
    if _declared.get(task.module_path) is not task.func:
        _declared[task.module_path] = task.func
        job(task.module_path, on_failure=_failed, **policy)(_runner(task))


def _runner(task: AnyTask) -> Callable[..., Any]:
    """What a worker calls: the task's function, with its result kept and its errors noted."""

    def run(*args: Any, **kwargs: Any) -> Any:
        this = current_job()
        result = _begun(current_task.request, args, kwargs, this)
        _tell(task_started, result)
        context: tuple[Any, ...] = (TaskContext(task_result=result),) if task.takes_context else ()
        try:
            value = _said(task, task.call(*context, *args, **kwargs))
        except (JobReleased, Ignore):
            raise
        except Exception as error:
            this.log(error_line(error, traceback.format_exc()))
            raise
        keep_result(this, value)
        _tell(task_finished, _ended(result, TaskResultStatus.SUCCESSFUL, value=value))
        return value

    update_wrapper(run, task.func)
    del run.__wrapped__  # type: ignore[attr-defined]  # Celery reads the signature, which has no context
    return run


def _said(task: AnyTask, value: Any) -> Any:
    """What a function has returned, as JSON has it.

    :raises NonRetryableError: JSON cannot say it; another run would do no better.
    """
    try:
        return normalize_json(value)
    except (TypeError, ValueError) as error:
        raise NonRetryableError(f"{task.module_path}: JSON cannot say what it has returned: {error}") from error


def _failed(self: Any, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
    """Celery's handler of a job that has failed for good. Where its process was killed there is no run to tell of."""
    if not (self.request.headers or {}).get(ABOUT):
        return
    kind = type(exc)
    error = TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=str(einfo))
    result = _begun(self.request, args, kwargs, current_job())
    _tell(task_finished, _ended(result, TaskResultStatus.FAILED, errors=[error]))


# -- what Django is told -----------------------------------------------------------------------------------------------


def _begun(request: Any, args: Any, kwargs: Any, this: CurrentJob) -> AnyResult:
    attempt = this.attempts_made + this.stalled_count + 1
    return begun_result(request.headers[ABOUT], this.id, args, kwargs, attempt=attempt, worker=str(request.hostname))


def _ended(result: AnyResult, status: TaskResultStatus, value: Any = None, errors: list[TaskError] | None = None) -> AnyResult:
    """The same when its function has ended; the job is settled just after."""
    ended: AnyResult = replace(result, status=status, finished_at=timezone.now(), errors=errors or [])
    object.__setattr__(ended, "_return_value", value)
    return ended


def _tell(signal: Any, result: AnyResult) -> None:
    """Send one of Django's signals. Who listens is no reason for a job to fail."""
    for receiver, answer in signal.send_robust(type(result.task.get_backend()), task_result=result):
        if isinstance(answer, Exception):
            logger.error("%r failed, told of task %s", receiver, result.id, exc_info=answer)
