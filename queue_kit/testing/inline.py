"""Runs each job inside the call that sends it; without it a test of a view would need a worker and a Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from queue_kit.worker.apps import app_with_queue_kit


@contextmanager
def run_inline(app: Any = None, *, errors: bool = True) -> Iterator[None]:
    """Within it every send of ``app`` runs its job at once, in this thread, and returns when it has ended: Celery's eager mode.
    No Redis is needed; countdowns are not waited for.

    :param errors: whether what a job raises reaches the sender; else it is kept in the result.
    :raises ConfigurationError: there is no app that has queue_kit.
    """
    conf = app_with_queue_kit(app).conf
    before = {name: conf[name] for name in ("task_always_eager", "task_eager_propagates")}
    conf.update(task_always_eager=True, task_eager_propagates=errors)
    try:
        yield
    finally:
        conf.update(before)
