"""Runs all that waits, by a real worker on a thread of the test; without it a test would guess when a worker is done."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from celery import _state, signals
from celery.contrib.testing.worker import start_worker

from queue_kit.errors import WrongState
from queue_kit.observe.reading import open_census
from queue_kit.states import FINAL, State
from queue_kit.store.census import Census, JobView
from queue_kit.worker.apps import app_with_queue_kit
from queue_kit.worker.operating import control

_LOOK_S: Final = 0.02
_STATES: Final = (State.WAITING, State.DELAYED, State.ACTIVE)


def drain(*queues: str, app: Any = None, within_s: float = 30.0, at_once: bool = True) -> list[JobView]:
    """Run every job that waits in these queues, and those that they send there, until nothing is left; return the jobs that have
    ended, in the order of their ends.

    A worker on a thread of this process does it, with leases, retries and dead letters as in production. Database connections
    are a thread's own: in Django this needs a `TransactionTestCase`, or pytest-django's ``transaction=True``.

    :param queues: their names; none: all that the app knows.
    :param at_once: delayed jobs, retries with backoff among them, are due now; else they are waited for.
    :raises TimeoutError: something is left after ``within_s``; says what.
    """
    chosen = app_with_queue_kit(app)
    census, names = open_census(chosen), list(queues or chosen.amqp.queues)
    seen = {name: _last_event(census, name) for name in names}
    with _process_as_it_was(), start_worker(chosen, pool="solo", queues=names, perform_ping_check=False, loglevel="ERROR"):
        end = time.monotonic() + within_s
        while left := _left(census, names):
            if at_once:
                _promote(census, names, chosen)
            if time.monotonic() > end:
                raise TimeoutError(f"not drained within {within_s:g} s: {', '.join(left)}")
            time.sleep(_LOOK_S)
    return _ended(census, seen)


def _left(census: Census, queues: Sequence[str]) -> list[str]:
    counts = {queue: census.counts(queue) for queue in queues}
    return [f"{queue} {state} {count[state]}" for queue, count in counts.items() for state in _STATES if count[state]]


def _promote(census: Census, queues: Sequence[str], app: Any) -> None:
    for queue in queues:
        for job in census.jobs(queue, State.DELAYED):
            try:
                control.promote(job.id, app)
            except WrongState:  # it came due by itself
                continue


def _last_event(census: Census, queue: str) -> str:
    events = census.events(queue)
    return events[-1].id if events else "0"


def _ended(census: Census, seen: dict[str, str]) -> list[JobView]:
    events = [event for queue, after in seen.items() for event in census.events(queue, after)]
    ends = [event for event in events if event.kind in {state.value for state in FINAL}]
    ids = dict.fromkeys(event.job_id for event in sorted(ends, key=lambda event: event.at_ms))
    return [job for job_id in ids if (job := census.job(job_id)) is not None]


@contextmanager
def _process_as_it_was() -> Iterator[None]:
    """Celery's worker for tests makes its app the default one, and sets the logging up: its way, or the project's for workers."""
    default, current = _state.default_app, _state._tls.current_app
    environ = {name: os.environ.get(name) for name in ("CELERY_LOG_LEVEL", "CELERY_LOG_FILE")}
    receivers, signals.setup_logging.receivers = signals.setup_logging.receivers, []
    signals.setup_logging.connect(_leave_logging_alone)
    try:
        yield
    finally:
        signals.setup_logging.receivers = receivers
        logging.captureWarnings(False)
        _state.default_app, _state._tls.current_app = default, current
        for name, value in environ.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})


def _leave_logging_alone(**kwargs: Any) -> None:
    """What Celery asks before it sets logging up."""
