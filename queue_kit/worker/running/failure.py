"""Reads an exception into a Failure, so that what kind of error it was survives the way from child to parent."""

from __future__ import annotations

from typing import Any

from billiard.einfo import ExceptionWithTraceback
from celery.exceptions import MaxRetriesExceededError, Reject, SoftTimeLimitExceeded, TimeLimitExceeded

from queue_kit.errors import NonRetryableError
from queue_kit.rules.outcome import Failure, cause_of
from queue_kit.states import Cause


def unwrapped(error: Any) -> Any:
    """The exception itself, without billiard's wrapping."""
    return error.exc if isinstance(error, ExceptionWithTraceback) else error


def failure_of(error: Any, stack: Any = "") -> Failure:
    """Describe an exception. What Celery could only keep as text keeps the name of its class."""
    error = unwrapped(error)
    name = getattr(error, "exc_cls_name", None) or type(error).__name__
    message = _words(error)
    if hasattr(error, "exc_cls_name"):
        message = ", ".join(map(_words, getattr(error, "exc_args", ())))
    return Failure(str(name), message, str(stack or ""), _cause(error), not isinstance(error, (NonRetryableError, Reject)))


def _words(said: Any) -> str:
    try:
        return str(said)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is must still be settled
        return f"<a {type(said).__name__} that cannot be shown>"


def _cause(error: BaseException) -> Cause:
    if isinstance(error, (TimeLimitExceeded, SoftTimeLimitExceeded)):
        return Cause.TIMEOUT
    if isinstance(error, Reject):
        return Cause.NON_RETRYABLE
    return Cause.EXHAUSTED if isinstance(error, MaxRetriesExceededError) else cause_of(type(error))
