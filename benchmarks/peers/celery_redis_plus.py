"""celery-redis-plus: Celery on a transport that keeps an index of what is not acknowledged."""

import os

import celery_redis_plus  # noqa: F401 - it registers valkey://
from celery import Celery

from benchmarks.peers.common import PAYLOAD, URL

os.environ["CELERY_BROKER_URL"] = URL.replace("redis://", "valkey://")  # Celery heeds it more than an argument
app = Celery("peer")
app.conf.update(
    task_acks_late=True, task_reject_on_worker_lost=True, task_ignore_result=True, worker_prefetch_multiplier=16
)


@app.task(name="noop")
def noop(filler):
    """Nothing."""


def send():
    """Send one job."""
    noop.delay(filler=PAYLOAD)
