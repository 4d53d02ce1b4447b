"""The jobs of the chaos run, and the book in which each run writes down that it has begun.

Without that book only Redis could say how often a job has run, and Redis is among what is killed.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task, shared_task, signals
from django.db import connection, transaction

from queue_kit import NonRetryableError, Snooze, TransientError, current_job, fixed, install, job
from queue_kit.django import once

QUEUES = ("chaos-a", "chaos-b", "chaos-c")
#: Schedules by id, with their intervals in ms.
SCHEDULES = {"quick": 500, "slow": 2300}


def make(broker_url: str | None = None, **settings: Any) -> Celery:
    """Make an app with all jobs below; settings that are not given come from the environment, as the name of a primary."""
    app = Celery("chaos", broker=broker_url, set_as_current=True)
    app.conf.update(task_default_queue=QUEUES[0], result_expires=600)
    if "CHAOS_PRIMARY" in os.environ:
        by_name = {"master_name": os.environ["CHAOS_PRIMARY"]}
        app.conf.update(broker_transport_options=by_name, result_backend_transport_options=by_name)
    install(app, settings)
    return app


def begin(book: str = "book") -> Any:
    """Write down that a run has begun; in one write to the end of the file, so that no kill leaves half a line."""
    run = current_job()
    line = json.dumps({"id": run.id, "run": run.attempts_started, "pid": os.getpid(), "at": time.time()}) + "\n"
    with (Path(os.environ["CHAOS_FOLDER"]) / book).open("a") as lines:
        lines.write(line)
    return run


@job("chaos.pause", attempts=5)
def pause(seconds: float) -> None:
    """Take a while."""
    begin().sleep(seconds)


@job("chaos.flaky", queue=QUEUES[1], attempts=5, backoff=fixed(50))
def flaky(failures: int) -> None:
    """Fail a number of times, then succeed."""
    if begin().attempts_made < failures:
        raise TransientError("not yet")


@job("chaos.snooze", queue=QUEUES[1], attempts=5)
def snooze() -> None:
    """Be put off in the first run."""
    if begin().attempts_started == 1:
        raise Snooze(100)


@job("chaos.doomed", attempts=5)
def doomed() -> None:
    """Fail for good."""
    begin()
    raise NonRetryableError("never")


@job("chaos.effect", queue=QUEUES[2], attempts=5, backoff=fixed(200))
def effect(seconds: float) -> None:
    """Have one effect, whatever happens around it."""
    run = begin()
    with transaction.atomic():
        if once():
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO effects (key) VALUES (%s)", [run.id])
        run.sleep(seconds)


@shared_task(name="chaos.step")
def step(*_: Any) -> int:
    """A plain task: one step of a chain, one part of a chord, or its body. What follows it may be sent once it has returned."""
    begin()
    begin("returned")
    return 1


@shared_task(name="chaos.gives_way", bind=True)
def gives_way(self: Task, inner: str) -> Any:
    """Replace itself by a chain of two steps, of which the last has this job's id."""
    begin()
    return self.replace(step.si().set(task_id=inner) | step.si())


@signals.worker_ready.connect
def _say_ready(sender: Any, **_: Any) -> None:
    (Path(os.environ["CHAOS_FOLDER"]) / f"ready-{sender.hostname}").touch()


app = make()
