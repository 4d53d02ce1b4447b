"""The app that the crash nodes run: copied into each worker's folder as `app.py`, and prepared alike on the test's side.

Without it sender and worker could disagree about the transport, and a green test would say nothing.
"""

from __future__ import annotations

import os
from typing import Any

import redis
from celery import Celery

# False: stock Celery, which shows that the nodes work. True: the queue kit.
WITH_QUEUE_KIT = True

# Stock Redis brings a killed worker's job back when this has passed, looked for each second.
STOCK = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "worker_prefetch_multiplier": 1,
    "broker_transport_options": {"visibility_timeout": 4, "unacked_restore_interval": 1, "unacked_restore_throttle": 1},
}
QUICK = {"WORKER_LOCK_DURATION_MS": 1000, "WORKER_STALLED_INTERVAL_MS": 200}


def prepare(app: Celery) -> Celery:
    """Configure an app as worker and sender both need it."""
    app.conf.update(broker_connection_retry_on_startup=True, result_extended=True)
    if WITH_QUEUE_KIT:
        from queue_kit import install  # noqa: PLC0415 - stock Celery has to run without it

        install(app, QUICK)
    else:
        app.conf.update(STOCK)
    return app


app = prepare(Celery("crash"))


@app.task(name="crash.add")
def add(x: int, y: int) -> int:
    """Return the sum."""
    return x + y


@app.task(name="crash.hold_once", bind=True)
def hold_once(self: Any, key: str) -> str:
    """Write down who runs this; the first run then waits to be killed, any later one returns its worker's name."""
    store = redis.Redis.from_url(os.environ["CELERY_RESULT_BACKEND"])
    if store.rpush(key, self.request.hostname) == 1:
        store.blpop([f"{key}:never"], timeout=60)
    return str(self.request.hostname)
