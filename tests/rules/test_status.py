"""Which error an HTTP status is, as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from queue_kit import NonRetryableError, ResourceGone, TransientError, UnsupportedOperation, error_for_status

PASSING = (408, 425, 429, 500, 502, 503, 504, 507, 520, 599)
FINAL = (400, 401, 402, 403, 404, 405, 406, 409, 411, 412, 413, 415, 418, 422, 423, 424, 426, 428, 431, 451, 499)


@pytest.mark.parametrize("code", PASSING)
def test_what_passes_is_tried_again(code: int) -> None:
    """SPEC 6: 408, 425, 429, 500, 502, 503, 504; the other faults of a server likewise."""
    error = error_for_status(code)
    assert (type(error), str(error)) == (TransientError, f"HTTP status {code}")


@pytest.mark.parametrize("code", FINAL)
def test_what_does_not_pass_is_final(code: int) -> None:
    """SPEC 6: other 4xx."""
    assert type(error_for_status(code, "5")) is NonRetryableError


@pytest.mark.parametrize(
    ("code", "kind"), [(410, ResourceGone), (501, UnsupportedOperation), (505, UnsupportedOperation)]
)
def test_what_has_a_name_of_its_own(code: int, kind: type[Exception]) -> None:
    assert type(error_for_status(code)) is kind


@pytest.mark.parametrize("code", [0, 100, 200, 204, 301, 304, 399, 600, -1, "503", 503.0, None, True])
def test_what_is_no_error_is_refused_by_name(code: Any) -> None:
    with pytest.raises(ValueError, match="code: an HTTP status from 400 to 599"):
        error_for_status(code)


@pytest.mark.parametrize(
    ("header", "waits_ms"),
    [
        ("2", 2_000),
        ("0", 0),
        (1.5, 1_500),
        (3, 3_000),
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("99999999999", 365 * 24 * 3_600_000),
    ],
)
def test_retry_after_is_kept_and_nonsense_ignored(header: Any, waits_ms: int | None) -> None:
    error = error_for_status(503, header)
    assert isinstance(error, TransientError)
    assert error.retry_after_ms == waits_ms


def test_a_date_is_waited_for() -> None:
    error = error_for_status(429, format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True))
    assert isinstance(error, TransientError)
    assert 58_000 < (error.retry_after_ms or 0) <= 60_000
