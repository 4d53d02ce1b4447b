"""The same with queue_kit as it is installed: declared jobs, leases, events, dead letters, all limits at their defaults."""

from celery import Celery

from benchmarks.apps import tasks
from queue_kit import install, job

app = Celery("kit")
app.conf.task_ignore_result = True
install(app)
noop = job(tasks.NOOP)(tasks.noop)
stamp = job(tasks.STAMP)(tasks.stamp)
