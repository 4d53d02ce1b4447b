"""Where the apps, Celery and the queue kit meet; everything that wires one to another stands in this package alone."""

from deploy.celery import app as celery_app

__all__ = ["celery_app"]
