"""What a run that raised becomes; without one rule for it, parent and child would classify the same error differently."""

from __future__ import annotations

from dataclasses import dataclass

from queue_kit.errors import InvalidPayload, JobTimeoutError, NonRetryableError, UnknownJob
from queue_kit.states import Cause


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


AGAIN = Retry()


def cause_of(error: type[BaseException]) -> Cause:
    """The specific cause that an error class stands for, once the job has failed for good."""
    if issubclass(error, InvalidPayload):
        return Cause.INVALID_PAYLOAD
    if issubclass(error, UnknownJob):
        return Cause.UNKNOWN_TASK
    if issubclass(error, JobTimeoutError):
        return Cause.TIMEOUT
    return Cause.NON_RETRYABLE if issubclass(error, NonRetryableError) else Cause.EXHAUSTED


def decide(failure: Failure, attempts_made: int, attempts: int | None) -> Retry | Fail:
    """What a failed attempt becomes.

    ``attempts_made`` counts this attempt; ``attempts`` is the task's limit, ``None`` for no limit.
    """
    if not failure.retryable:
        return Fail(failure.cause, exhausted=False)
    if attempts is None or attempts_made < attempts:
        return AGAIN
    return Fail(failure.cause, exhausted=True)
