"""The Celery app of this project, with the queue kit installed on its broker.

Without `install` the same code would run on the stock Redis transport: no leases, and a job lost with the worker that popped it.
"""

import os

from celery import Celery
from django.conf import settings

from queue_kit.django import install
from queue_kit.observe.logs import json_logging_in_workers

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "deploy.settings")

app = Celery("deploy")
app.config_from_object("django.conf:settings", namespace="CELERY")
install(app)
if settings.JSON_LOGS:
    json_logging_in_workers()
app.autodiscover_tasks()
app.autodiscover_tasks(["deploy"], related_name="maintenance")
