"""The setting QUEUE_KIT and the project's Celery app; without one place for them two pages could read different queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import Celery, _state
from django.conf import settings
from django.utils.module_loading import import_string

import queue_kit
from queue_kit.errors import ConfigurationError
from queue_kit.settings import Settings, load
from queue_kit.worker.apps import app_with_queue_kit


@dataclass(frozen=True, slots=True)
class ProjectSettings(Settings):
    """What may stand in ``QUEUE_KIT``: all settings of queue_kit, and these, which only Django has."""

    celery_app: str = field(
        default="",
        metadata={"pattern": r"|[A-Za-z_]\w*(\.\w+)+", "sentence": "Where the Celery app is, such as shop.celery.app."},
    )
    job_access: str = field(
        default="",
        metadata={
            "pattern": r"|[A-Za-z_]\w*(\.\w+)+",
            "sentence": "Who else may see a job at jobs/<id>: a function of request and job, such as shop.access.may_see.",
        },
    )
    outbox_poll_ms: int = field(
        default=100, metadata={"least": 10, "most": 60_000, "sentence": "How often a relay looks for rows to send."}
    )
    outbox_keep_s: int = field(
        default=86_400, metadata={"least": 0, "most": 315_360_000, "sentence": "How long a row that was sent is kept."}
    )


def project_settings() -> ProjectSettings:
    """Read ``QUEUE_KIT`` over the environment over the defaults; ``PRODUCTION`` is ``not DEBUG`` unless one of them says it.

    :raises ConfigurationError: names every entry at fault, and what would be right.
    """
    given = getattr(settings, "QUEUE_KIT", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError("QUEUE_KIT: a dict of settings by name is needed")
    read = load(given, defaults=ProjectSettings(production=not settings.DEBUG))
    assert isinstance(read, ProjectSettings)
    return read


def install(app: Celery) -> None:
    """Give the project's Celery app the promises of queue_kit, with the settings in ``QUEUE_KIT``.

    It becomes the app of threads that have none of their own, as those of a web server, unless another is that already.

    :raises ConfigurationError: as :func:`queue_kit.install`; names every entry at fault.
    """
    queue_kit.install(app, project_settings())
    if getattr(_state.default_app, "queue_kit", None) is None:
        app.set_default()


def celery_app() -> Any:
    """The app named by ``QUEUE_KIT["CELERY_APP"]``, or without it the one that has queue_kit.

    :raises ConfigurationError: there is none, or several are; says what to do.
    """
    path = project_settings().celery_app
    if not path:
        return app_with_queue_kit()
    try:
        return app_with_queue_kit(import_string(path))
    except ImportError as error:
        raise ConfigurationError(f"CELERY_APP: {path} cannot be imported: {error}") from error
