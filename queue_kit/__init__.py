"""Guarantees for Celery on Redis: leases, stalls, fenced settles and dead letters. This is the front door."""

from queue_kit.errors import (
    ConfigurationError,
    InvalidPayload,
    JobTimeoutError,
    NoCurrentJob,
    NonRetryableError,
    QueueKitError,
    QueueUnavailable,
    ResourceGone,
    TransientError,
    UnknownJob,
    UnsupportedOperation,
)
from queue_kit.observe.reading import open_census
from queue_kit.policy import Backoff, RetryPolicy, exponential, fixed
from queue_kit.worker.current import CurrentJob, current_job
from queue_kit.worker.enqueue import Enqueued, enqueue, enqueue_many
from queue_kit.worker.install import install
from queue_kit.worker.task import job

__all__ = [
    "Backoff",
    "ConfigurationError",
    "CurrentJob",
    "Enqueued",
    "InvalidPayload",
    "JobTimeoutError",
    "NoCurrentJob",
    "NonRetryableError",
    "QueueKitError",
    "QueueUnavailable",
    "ResourceGone",
    "RetryPolicy",
    "TransientError",
    "UnknownJob",
    "UnsupportedOperation",
    "current_job",
    "enqueue",
    "enqueue_many",
    "exponential",
    "fixed",
    "install",
    "job",
    "open_census",
]
