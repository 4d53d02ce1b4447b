"""Tasks as a project writes them with Django's own ``@task``. Needs Django 6."""

from __future__ import annotations

import time
from typing import Any

from django.tasks import TaskContext, task

from queue_kit import NonRetryableError, current_job, fixed
from queue_kit.django.tasks_backend import job_policy


class Boom(Exception):
    """What a task fails with."""


@task
def add(a: int, b: int = 1) -> int:
    """Return a sum."""
    return a + b


@task(takes_context=True, queue_name="grading", priority=10)
def tell(context: TaskContext[Any, Any], word: str) -> dict[str, Any]:
    """Say what is known of this run."""
    result = context.task_result
    job = current_job()
    return {"word": word, "attempt": context.attempt, "id": result.id, "same": job.id == result.id, "status": result.status}


@task
async def later(value: Any) -> Any:
    """A coroutine."""
    return value


@task
@job_policy(attempts=3, backoff=fixed(10))
def flaky(until: int) -> str:
    """Fail until the attempt of this number."""
    made = current_job().attempts_made + 1
    if made < until:
        raise Boom(f"attempt {made}")
    return f"attempt {made}"


@task(takes_context=True)
@job_policy(attempts=5, backoff=fixed(10))
def count(context: TaskContext[Any, Any], failures: int) -> int:
    """Return the number of the attempt that does not fail."""
    if context.attempt <= failures:
        raise Boom(str(context.attempt))
    return context.attempt


@task
def hopeless() -> None:
    """Fail for good."""
    raise NonRetryableError("no use")


@task
def unsayable() -> Any:
    """Return what JSON cannot say."""
    return object()


@task
def slow(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "done"
