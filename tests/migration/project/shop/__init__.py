"""A shop on stock Celery: three apps, canvas, beat, results in the database."""

from .celery import app as celery_app

__all__ = ["celery_app"]
