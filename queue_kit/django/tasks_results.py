"""Reads the result of one of Django's tasks from its job: state, times, workers, errors, and what it has returned.

Without it a result would need a table of its own, which could say otherwise than the queue.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.tasks import TaskResult, TaskResultStatus
from django.tasks.base import Task, TaskError
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
from django.utils import timezone
from django.utils.module_loading import import_string
from redis.exceptions import RedisError

from queue_kit.errors import QueueUnavailable
from queue_kit.rules.payload import read_payload
from queue_kit.states import Cause, State
from queue_kit.store.census import Census, JobView, LineView, RunView
from queue_kit.store.results import kept_result
from queue_kit.transport.kit import Kit

if TYPE_CHECKING:
    AnyTask = Task[Any, Any]
    AnyResult = TaskResult[Any, Any]
else:
    AnyTask, AnyResult = Task, TaskResult

#: Header of a message that says which of Django's tasks it is for.
ABOUT: Final = "django_task"

_STATUS: Final = {
    State.WAITING: TaskResultStatus.READY, State.DELAYED: TaskResultStatus.READY, State.ACTIVE: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL, State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}  # fmt: skip
#: How a run says in its job's log what it failed with: the class, then the traceback, of which the end tells most.
_MARK: Final = "failed with "
_TRACEBACK_MOST: Final = 1_700
#: Runs that were not for nothing, and no attempt either.
_NO_ATTEMPT: Final = ("released", "replaced")
#: What a run failed with that could not say so itself.
_ERRORS: Final = {
    Cause.STALLED: "JobStalledError", Cause.LOST: "JobLostError", Cause.TIMEOUT: "JobTimeoutError",
    Cause.CANCELLED: "JobCancelled", Cause.REVOKED: "JobCancelled", Cause.UNKNOWN_TASK: "UnknownJob",
    Cause.INVALID_PAYLOAD: "InvalidPayload",
}  # fmt: skip


def error_line(error: BaseException, stack: str) -> str:
    """A line of a job's log that :func:`read_result` reads as an error."""
    kind = type(error)
    return f"{_MARK}{kind.__module__}.{kind.__qualname__}\n{stack[-_TRACEBACK_MOST:]}"


def begun_result(
    about: dict[str, Any], job_id: str, args: Any, kwargs: Any, *, attempt: int, worker: str
) -> AnyResult:
    """What a run knows of itself. Of the workers of runs before it, it knows how many there were."""
    now = timezone.now()
    return TaskResult(
        task=_task(job_id, about), id=job_id, status=TaskResultStatus.RUNNING,
        enqueued_at=datetime.fromisoformat(about["enqueued_at"]), started_at=now, finished_at=None, last_attempted_at=now,
        args=list(args), kwargs=dict(kwargs), backend=about["backend"], errors=[],
        worker_ids=["an earlier one"] * (attempt - 1) + [worker],
    )  # fmt: skip


def read_result(kit: Kit, alias: str, result_id: str) -> AnyResult:
    """Read a result, of the backend that asks: it has its own tasks only.

    :raises TaskResultDoesNotExist: no job of one of Django's tasks has this id, or its record is gone.
    :raises QueueUnavailable: Redis does not answer.
    """
    census = Census(kit.sender.client, kit.keys)
    try:
        job = census.job(result_id)
        about = _about(job)
        if job is None or not about or about["backend"] != alias:
            raise TaskResultDoesNotExist(result_id)
        runs, log = census.runs(result_id), census.log(result_id)
        value = kept_result(kit.sender.client, kit.keys, result_id)
    except RedisError as error:
        raise QueueUnavailable(f"the result of {result_id} cannot be read: {error}", result_id, "no") from error
    result = _result(job, about, [run for run in runs if run.cause not in _NO_ATTEMPT], log)
    if result.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", value)
    return result


def _about(job: JobView | None) -> dict[str, Any]:
    """What the message says of its task; nothing where it is none of Django's, or only an id is left of it."""
    if job is None or job.trimmed:
        return {}
    try:
        about = json.loads(job.message)["headers"][ABOUT]
    except (ValueError, LookupError, TypeError):
        return {}
    return about if isinstance(about, dict) else {}


def _result(job: JobView, about: dict[str, Any], runs: list[RunView], log: list[LineView]) -> AnyResult:
    payload = read_payload(job.message)
    ran_here = [job.worker] if job.state in (State.ACTIVE, State.COMPLETED) else []
    first_ms = runs[0].started_at_ms if runs else job.started_at_ms
    return TaskResult(
        task=_task(job.id, about), id=job.id, status=_STATUS[job.state], enqueued_at=_instant(job.added_at_ms),
        started_at=_instant(first_ms), finished_at=_instant(job.finished_at_ms), last_attempted_at=_instant(job.started_at_ms),
        args=payload.args, kwargs=payload.kwargs, backend=about["backend"], errors=[_error(run, log) for run in runs],
        worker_ids=[run.worker for run in runs] + ran_here,
    )  # fmt: skip


def _task(job_id: str, about: dict[str, Any]) -> AnyTask:
    try:
        task = import_string(about["path"])
    except ImportError as error:
        raise TaskResultDoesNotExist(f"{job_id}: {about['path']} is not there any more") from error
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{job_id}: {about['path']} is no task any more")
    run_after = datetime.fromisoformat(about["run_after"]) if about["run_after"] else None
    try:
        return task.using(
            priority=about["priority"], queue_name=about["queue_name"], run_after=run_after, backend=about["backend"]
        )
    except InvalidTask:  # a queue that is not named in the settings any more
        return task


def _error(run: RunView, log: list[LineView]) -> TaskError:
    """What a run has written into the log before it ended, or what is known of it."""
    for line in log:
        if line.line.startswith(_MARK) and run.started_at_ms <= line.at_ms <= run.ended_at_ms:
            path, _, stack = line.line.removeprefix(_MARK).partition("\n")
            return TaskError(exception_class_path=path, traceback=stack)
    name = _ERRORS.get(Cause(run.cause), "QueueKitError") if run.cause in set(Cause) else "QueueKitError"
    return TaskError(exception_class_path=f"queue_kit.errors.{name}", traceback=run.reason)


def _instant(at_ms: int | None) -> datetime | None:
    if at_ms is None:
        return None
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment if settings.USE_TZ else timezone.make_naive(moment)
