"""What every answer of the site passes through: the browser is told to run nothing foreign.

Without it a script in somebody's name would run on our pages.
"""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

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
