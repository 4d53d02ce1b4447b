"""Guarantees for Celery on Redis: leases, stalls, fenced settles and dead letters. This is the front door."""

from queue_kit.errors import (
    AlreadyReplayed,
    ConfigurationError,
    DeadLetterError,
    DeadLetterNotFound,
    GiveBack,
    InvalidPayload,
    JobCancelled,
    JobNotFound,
    JobReleased,
    JobTimeoutError,
    NewerDeadLetter,
    NoCurrentJob,
    NoDeadLetterMatches,
    NonRetryableError,
    NotInTransaction,
    QueueKitError,
    QueueUnavailable,
    RateLimited,
    ResourceGone,
    Snooze,
    TransientError,
    UnknownJob,
    UnsupportedOperation,
    WrongState,
)
from queue_kit.observe.reading import open_census
from queue_kit.policy import Backoff, RetryPolicy, exponential, fixed
from queue_kit.states import State, StopReason
from queue_kit.store.letters import DeadLetter, LetterFilter
from queue_kit.store.switches import KeyView, QueueLimits
from queue_kit.worker.http_status import error_for_status
from queue_kit.worker.install import install
from queue_kit.worker.operating import control
from queue_kit.worker.operating.control import cancel
from queue_kit.worker.operating.letters import dead_letters
from queue_kit.worker.running.current import CurrentJob, current_job
from queue_kit.worker.running.task import job
from queue_kit.worker.sending.enqueue import Enqueued, enqueue, enqueue_many
from queue_kit.worker.sending.schedules import Schedule, Schedules, schedules

__all__ = [
    "AlreadyReplayed",
    "Backoff",
    "ConfigurationError",
    "CurrentJob",
    "DeadLetter",
    "DeadLetterError",
    "DeadLetterNotFound",
    "Enqueued",
    "GiveBack",
    "InvalidPayload",
    "JobCancelled",
    "JobNotFound",
    "JobReleased",
    "JobTimeoutError",
    "KeyView",
    "LetterFilter",
    "NewerDeadLetter",
    "NoCurrentJob",
    "NoDeadLetterMatches",
    "NonRetryableError",
    "NotInTransaction",
    "QueueKitError",
    "QueueLimits",
    "QueueUnavailable",
    "RateLimited",
    "ResourceGone",
    "RetryPolicy",
    "Schedule",
    "Schedules",
    "Snooze",
    "State",
    "StopReason",
    "TransientError",
    "UnknownJob",
    "UnsupportedOperation",
    "WrongState",
    "cancel",
    "control",
    "current_job",
    "dead_letters",
    "enqueue",
    "enqueue_many",
    "error_for_status",
    "exponential",
    "fixed",
    "install",
    "job",
    "open_census",
    "schedules",
]
