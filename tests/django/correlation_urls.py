"""Views that send jobs and that cannot, for the tests of the middleware."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest, JsonResponse
from django.urls import path

import deploy.urls
from deploy import celery_app
from queue_kit import QueueUnavailable


def send() -> str:
    return str(celery_app.send_task("tried.job", queue="tried").id)


def sends(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"job": send()})


async def sends_async(request: HttpRequest) -> JsonResponse:
    """Others are served by this thread before the job is sent, from another one."""
    return JsonResponse({"job": await sync_to_async(send)(), "given": request.correlation_id})


def cannot_send(request: HttpRequest) -> JsonResponse:
    raise QueueUnavailable("no answer", "job-1", "no")


async def cannot_send_async(request: HttpRequest) -> JsonResponse:
    raise QueueUnavailable("no answer", "job-1", "no")


urlpatterns = [
    *deploy.urls.urlpatterns,  # which the site's own page for a 503 links to
    path("sends", sends), path("sends-async", sends_async), path("cannot", cannot_send), path("cannot-async", cannot_send_async),
]  # fmt: skip
