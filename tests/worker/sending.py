"""Apps that send, in this process, and the ways they do it.

Without it each test of sending would make and close its app in its own way, and leave it the current one for the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from celery import Celery, current_app, group

from queue_kit import enqueue, enqueue_many
from queue_kit.observe.reading import open_census
from queue_kit.store.census import Census, JobView
from tests.apps import enqueue_app


@contextlib.contextmanager
def sending(broker_url: str, backend_url: str | None = None, **settings: Any) -> Iterator[Celery]:
    """Make an app that sends to this broker, current in this thread for as long as the context lasts."""
    app = enqueue_app.make(broker_url, backend_url, **settings)
    app.finalize()
    with current(app):
        yield app
    app.close()


@contextlib.contextmanager
def current(app: Celery) -> Iterator[Celery]:
    """Make an app the current one of this thread for a while."""
    before = current_app._get_current_object()
    app.set_current()
    try:
        yield app
    finally:
        before.set_current()


#: Each way to send one job.
WAYS: dict[str, Callable[[Celery], Any]] = {
    "enqueue": lambda app: enqueue("enq.free", {"value": 1}),
    "enqueue_many": lambda app: _first_error(enqueue_many("enq.free", [{"value": 1}])),
    "delay": lambda app: app.tasks["enq.free"].delay(value=1),
    "plain task": lambda app: app.tasks["enq.plain"].delay(1),
    "by name": lambda app: app.send_task("enq.elsewhere", kwargs={"value": 1}),
    "countdown": lambda app: app.tasks["enq.plain"].apply_async((1,), countdown=60),
    "through an exchange": lambda app: app.tasks["enq.plain"].apply_async((1,), exchange="elsewhere", routing_key="x"),
    "group": lambda app: group([app.tasks["enq.plain"].s(1)]).apply_async(),
}


def _first_error(sent: list[Any]) -> Any:
    for handle in sent:
        if handle.error is not None:
            raise handle.error
    return sent


def census_of(app: Celery) -> Census:
    """What is in Redis, read past the sender."""
    return open_census(app)


def job_of(app: Celery, job_id: str) -> JobView:
    """One job, which must be there."""
    view = open_census(app).job(job_id)
    assert view is not None, f"{job_id} is not there"
    return view
