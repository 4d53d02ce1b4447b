"""An app whose jobs are sent by schedules, to a queue that the environment names; with one entry of Celery's own kind."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc
from pydantic import BaseModel

from queue_kit import install, job


class Sweep(BaseModel):
    """What to sweep."""

    room: str


@job("tests.sweep", payload=Sweep)
def sweep(payload: Sweep) -> str:
    """Say which room."""
    return payload.room


def make(broker_url: str | None = None, queue: str = "", **settings: Any) -> Celery:
    """Make an app; ``SCHEDULES_EVERY_S`` gives it an entry in ``beat_schedule``."""
    app = Celery("schedules", broker=broker_url, set_as_current=False)
    install(app, settings)
    app.conf.task_default_queue = queue or os.environ.get("SCHEDULES_QUEUE", "celery")
    every_s = os.environ.get("SCHEDULES_EVERY_S")
    if every_s:
        entry = {"task": "tests.sweep", "schedule": float(every_s), "kwargs": {"room": BeatLazyFunc(str, "own")}}
        app.conf.beat_schedule = {"own": entry}
    return app


app = make()
