"""The function of a task, run under a lease; what it has come to is decided here, where it has raised, before Celery stores a
result, calls back or retries: a snooze would else be a failure, and a run that lost its lease would overwrite another's result.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from celery.exceptions import Ignore, Retry
from redis.exceptions import RedisError

from queue_kit.rules.outcome import Cancel, Refuse, Release, TimeOut, ending_of
from queue_kit.states import StopReason
from queue_kit.store import Ledger
from queue_kit.transport import points
from queue_kit.transport.kit import Kit, Run
from queue_kit.worker.running.backend import outlast
from queue_kit.worker.running.deadline import interrupted, overdue
from queue_kit.worker.running.lost import LeaseLost
from queue_kit.worker.running.tracing import tell_run

logger = logging.getLogger(__name__)

#: A run that has lasted this fraction of its lease checks its token before anything is stored.
_NEARLY: Final = 0.75


class Ended(Ignore):
    """The run has come to an end that Celery has no word for; the main process reads it from the report."""


def govern(task: Any, kit: Kit) -> None:
    """Put our rules around a task's function, inside Celery's automatic retry if the task has it."""
    name = "_orig_run" if hasattr(task, "_orig_run") else "run"
    setattr(task, name, _governed(getattr(task, name), task, kit))


def _governed(function: Callable[..., Any], task: Any, kit: Kit) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        current = kit.running.get(task.request.id)
        if current is None:  # called as a function, or in another kind of worker
            return function(*args, **kwargs)
        began = time.monotonic()
        outlast(task.backend, kit)
        points.reached("function entering")
        tell_run(current)
        try:
            with interrupted(current, kit.settings.job_timeout_grace_ms):
                value = function(*args, **kwargs)
        except Exception as error:
            points.reached("function left")
            _judge(current, error, time.monotonic() - began, kit)
            raise
        points.reached("function left")
        _judge(current, None, time.monotonic() - began, kit)
        return value

    return run


def _judge(run: Run, error: Exception | None, lasted_s: float, kit: Kit) -> None:
    """Raise what Celery has to see instead of this run's result or error, if it is something else.

    :raises LeaseLost: the job is another's.
    :raises Ended: it was given back, or has stopped because it was asked to.
    :raises JobTimeoutError: it has stopped for its deadline.
    """
    if run.moved:
        return  # a retry or a replacement has been sent: that is its end
    if isinstance(error, (Ignore, Retry)):
        error = None  # what Celery's own words say, has been done
    reason = run.stop.reason
    if reason is not StopReason.LEASE_LOST and (error is not None or lasted_s * 1000 >= kit.moves.lease_ms * _NEARLY):
        reason = _asked(run, kit) or reason
    ending = ending_of(error, reason)
    if isinstance(ending, Refuse):
        raise LeaseLost(f"the lease of {run.id} is lost") from error
    if isinstance(ending, TimeOut):
        raise overdue(run) from error
    if isinstance(ending, (Release, Cancel)):
        run.ending = ending
        raise Ended(str(error)) from error


def _asked(run: Run, kit: Kit) -> StopReason | None:
    """What Redis says to a run that is about to store something and may not have heard yet; ``None``: go on.

    Where it does not answer nothing can be stored either, and the settle asks again.
    """
    try:
        word = Ledger(kit.sender.client).run(kit.moves.check(run.id, run.token))
    except RedisError as error:
        logger.warning("whether job %s is still ours could not be asked: %s", run.id, error)
        return None
    if word.startswith("cancel:"):
        return StopReason.CANCELLED
    return StopReason.LEASE_LOST if word in ("lost", "gone") else None
