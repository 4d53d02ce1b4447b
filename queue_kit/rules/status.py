"""Which kind of error an HTTP status is; without one table each caller of a provider would retry what cannot succeed."""

from __future__ import annotations

from typing import Final

from queue_kit.errors import NonRetryableError, ResourceGone, TransientError, UnsupportedOperation

_PASSING: Final = frozenset({408, 425, 429})
_SPECIFIC: Final[dict[int, type[NonRetryableError]]] = {
    410: ResourceGone,
    501: UnsupportedOperation,
    505: UnsupportedOperation,
}


def error_of(code: int, retry_after_ms: int | None = None) -> TransientError | NonRetryableError:
    """The error that a status of 400 to 599 stands for.

    408, 425, 429 and the server's own faults pass; what the server says it will never do, and every other 4xx, does not.

    :raises ValueError: for a status that is no error.
    """
    if isinstance(code, bool) or not isinstance(code, int) or not 400 <= code <= 599:
        raise ValueError("code: an HTTP status from 400 to 599 is needed; the others are no errors")
    if code in _SPECIFIC:
        return _SPECIFIC[code](f"HTTP status {code}")
    if code in _PASSING or code >= 500:
        return TransientError(f"HTTP status {code}", retry_after_ms=retry_after_ms)
    return NonRetryableError(f"HTTP status {code}")
