"""What every answer of the site passes through: the browser is told to run nothing foreign, and a queue that is away is a 503.

Without it a script in somebody's name would run on our pages, and an outage of Redis would look like a bug of ours.
"""

import logging
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from queue_kit import QueueUnavailable

logger = logging.getLogger(__name__)

# An outage that is over within a second or two is a failover; clients should be back about then.
RETRY_AFTER_S = 2

# No inline script or style, nothing from another host, no frame around us. It covers the admin, which needs no more.
POLICY = "; ".join([
    "default-src 'self'", "object-src 'none'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'",
])  # fmt: skip


class ContentSecurityPolicyMiddleware:
    """Put the policy on every answer but Django's own fault pages of a laptop, which carry their style with them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not (settings.DEBUG and response.status_code in {404, 500}):
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


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
        return self.refusal(request)

    def refusal(self, request: HttpRequest) -> HttpResponse:
        """Return 503 as whoever asks can read it: a page for a browser, JSON for anything else."""
        how: dict[str, Any] = {"status": 503, "headers": {"Retry-After": str(RETRY_AFTER_S)}}
        if request.get_preferred_type(["application/json", "text/html"]) == "text/html":
            return HttpResponse(render_to_string("503.html", request=request), **how)
        body = {"error": "The job queue is not reachable just now. Nothing is lost: send the same request again."}
        return JsonResponse(body, **how)
