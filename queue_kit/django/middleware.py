"""What each request passes through: it gets a correlation id, and a queue that is away is a 503.

Without it a job could not be traced to the request that sent it, and an outage of Redis would look like a bug of the project's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string

from queue_kit.django.views import RETRY_AFTER_S
from queue_kit.errors import QueueUnavailable
from queue_kit.observe.correlation import HEADER, accepted, correlation_id

logger = logging.getLogger(__name__)

GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]

_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>Not available just now</title><h1>Not available just now</h1>"
    "<p>The job queue is not reachable. Nothing is lost: send the same again in a moment.</p></html>"
)
_SENTENCE: Final = "The job queue is not reachable just now. Nothing is lost: send the same request again."


class _Middleware:
    """For requests that are served by a thread, and for those that are served by an event loop."""

    sync_capable = async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)  # type: ignore[type-var]


class CorrelationIdMiddleware(_Middleware):
    """Take the request's ``x-correlation-id`` if it fits, else make one; put it on the answer and on every job sent meanwhile.

    Threads that a view starts by itself know nothing of it. It stands first, so that all answers bear it.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if iscoroutinefunction(self.get_response):
            return self._answer(request)
        with _correlated(request) as given:
            return _marked(cast(HttpResponseBase, self.get_response(request)), given)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        with _correlated(request) as given:
            return _marked(await cast(Awaitable[HttpResponseBase], self.get_response(request)), given)


@contextmanager
def _correlated(request: HttpRequest) -> Iterator[str]:
    given = accepted(request.headers.get(HEADER))
    request.correlation_id = given  # type: ignore[attr-defined]
    token = correlation_id.set(given)
    try:
        yield given
    finally:
        correlation_id.reset(token)


def _marked(response: HttpResponseBase, given: str) -> HttpResponseBase:
    response.headers[HEADER] = given
    return response


class QueueUnavailableMiddleware(_Middleware):
    """Turn a send that failed, in any view, into 503 with Retry-After; every other exception passes.

    Programs get JSON, browsers the project's ``503.html``, or a plain page where it has none.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, QueueUnavailable):
            return None
        logger.warning("%s %s answered 503: %s", request.method, request.path, exception)
        how: dict[str, Any] = {"status": 503, "headers": {"Retry-After": str(RETRY_AFTER_S)}}
        if request.get_preferred_type(["application/json", "text/html"]) == "text/html":
            return HttpResponse(_page(request), **how)
        return JsonResponse({"error": _SENTENCE}, **how)


def _page(request: HttpRequest) -> str:
    try:
        return render_to_string("503.html", request=request)
    except TemplateDoesNotExist:
        return _PAGE
