"""Finds the project's Celery app; without one place for it a page and a command could read different queues."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from queue_kit.errors import ConfigurationError
from queue_kit.worker.apps import app_with_queue_kit


def celery_app() -> Any:
    """The app named by the setting ``QUEUE_KIT_APP`` (``"project.celery.app"``), or without it Celery's current one.

    :raises ConfigurationError: there is none that has queue_kit; says what to do.
    """
    path = getattr(settings, "QUEUE_KIT_APP", None)
    if path is None:
        return app_with_queue_kit()
    try:
        return app_with_queue_kit(import_string(path))
    except ImportError as error:
        raise ConfigurationError(f"QUEUE_KIT_APP: {path} cannot be imported: {error}") from error
