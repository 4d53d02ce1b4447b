"""What Django says of an unsafe set-up before anything runs; without it each way would be found by a job that is lost or doubled.

The rules are the doctor's, those of them that need no Redis: a check never connects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from celery.app.defaults import DEFAULTS
from django.core import checks

from queue_kit.django.conf import ProjectSettings, celery_app, project_settings
from queue_kit.errors import ConfigurationError
from queue_kit.observe.doctor import Finding, Verdict
from queue_kit.worker.operating.doctor import examine_settings

TAG: Final = "queue_kit"
_WIRE_IT: Final = (
    "Add one line to the project's celery.py, queue_kit.django.install(app), and import that app in the project's __init__.py; "
    'or name it: QUEUE_KIT = {"CELERY_APP": "shop.celery.app"}.'
)
_REFUSED: Final = "workers refuse to start: "
#: Ids by what a finding begins with, which is the setting that it is about. An id never gets another meaning.
IDS: Final = {
    "task_always_eager": "W001", "task_acks_late": "W002", "acks_late": "W003", "worker_prefetch_multiplier": "W004",
    "broker_connection_max_retries": "W005", "broker_connection_retry_on_startup": "W006", "accept_content": "W007",
    "task_serializer": "W008", "result_serializer": "W009", "result_expires": "W010", "task_soft_time_limit": "W011",
    "max_retries": "W012", "task_queues": "W013", "beat_schedule": "W014", "WORKER_LOCK_DURATION_MS": "W015",
    "WORKER_STALLED_INTERVAL_MS": "W016", "SHUTDOWN_TIMEOUT_MS": "W017", "ENQUEUE_TIMEOUT_MS": "W018",
    "JOB_KNOWN_AFTER_REMOVAL_MS": "W019", "task_create_missing_queues": "W023", "WORKER_INFERRED_DEATH_MS": "W025",
}  # fmt: skip


def check_project(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Settings that are wrong (errors), and those that cost jobs (warnings)."""
    try:
        project_settings()
    except ConfigurationError as error:
        return [checks.Error(f"QUEUE_KIT: {problem}.", id="queue_kit.E001") for problem in error.problems]
    try:
        app = celery_app()
    except ConfigurationError as error:
        return [checks.Error(f"Nothing can be sent: {error}.", hint=_WIRE_IT, id="queue_kit.E002")]
    if _importing.get():
        return []
    if missing := import_tasks(app):
        says = f"Nothing was examined: {missing}."
        return [checks.Warning(says, hint="Start a worker to see where.", id="queue_kit.W024")]
    return [_message(app, finding) for finding in examine_settings(app) if finding.verdict is not Verdict.OK]


#: Celery has Django run its checks whenever it imports tasks.
_importing: Final = ContextVar("importing", default=False)


def import_tasks(app: Any) -> str:
    """Import the tasks, which are part of what is examined; answer what kept them from it, or ''. It must not keep a project from
    its commands: one may ask for a table that `migrate` is to make."""
    token = _importing.set(True)
    try:
        app.loader.import_default_modules()
    except Exception as error:  # noqa: BLE001 - whatever stands at the top of somebody's module
        return f"tasks cannot be imported ({type(error).__name__}: {error}): workers will not start"
    finally:
        _importing.reset(token)
    return ""


def check_deployment(app_configs: Any = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """What is right on a laptop alone."""
    try:
        return list(_of_deployment(project_settings()))
    except ConfigurationError:  # the other check has said so
        return []


def _of_deployment(settings: ProjectSettings) -> Iterator[checks.CheckMessage]:
    if not settings.production:
        yield checks.Warning(
            "PRODUCTION is off: a Redis that deletes jobs when its memory is full is warned of, and used all the same.",
            hint="Leave it out: it is on where DEBUG is off.", id="queue_kit.W021",
        )  # fmt: skip
    if settings.allow_eviction:
        yield checks.Warning(
            "ALLOW_EVICTION is on: Redis may delete jobs when its memory is full.",
            hint="Set maxmemory-policy noeviction in Redis, and leave it out.", id="queue_kit.W022",
        )  # fmt: skip


def _message(app: Any, finding: Finding) -> checks.CheckMessage:
    """A finding in Django's form. What a worker does not boot with is an error; the rest can be silenced by its id."""
    if finding.says.startswith(_REFUSED):
        says = _spelled(app, finding.says.removeprefix(_REFUSED))
        return checks.Error(f"{says}.", hint="Workers refuse to start with it.", id="queue_kit.E003")
    return checks.Warning(f"{_spelled(app, finding.says)}.", hint=f"{finding.fix}.", id=f"queue_kit.{_id_of(finding)}")


def _id_of(finding: Finding) -> str:
    return IDS.get(_name_in(finding.says), "W000")


def _name_in(says: str) -> str:
    found = re.match(r"\w+", says)
    return found[0] if found else ""


def _spelled(app: Any, says: str) -> str:
    """Celery's settings by the names that they have in this project's."""
    name = _name_in(says)
    is_celerys = app.namespace and name in DEFAULTS
    return f"{app.namespace}_{name.upper()}{says.removeprefix(name)}" if is_celerys else says
