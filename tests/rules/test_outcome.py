"""What a run that raised becomes, as tables."""

from __future__ import annotations

import pytest

from queue_kit import errors
from queue_kit.rules.outcome import (
    AGAIN,
    CANCEL,
    REFUSE,
    TIME_OUT,
    Fail,
    Failure,
    Release,
    cause_of,
    decide,
    ending_of,
    kind_of,
)
from queue_kit.states import Cause, StopReason


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


# -- ends that are neither success nor failure ----------------------------------------------------------------------------

SNOOZED = Release("snoozed for 200 ms", delay_ms=200)
RATE_LIMITED = Release("rate limited for 250 ms", hold_ms=250)
GIVEN_BACK = Release("given back")
SHUT_DOWN = Release("stopped for the shutdown of its worker")

RETURNED, RAISED, STOPPED = None, ValueError("boom"), errors.JobCancelled()
SNOOZE, LIMITED, GAVE_BACK = errors.Snooze(200), errors.RateLimited(250), errors.GiveBack()


class LaterToday(errors.Snooze):
    """A project's own."""


#: What a run has come to, by how it ended (down) and by why it had been asked to stop (across).
ENDINGS = {
    "returned": (RETURNED, [None, None, None, None, REFUSE]),
    "raised": (RAISED, [None, None, None, CANCEL, REFUSE]),
    "permanent": (errors.NonRetryableError(), [None, None, None, CANCEL, REFUSE]),
    "timed out": (errors.JobTimeoutError(), [None, None, None, CANCEL, REFUSE]),
    "stopped": (STOPPED, [CANCEL, TIME_OUT, SHUT_DOWN, CANCEL, REFUSE]),
    "snoozed": (SNOOZE, [SNOOZED, SNOOZED, SNOOZED, CANCEL, REFUSE]),
    "own kind of snooze": (LaterToday(200), [SNOOZED, SNOOZED, SNOOZED, CANCEL, REFUSE]),
    "gave back": (GAVE_BACK, [GIVEN_BACK, GIVEN_BACK, GIVEN_BACK, CANCEL, REFUSE]),
    "rate limited": (LIMITED, [RATE_LIMITED, RATE_LIMITED, RATE_LIMITED, CANCEL, REFUSE]),
}
REASONS = [None, StopReason.TIMEOUT, StopReason.SHUTDOWN, StopReason.CANCELLED, StopReason.LEASE_LOST]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("ended", ENDINGS)
def test_what_a_run_has_come_to(ended: str, reason: StopReason | None) -> None:
    """SPEC 6, J1, J4, B8: the table of it."""
    error, endings = ENDINGS[ended]
    assert ending_of(error, reason) == endings[REASONS.index(reason)]


def test_every_reason_to_stop_is_in_the_table() -> None:
    assert set(REASONS) == {None, *StopReason}


class OperationalError(Exception):
    """As django.db and the drivers name it: a deadlock, a lost connection."""


class Deadlock(OperationalError):
    """As psycopg derives its own."""


class StaleDataError(Exception):
    """As SQLAlchemy names a row that another has changed."""


class SoftTimeLimitExceeded(Exception):
    """As billiard names it."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.JobTimeoutError, "timeout"),
        (SoftTimeLimitExceeded, "timeout"),
        (errors.TransientError, "transient"),
        (errors.QueueUnavailable, "transient"),
        (TimeoutError, "transient"),
        (ConnectionResetError, "transient"),
        (OperationalError, "transient"),
        (Deadlock, "transient"),
        (StaleDataError, "transient"),
        (OSError, "unexpected"),
        (KeyError, "unexpected"),
        (MemoryError, "unexpected"),
    ],
)
def test_how_an_attempt_failed_that_may_be_repeated(error: type[BaseException], kind: str) -> None:
    """SPEC 6: without importing a driver of any database."""
    assert kind_of(error) == kind
