"""Finds the Celery app that a call without one means; Celery's current app is a thread's own, and a web server's threads
have none.
"""

from __future__ import annotations

from typing import Any

from celery import current_app
from celery._state import _get_active_apps

from queue_kit.errors import ConfigurationError


def app_with_queue_kit(app: Any = None) -> Any:
    """The app given, or this thread's current one, or the only one in this process that has queue_kit.

    :raises ConfigurationError: there is none, or there are several; says what to do.
    """
    chosen = app if app is not None else current_app._get_current_object()
    if getattr(chosen, "queue_kit", None) is not None:
        return chosen
    if app is None:
        candidates = [other for other in _get_active_apps() if getattr(other, "queue_kit", None) is not None]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            raise ConfigurationError("several Celery apps have queue_kit: name one, or make it current with app.set_default()")
    raise ConfigurationError("the Celery app has no queue_kit: call queue_kit.install(app) first")
