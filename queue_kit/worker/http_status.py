"""The HTTP answer of a provider as an error of queue_kit; without it every task would read `Retry-After` in its own way."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from queue_kit.errors import NonRetryableError, TransientError
from queue_kit.rules.status import error_of

_LONGEST_S: Final = 365 * 24 * 3600


def error_for_status(code: int, retry_after: str | float | None = None) -> TransientError | NonRetryableError:
    """Make the error that an HTTP status stands for, to be raised by the task.

    408, 425, 429, 500, 502, 503, 504 and other 5xx are transient, other 4xx permanent, and so are 501 and 505, by which a
    server says that it will never do it. 410 is :class:`~queue_kit.errors.ResourceGone`.

    :param retry_after: the answer's ``Retry-After`` header, seconds or a date. The next attempt waits at least so long; what
        cannot be read is ignored.
    :raises ValueError: for a status below 400 or above 599, which is no error.
    """
    seconds = _seconds(retry_after)
    return error_of(code, None if seconds is None else round(min(seconds, _LONGEST_S) * 1000))


def _seconds(header: str | float | None) -> float | None:
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        return _until(str(header))
    return seconds if 0 <= seconds < float("inf") else None


def _until(date: str) -> float | None:
    try:
        instant = parsedate_to_datetime(date)
    except ValueError:
        return None
    # RFC 9110 knows no other zone than GMT.
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return max(0.0, (instant - datetime.now(UTC)).total_seconds())
