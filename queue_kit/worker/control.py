"""What anybody may ask of one job while it may be running somewhere: nothing here waits for the worker that runs it."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from queue_kit.errors import JobNotFound, QueueUnavailable
from queue_kit.states import Cause, State
from queue_kit.store import Ledger
from queue_kit.worker.apps import app_with_queue_kit


def cancel(job_id: str, app: Any = None) -> State:
    """Ask that a job does not run, or stops. Return its state after that.

    ``cancelled``: it waited or was delayed, and never runs; whoever waits for its result is told that it was revoked.
    ``active``: it runs; its token fires within a quarter of a lease. If its run stops for that, raises anything, or loses its
    worker, it ends ``cancelled`` and is not retried; a run that returns all the same completes. The request outlives every
    worker. Another state: it has ended already, and nothing happens.

    :raises JobNotFound: no job has this id.
    :raises QueueUnavailable: Redis could not be asked.
    """
    kit = app_with_queue_kit(app).queue_kit
    try:
        word = Ledger(kit.sender.client).run(kit.moves.cancel(job_id, Cause.CANCELLED))
    except RedisError as error:
        raise QueueUnavailable(f"the queue is not available ({error})", job_id) from error
    if word == "gone":
        raise JobNotFound(f"cancel: no job has the id {job_id}")
    return State.ACTIVE if word == "flagged" else State(word)
