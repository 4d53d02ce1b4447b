"""Every error that queue_kit raises, in one tree; without it callers would have to know which layer failed.

    QueueKitError
    ├── ConfigurationError          a setting, broker URL or server that cannot hold the promises
    ├── QueueUnavailable            (also kombu.exceptions.OperationalError) Redis could not take the job
    ├── NonRetryableError           raised by a task: fails at once
    │   ├── InvalidPayload
    │   ├── UnknownJob
    │   ├── UnsupportedOperation
    │   └── ResourceGone
    ├── TransientError              raised by a task: retried while attempts remain
    │   └── JobTimeoutError
    ├── JobReleased                 raised by a task: the job goes back, no attempt is counted
    │   ├── Snooze                  it runs again after a while
    │   ├── GiveBack                it is the next of its queue
    │   └── RateLimited             and nothing of its queue runs for a while
    ├── JobCancelled                raised by a task that stops because it was asked to: not retried
    ├── JobNotFound                 no job has this id
    ├── WrongState                  the job is in a state that does not allow this
    ├── NoCurrentJob                current_job() was called outside a run
    ├── JobExit                     a task called sys.exit()
    ├── JobStalledError             its worker was lost too often
    ├── JobLostError                its worker was lost, and it may run at most once
    ├── DeadLetterError             what was asked of a dead letter cannot be done
    │   ├── DeadLetterNotFound
    │   ├── NoDeadLetterMatches
    │   ├── AlreadyReplayed
    │   └── NewerDeadLetter         a later version of queue_kit has written it
    └── NotInTransaction            once() was called outside a database transaction
"""

from __future__ import annotations

from collections.abc import Sequence

from kombu.exceptions import OperationalError


class QueueKitError(Exception):
    """Something in queue_kit went wrong."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or _first_line(type(self)))


def _first_line(error: type[BaseException]) -> str:
    # A subclass without words of its own says what its parent says.
    documented = next(kind.__doc__ for kind in error.__mro__ if kind.__doc__)
    return documented.strip().partition("\n")[0]


class ConfigurationError(QueueKitError):
    """The configuration cannot hold the promises of queue_kit.

    ``problems`` lists every fault found, each naming the setting and what would be right.
    """

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("; ".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[list[str]]]:
        return type(self), (self.problems,)


class QueueUnavailable(QueueKitError, OperationalError):
    """Redis could not take the job.

    ``job_id`` may be sent again safely. ``sent`` is ``"no"`` when nothing can have been written, else ``"unknown"``.
    """

    def __init__(self, message: str = "", job_id: str = "", sent: str = "unknown") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.sent = sent

    def __reduce__(self) -> tuple[type[QueueUnavailable], tuple[str, str, str]]:
        return type(self), (str(self), self.job_id, self.sent)


class NonRetryableError(QueueKitError):
    """The job cannot succeed, however often it runs."""


class InvalidPayload(NonRetryableError):
    """The payload does not fit its model."""


class UnknownJob(NonRetryableError):
    """No task of this name is registered."""


class UnsupportedOperation(NonRetryableError):
    """The job asks for something that is not supported."""


class ResourceGone(NonRetryableError):
    """What the job works on is permanently gone."""


class TransientError(QueueKitError):
    """The job may succeed if it runs again.

    ``retry_after_ms``: how long whoever refused it asks to be left alone; the next attempt waits at least so long.
    """

    def __init__(self, message: str = "", *, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class JobTimeoutError(TransientError):
    """The job ran past its deadline."""


class JobReleased(QueueKitError):
    """The job goes back to its queue; no attempt is counted."""


class Snooze(JobReleased):
    """The job is put off.

    It runs again after ``delay_ms`` milliseconds. Nothing limits how often: what waits for something that may never come
    should count its own starts.

    :raises ValueError: for what is no whole number of milliseconds, 0 or more.
    """

    def __init__(self, delay_ms: int, message: str = "") -> None:
        super().__init__(message)
        self.delay_ms = _milliseconds(delay_ms)

    def __reduce__(self) -> tuple[type[Snooze], tuple[int, str]]:
        return type(self), (self.delay_ms, str(self))


class GiveBack(JobReleased):
    """The job is given back.

    It goes to the head of its priority, for whichever worker is free.
    """


class RateLimited(JobReleased):
    """The job met a rate limit.

    It goes to the head of its priority, and no job of that queue begins for ``delay_ms`` milliseconds, on any worker.

    :raises ValueError: for what is no whole number of milliseconds, 0 or more.
    """

    def __init__(self, delay_ms: int, message: str = "") -> None:
        super().__init__(message)
        self.delay_ms = _milliseconds(delay_ms)

    def __reduce__(self) -> tuple[type[RateLimited], tuple[int, str]]:
        return type(self), (self.delay_ms, str(self))


def _milliseconds(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("delay_ms: a whole number of milliseconds, 0 or more, is needed")
    return value


class JobCancelled(QueueKitError):
    """The job was asked to stop."""


class JobNotFound(QueueKitError, LookupError):
    """No job has this id."""


class WrongState(QueueKitError):
    """The job is in a state that does not allow this.

    ``state`` is the state it is in.
    """

    def __init__(self, message: str = "", state: str = "") -> None:
        super().__init__(message)
        self.state = state

    def __reduce__(self) -> tuple[type[WrongState], tuple[str, str]]:
        return type(self), (str(self), self.state)


class NoCurrentJob(QueueKitError, LookupError):
    """No job runs here."""


class JobExit(QueueKitError):
    """The task called sys.exit()."""


class JobStalledError(QueueKitError):
    """The job stalled more than the allowable limit."""


class JobLostError(QueueKitError):
    """The worker of a job that may run at most once was lost."""


class DeadLetterError(QueueKitError):
    """What was asked of a dead letter cannot be done."""


class DeadLetterNotFound(DeadLetterError, LookupError):
    """No dead letter has this id."""


class NoDeadLetterMatches(DeadLetterError, LookupError):
    """No dead letter matches the filter."""


class AlreadyReplayed(DeadLetterError):
    """The dead letter has been replayed already.

    ``by`` says who asked for it, ``at_ms`` when it was.
    """

    def __init__(self, message: str = "", by: str = "", at_ms: int = 0) -> None:
        super().__init__(message)
        self.by = by
        self.at_ms = at_ms

    def __reduce__(self) -> tuple[type[AlreadyReplayed], tuple[str, str, int]]:
        return type(self), (str(self), self.by, self.at_ms)


class NewerDeadLetter(DeadLetterError):
    """A later version of queue_kit has written the dead letter."""


class NotInTransaction(QueueKitError):
    """once() needs a database transaction around it.

    Outside one its mark would commit before the effect, and a run that died between the two would never be made good.
    """
