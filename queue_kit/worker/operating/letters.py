"""Opens the dead letters of an app, on a connection of its own; without it each page and command would find its own way to
Redis, and some would forget what is to be redacted.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from queue_kit.observe import transitions
from queue_kit.rules.redaction import Redactor
from queue_kit.store.census import JobView
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import VERSION, DeadLetter, open_letter
from queue_kit.worker.apps import app_with_queue_kit


def dead_letters(app: Any = None) -> DeadLetters:
    """The dead letters of an app that has queue_kit; without ``app`` of this thread's current one. Connects when first asked.

    :raises ConfigurationError: there is no such app, or there are several.
    """
    app = app_with_queue_kit(app)
    settings = app.queue_kit.settings
    client = app.connection_for_write().open_any(settings.redis_timeout_ms)
    redactor = Redactor.of(settings.dead_letter_redact)
    return DeadLetters(client, settings.queue_prefix, redactor, partial(_parameters, app), transitions.aside)


def without_secrets(app: Any, job: JobView, reason: str) -> DeadLetter:
    """A job's payload, and a reason that may quote it, read as its dead letter is, so that both hide the same."""
    record = {"version": str(VERSION), "message": job.message, "reason": reason}
    redactor = Redactor.of(app.queue_kit.settings.dead_letter_redact)
    return open_letter(job.id, record, redactor, _parameters(app, job.name))


def _parameters(app: Any, name: str) -> Sequence[str]:
    """Names of what a task takes by position; none for a task that is not known here."""
    task = app.tasks.get(name)
    return list(inspect.signature(task.run).parameters) if task is not None else ()
