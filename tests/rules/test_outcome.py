"""What a run that raised becomes, as tables."""

from __future__ import annotations

import pytest

from queue_kit import errors
from queue_kit.rules.outcome import AGAIN, Fail, Failure, cause_of, decide
from queue_kit.states import Cause


class CardRefused(errors.NonRetryableError):
    """A project's own."""


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (errors.NonRetryableError, Cause.NON_RETRYABLE),
        (CardRefused, Cause.NON_RETRYABLE),
        (errors.ResourceGone, Cause.NON_RETRYABLE),
        (errors.UnsupportedOperation, Cause.NON_RETRYABLE),
        (errors.InvalidPayload, Cause.INVALID_PAYLOAD),
        (errors.UnknownJob, Cause.UNKNOWN_TASK),
        (errors.JobTimeoutError, Cause.TIMEOUT),
        (errors.TransientError, Cause.EXHAUSTED),
        (errors.JobExit, Cause.EXHAUSTED),
        (ValueError, Cause.EXHAUSTED),
        (ConnectionError, Cause.EXHAUSTED),
        (MemoryError, Cause.EXHAUSTED),
        (SystemExit, Cause.EXHAUSTED),
        (KeyboardInterrupt, Cause.EXHAUSTED),
    ],
)
def test_the_most_specific_cause_is_named(error: type[BaseException], cause: Cause) -> None:
    """SPEC 8, I9."""
    assert cause_of(error) == cause


def failure(*, retryable: bool, cause: Cause = Cause.EXHAUSTED) -> Failure:
    return Failure("ValueError", "boom", "", cause, retryable)


@pytest.mark.parametrize(
    ("retryable", "made", "attempts", "becomes"),
    [
        (True, 1, 3, AGAIN),
        (True, 2, 3, AGAIN),
        (True, 3, 3, Fail(Cause.EXHAUSTED, exhausted=True)),
        (True, 7, 3, Fail(Cause.EXHAUSTED, exhausted=True)),
        (True, 1, 1, Fail(Cause.EXHAUSTED, exhausted=True)),
        (True, 1_000, None, AGAIN),
        (False, 1, 3, Fail(Cause.EXHAUSTED, exhausted=False)),
        (False, 3, 3, Fail(Cause.EXHAUSTED, exhausted=False)),
        (False, 1, None, Fail(Cause.EXHAUSTED, exhausted=False)),
    ],
)
def test_retry_while_attempts_remain(retryable: bool, made: int, attempts: int | None, becomes: object) -> None:
    """A2, A3, A7: the first attempt counts; a permanent error never exhausts anything."""
    assert decide(failure(retryable=retryable), made, attempts) == becomes


@pytest.mark.parametrize("cause", [Cause.TIMEOUT, Cause.NON_RETRYABLE, Cause.INVALID_PAYLOAD, Cause.UNKNOWN_TASK])
def test_the_specific_cause_stays(cause: Cause) -> None:
    """SPEC 7: a deadline on the last attempt ends as `timeout`, not as `exhausted`."""
    assert decide(failure(retryable=True, cause=cause), 3, 3) == Fail(cause, exhausted=True)
    assert decide(failure(retryable=False, cause=cause), 1, 3) == Fail(cause, exhausted=False)


def test_a_reason_is_one_line_for_people() -> None:
    assert failure(retryable=True).reason == "ValueError: boom"
    assert Failure("KeyError", "", "", Cause.EXHAUSTED, True).reason == "KeyError"
