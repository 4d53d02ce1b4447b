"""Views that send jobs and that cannot, for the tests of the middleware."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

import deploy.urls
from deploy import celery_app
from queue_kit import QueueUnavailable
from queue_kit.django import enqueue_on_commit, outbox


def send() -> str:
    return str(celery_app.send_task("tried.job", queue="tried").id)


def sends(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"job": send()})


async def sends_async(request: HttpRequest) -> JsonResponse:
    """Others are served by this thread before the job is sent, from another one."""
    return JsonResponse({"job": await sync_to_async(send)(), "given": request.correlation_id})


def leaves_in_outbox(request: HttpRequest) -> JsonResponse:
    """Sent by a relay, when this request is over."""
    with transaction.atomic():
        return JsonResponse({"job": outbox.add("maintenance.cleanup", {"before": "2020-01-01T00:00:00Z"}).id})


def sends_on_commit(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        return JsonResponse({"job": enqueue_on_commit("maintenance.cleanup", {"before": "2020-01-01T00:00:00Z"}).id})


def cannot_send(request: HttpRequest) -> JsonResponse:
    raise QueueUnavailable("no answer", "job-1", "no")


async def cannot_send_async(request: HttpRequest) -> JsonResponse:
    raise QueueUnavailable("no answer", "job-1", "no")


urlpatterns = [
    *deploy.urls.urlpatterns,  # which the site's own page for a 503 links to
    path("sends", sends), path("sends-async", sends_async), path("cannot", cannot_send), path("cannot-async", cannot_send_async),
    path("on-commit", sends_on_commit), path("outbox", leaves_in_outbox),
]  # fmt: skip
