"""Sees a run's result, and the chord that it is part of, through what happens to Redis and to workers meanwhile.

Without it a run that ends while the result backend does not answer would fail, though its function has returned, and Celery
would give up a chord of which the last part returns just then. The body of a chord would also be lost with the part that was
to send it: Celery lets that part take a claim of ten seconds and more, send the body, and then strike the chord out, and expects
a part whose worker died in between to come back later than that. Ours come back within seconds, would find the claim of their
own dead run, and leave the body to it. The body's id is fixed, so that two who send it are one job. And a run that has lost its
lease while it waited would put its trouble in the place of what its rerun returns, and so end their chord.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from celery.app.task import Context
from celery.backends.redis import RedisBackend

from queue_kit.errors import QueueUnavailable
from queue_kit.transport.kit import Kit
from queue_kit.worker.running.lost import LeaseLost, make_sure

logger = logging.getLogger(__name__)

#: What stands in place of a claim once the body has been sent: a part that comes late must find it.
_SENT: Final = (b"done", "done")
_PAUSE_S: Final = 0.1


class _CutOff(Exception):
    """A chord that Celery would give up for an error that passes."""


def free_claim(backend: Any, request: Any) -> None:
    """Take away whatever claim there is on the chord that a job is part of, before that job's part returns once more."""
    if _is_part(backend, request) and backend.get(_key(backend, request, ".c")) not in (None, *_SENT):
        backend.delete(_key(backend, request, ".c"))


def outlast(backend: Any, kit: Kit) -> None:
    """Let the runs of this process try for as long as a lease lasts to store what they have come to. Safe to call twice."""
    if not isinstance(backend, RedisBackend) or "mark_as_done" in vars(backend):
        return
    backend.mark_as_done = _patient(backend.mark_as_done, backend, kit)
    backend.mark_as_failure = _silent_if_lost(_patient(backend.mark_as_failure, backend, kit))
    backend.chord_error_from_stack = _unless_it_passes(backend.chord_error_from_stack, backend, kit)


def _patient(mark: Callable[..., Any], backend: Any, kit: Kit) -> Callable[..., Any]:
    def marking(task_id: str, *args: Any, **kwargs: Any) -> Any:
        run = kit.running.get(task_id)
        if run is None:  # not in its run: the worker's own loop must not wait
            return mark(task_id, *args, **kwargs)
        request = next((value for value in (*args, *kwargs.values()) if isinstance(value, Context)), None)
        until, again = time.monotonic() + kit.moves.lease_ms / 1000, run.facts.get("attempts_started", 1) > 1
        _guard_size(backend.client)
        while True:
            try:
                if run.late:
                    make_sure(run, kit)
                if run.late or again:
                    free_claim(backend, request)
                return mark(task_id, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the backend says which of them pass
                trouble: Any = error.__cause__ if isinstance(error, _CutOff) else error
                run.late = True
                passes = isinstance(trouble, QueueUnavailable) or backend.exception_safe_to_retry(trouble)
                if not passes or time.monotonic() > until:
                    raise trouble from None
                logger.warning("the result of job %s cannot be stored, trying again: %s", task_id, trouble)
                time.sleep(_PAUSE_S)

    return marking


def _silent_if_lost(mark: Callable[..., Any]) -> Callable[..., Any]:
    def marking(*args: Any, **kwargs: Any) -> Any:
        try:
            return mark(*args, **kwargs)
        except LeaseLost:
            return None

    return marking


def _unless_it_passes(give_up: Callable[..., Any], backend: Any, kit: Kit) -> Callable[..., Any]:
    def giving_up(callback: Any, exc: Any = None) -> Any:
        trouble = sys.exc_info()[1]
        if kit.current_id() in kit.running and trouble is not None and backend.exception_safe_to_retry(trouble):
            raise _CutOff from trouble
        return give_up(callback, exc)

    return giving_up


def _guard_size(client: Any) -> None:
    """Keep a chord's number of parts, which Celery strikes out with a chord that it gives up: nobody could send its body any
    more, if this process dies before it has tried again."""
    if "delete" in vars(client):
        return
    delete = client.delete

    def deleting(*keys: Any) -> Any:
        return 0 if isinstance(sys.exc_info()[1], _CutOff) else delete(*keys)

    client.delete = deleting


def _is_part(backend: Any, request: Any) -> bool:
    return bool(request is not None and request.chord and request.group and isinstance(backend, RedisBackend))


def _key(backend: Any, request: Any, part: str) -> Any:
    return backend.get_key_for_group(request.group, part)
