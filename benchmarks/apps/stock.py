"""Stock Celery, set to lose as little as it can, and as fast as it gets: prefetching is what feeds its pool."""

from celery import Celery

from benchmarks.apps import tasks

app = Celery("stock")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=16,  # the best of 1, 4, 16 and 64
    broker_connection_retry_on_startup=True,
)
noop = app.task(name=tasks.NOOP)(tasks.noop)
stamp = app.task(name=tasks.STAMP)(tasks.stamp)
