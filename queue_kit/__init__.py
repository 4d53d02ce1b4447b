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
from queue_kit.worker import control
from queue_kit.worker.control import cancel
from queue_kit.worker.current import CurrentJob, current_job
from queue_kit.worker.enqueue import Enqueued, enqueue, enqueue_many
from queue_kit.worker.http_status import error_for_status
from queue_kit.worker.install import install
from queue_kit.worker.letters import dead_letters
from queue_kit.worker.schedules import Schedule, Schedules, schedules
from queue_kit.worker.task import job

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
