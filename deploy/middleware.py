"""Answers 503 when a view could not hand its job to the queue; otherwise an outage of Redis would look like a bug of ours."""

import logging
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse

from queue_kit import QueueUnavailable

logger = logging.getLogger(__name__)

# An outage that is over within a second or two is a failover; clients should be back about then.
RETRY_AFTER_S = 2


class QueueUnavailableMiddleware:
    """Turn an enqueue that failed, in any view, into 503 with Retry-After; every other exception passes."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, QueueUnavailable):
            return None
        logger.warning("%s %s answered 503: %s", request.method, request.path, exception)
        body = {"error": "The job queue is not reachable just now. Nothing is lost: send the same request again."}
        return JsonResponse(body, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
