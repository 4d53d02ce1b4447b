"""Asks the scoring service for a score, over HTTP.

The service is another team's: it may be slow, down or refuse. What each of these means to a retry is said here, once.
"""

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from django.conf import settings

from examhall.models import Attempt
from queue_kit import NonRetryableError, TransientError

# The answers of a server that may well give another one later; any other 4xx is about the request itself.
PASSING = {408, 425, 429, 500, 502, 503, 504}


def fetch_score(attempt: Attempt, headers: dict[str, str] | None = None) -> int:
    """Return the score of an attempt, 0 to 100.

    Raises TransientError when asking again may help (timeout, no connection, 5xx, 429), NonRetryableError when it cannot.
    """
    sheet = {"attempt": attempt.public_id, "questions": attempt.exam.answer_key(), "answers": attempt.answers}
    return read_score(ask(sheet, headers or {}))


def ask(sheet: dict[str, Any], headers: dict[str, str]) -> bytes:
    """Return the body of the service's answer."""
    headers = {"Content-Type": "application/json", **headers}
    request = Request(f"{settings.EXAMHALL_SCORING_URL}/score", json.dumps(sheet).encode(), headers)
    try:
        with urlopen(request, timeout=settings.EXAMHALL_SCORING_TIMEOUT_S) as response:
            return response.read()
    except HTTPError as refused:
        kind = TransientError if refused.code in PASSING else NonRetryableError
        raise kind(f"the scoring service answered {refused.code}") from refused
    except (OSError, HTTPException) as unreachable:
        raise TransientError(f"the scoring service did not answer: {unreachable}") from unreachable


def read_score(body: bytes) -> int:
    """Return the score of an answer; one that is no score is a fault of the service, and faults get mended."""
    try:
        score = json.loads(body)["score"]
    except (ValueError, TypeError, KeyError) as garbled:
        raise TransientError("the scoring service's answer has no score") from garbled
    if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= 100:
        raise TransientError("the scoring service's score is not a whole number from 0 to 100")
    return score
