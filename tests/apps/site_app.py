"""The site's own app, in a worker that kills itself where `CRASH_AT` says; without it a job of the site would die only by luck at
the moment that matters.
"""

from deploy.celery import app
from tests.apps import crash_app

# Importing it is enough: it watches from the start of the worker.
__all__ = ["app", "crash_app"]
