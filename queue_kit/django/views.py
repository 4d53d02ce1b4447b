"""What probes, scrapers and programs ask of the web process; without a limit on each, one frozen Redis would hold its threads.

Every answer is there within little more than a second, whatever Redis does.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import fields
from functools import cache
from threading import Lock
from time import monotonic
from typing import Any, Final, cast

from celery.backends.base import DisabledBackend
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.module_loading import import_string
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from queue_kit.django.conf import celery_app, project_settings
from queue_kit.errors import QueueUnavailable
from queue_kit.observe.metrics import CONTENT_TYPE, QueueCollector, render
from queue_kit.observe.reading import LIMIT_S, ask, within
from queue_kit.rules.redaction import Redactor
from queue_kit.states import State
from queue_kit.store.census import Census, JobView
from queue_kit.store.tally import Tally, read_tallies
from queue_kit.worker.operating.letters import without_secrets
from queue_kit.worker.sending.options import check_job_id
from queue_kit.worker.server import check_server

#: An outage that is over within a second or two is a failover.
RETRY_AFTER_S: Final = 2
#: How long a refusal stands for those who come after it.
_REFUSED_FOR_S: Final = 0.25
#: Of a job's record: what is none of a caller's business, and what is shown otherwise.
_NOT_SHOWN: Final = {"message", "worker", "trimmed", "replaced", "reserved", "reason", "progress"}
_SHOWN: Final = [field.name for field in fields(JobView) if field.name not in _NOT_SHOWN]


def _probe(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page that is read and changes nothing: any other method is 405, not a form without its token."""
    return csrf_exempt(never_cache(require_safe(view)))


@_probe
def live(request: HttpRequest) -> JsonResponse:
    """200 while this process answers at all."""
    return JsonResponse({"status": "ok"})


@_probe
def ready(request: HttpRequest) -> JsonResponse:
    """200 while jobs can be sent: Redis answers, and is one that may be used."""
    reason = _readiness.asked(celery_app())
    return JsonResponse({"status": "not_ready", "reason": reason}, status=503) if reason else JsonResponse({"status": "ok"})


class _Readiness:
    """Why jobs cannot be sent, '' if they can. Of many who ask at once one asks Redis, and all have the answer: each for itself
    would, while Redis is frozen, hold the threads of the server for one second after the other."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: Any = None
        self._reason, self._known_at = "", 0.0

    def asked(self, app: Any) -> str:
        of, came_at = (app, app.conf.broker_read_url), monotonic()
        with self._lock:
            no_older_than = came_at - (_REFUSED_FOR_S if self._reason else 0)
            if self._of != of or self._known_at < no_older_than:
                self._of, self._reason, self._known_at = of, self._ask(app), monotonic()
            return self._reason

    def _ask(self, app: Any) -> str:
        try:
            return str(ask(app, lambda client: check_server(client, app.queue_kit.settings)).refusal)
        except QueueUnavailable:
            return "Redis does not answer"


_readiness = _Readiness()


@_probe
def metrics(request: HttpRequest) -> HttpResponse:
    """All queues' numbers for Prometheus; without Redis the one that says so."""
    app = celery_app()

    def read() -> list[Tally]:
        return ask(app, lambda client: read_tallies(client, app.queue_kit.keys))

    return HttpResponse(render(QueueCollector(read, _registered(app))), content_type=CONTENT_TYPE)


@cache
def _registered(app: Any) -> Container[str]:
    """Names of tasks; a web process may not have imported its task modules yet, and to look for them takes its time."""
    app.loader.import_default_modules()
    return cast(Container[str], app.tasks)


@_probe
def job(request: HttpRequest, job_id: str) -> JsonResponse:
    """One job, for whoever may see it; to anybody else there is none."""
    until = monotonic() + LIMIT_S
    staff, others = _is_allowed(request), project_settings().job_access
    try:
        found = _find(celery_app(), job_id) if staff or others else None
        if found is None or not (staff or import_string(others)(request, found)):
            return JsonResponse({"error": "there is no such job"}, status=404)
        return JsonResponse(_shown(celery_app(), found, until), encoder=_Encoder)
    except QueueUnavailable:
        body = {"error": "The job queue is not reachable just now. Ask again."}
        return JsonResponse(body, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})


def _is_allowed(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return user is not None and user.is_staff and user.has_perm("queue_kit.view_queue")


def _find(app: Any, job_id: str) -> JobView | None:
    try:
        check_job_id(job_id)
    except ValueError:  # no job can have it, though some other part of one may have that key
        return None
    return ask(app, lambda client: Census(client, app.queue_kit.keys).job(job_id))


def _shown(app: Any, found: JobView, until: float) -> dict[str, Any]:
    shown = {name: getattr(found, name) for name in _SHOWN}
    redactor = Redactor.of(app.queue_kit.settings.dead_letter_redact)
    if found.progress is not None:
        shown["progress"] = redactor.tree(found.progress)
    if found.reason:
        shown["reason"] = without_secrets(app, found, found.reason).reason
    if found.state is State.COMPLETED:
        shown |= _result(app, found, redactor, until)
    return shown


def _result(app: Any, found: JobView, redactor: Redactor, until: float) -> dict[str, Any]:
    """What the job has returned, where its app keeps that; and said so where it cannot be read just now."""

    def read() -> Any:
        try:
            return None if isinstance(app.backend, DisabledBackend) else app.backend.get_task_meta(found.id)
        finally:
            connections.close_all()  # those of this thread, if the results lie in a database

    try:
        meta = within(max(0.0, until - monotonic()), read)
    except Exception:  # noqa: BLE001 - each backend has errors of its own, and none hides the job
        return {"result_unavailable": True}
    if not meta or meta["status"] != "SUCCESS" or meta["result"] is None:
        return {}
    result = meta["result"]
    return {"result": redactor.text(result) if isinstance(result, str) else redactor.tree(result)}


class _Encoder(DjangoJSONEncoder):
    """A result may be whatever the project's serializer carries."""

    def default(self, o: Any) -> Any:
        try:
            return super().default(o)
        except TypeError:
            return repr(o)
