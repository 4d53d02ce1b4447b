"""A small stock Celery app, for the tests of the harness itself."""

from __future__ import annotations

import os

import redis
from celery import Celery

app = Celery("sample")
app.conf.update(task_acks_late=True, broker_transport_options={"visibility_timeout": 5})


@app.task(name="sample.add")
def add(x: int, y: int) -> int:
    """Return the sum."""
    return x + y


@app.task(name="sample.hold")
def hold(key: str) -> str:
    """Say in Redis that the task has begun, then wait until something is pushed to the key."""
    client = redis.Redis.from_url(os.environ["CELERY_BROKER_URL"], decode_responses=True)
    client.rpush(f"{key}:begun", os.getpid())
    return str(client.blpop([key], timeout=60))
