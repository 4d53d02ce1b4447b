"""What a run that raised becomes; without one rule for it, parent and child would classify the same error differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from queue_kit.errors import (
    InvalidPayload,
    JobCancelled,
    JobReleased,
    JobTimeoutError,
    NonRetryableError,
    RateLimited,
    Snooze,
    TransientError,
    UnknownJob,
)
from queue_kit.states import Cause, StopReason

#: Errors of databases and network libraries that pass by themselves: deadlock, lost connection, a lock that was not free, a
#: row that another has changed. By name, since naming their classes would mean importing every driver there is.
_PASSING: Final = frozenset({
    "OperationalError", "InterfaceError", "DisconnectionError", "DeadlockDetected", "SerializationFailure",
    "LockNotAvailable", "OptimisticLockError", "StaleDataError", "RecordModifiedError", "ConcurrentModificationError",
    "Timeout", "TimeoutException", "TransportError", "ConnectionError", "ConnectTimeoutError", "ReadTimeoutError",
})  # fmt: skip
#: Ours, and those of Celery's own time limits.
_TIME_IS_UP: Final = frozenset({"JobTimeoutError", "SoftTimeLimitExceeded", "TimeLimitExceeded"})


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels from child to parent: by text, so that an exception that cannot be pickled loses nothing."""

    error_class: str
    message: str
    stack: str
    cause: Cause
    retryable: bool

    @property
    def reason(self) -> str:
        """One line for people: the class and what it said."""
        return f"{self.error_class}: {self.message}" if self.message else self.error_class


@dataclass(frozen=True, slots=True)
class Retry:
    """Run again, after the policy's wait."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Do not run again. ``exhausted``: attempts ran out on a cause that would have been retried."""

    cause: Cause
    exhausted: bool


@dataclass(frozen=True, slots=True)
class Release:
    """Give the job back, no attempt counted: at once to the head of its priority, or after ``delay_ms``.

    ``hold_ms``: nothing of its queue begins for so long.
    """

    reason: str
    delay_ms: int | None = None
    hold_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """The run has stopped because it was asked to; the job will not run again."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The lease is another's: nothing of this run counts."""


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The run has stopped for its deadline: a failed attempt."""


AGAIN = Retry()
CANCEL = Cancel()
REFUSE = Refuse()
TIME_OUT = TimeOut()
GIVEN_BACK: Final = Release("given back")
_SHUT_DOWN: Final = Release("stopped for the shutdown of its worker")


def cause_of(error: type[BaseException]) -> Cause:
    """The specific cause that an error class stands for, once the job has failed for good."""
    if issubclass(error, InvalidPayload):
        return Cause.INVALID_PAYLOAD
    if issubclass(error, UnknownJob):
        return Cause.UNKNOWN_TASK
    if issubclass(error, JobTimeoutError):
        return Cause.TIMEOUT
    return Cause.NON_RETRYABLE if issubclass(error, NonRetryableError) else Cause.EXHAUSTED


def kind_of(error: type[BaseException]) -> str:
    """How an attempt that may be repeated failed, for its history: ``timeout``, ``transient`` or ``unexpected``.

    All three are retried alike; an unexpected error is one that somebody should look at.
    """
    if any(kind.__name__ in _TIME_IS_UP for kind in error.__mro__):
        return "timeout"
    if issubclass(error, (TransientError, TimeoutError, ConnectionError)):
        return "transient"
    return "transient" if any(kind.__name__ in _PASSING for kind in error.__mro__) else "unexpected"


def ending_of(error: BaseException | None, stop: StopReason | None) -> Release | Cancel | Refuse | TimeOut | None:
    """What a run has come to by something else than success or failure; ``None``: judge it by its result or its error.

    ``stop``: why it had been asked to stop when it ended, if it had. What is raised after a cancel by hand counts as stopping
    for it, whatever it is; one that returns all the same has done its work.
    """
    if stop is StopReason.LEASE_LOST:
        return REFUSE
    if error is None:
        return None
    if stop is StopReason.CANCELLED or (stop is None and isinstance(error, JobCancelled)):
        return CANCEL
    if isinstance(error, JobReleased):
        return _release(error)
    if isinstance(error, JobCancelled):
        return TIME_OUT if stop is StopReason.TIMEOUT else _SHUT_DOWN
    return None


def _release(error: JobReleased) -> Release:
    if isinstance(error, Snooze):
        return Release(f"snoozed for {error.delay_ms} ms", delay_ms=error.delay_ms)
    if isinstance(error, RateLimited):
        return Release(f"rate limited for {error.delay_ms} ms", hold_ms=error.delay_ms)
    return GIVEN_BACK


def decide(failure: Failure, attempts_made: int, attempts: int | None) -> Retry | Fail:
    """What a failed attempt becomes.

    ``attempts_made`` counts this attempt; ``attempts`` is the task's limit, ``None`` for no limit.
    """
    if not failure.retryable:
        return Fail(failure.cause, exhausted=False)
    if attempts is None or attempts_made < attempts:
        return AGAIN
    return Fail(failure.cause, exhausted=True)
