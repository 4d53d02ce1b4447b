"""What the queue says of the jobs of this app; without it a page would end in an error whenever Redis is away."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from examhall.models import Attempt
from queue_kit import State, open_census
from queue_kit.django.conf import celery_app

SAYS = {
    State.WAITING: "Handed in. Waiting for its turn to be graded.",
    State.ACTIVE: "Being graded now.",
    State.DELAYED: "The grading did not succeed at once; it is tried again in a moment.",
    State.COMPLETED: "Graded.",
    State.FAILED: "The grading has stopped. The examiners see it and can start it again; your answers are safe.",
    State.CANCELLED: "The grading was stopped by an examiner. Your answers are safe.",
}
NOT_TAKEN = "Handed in. The queue has not taken it yet; it is sent again by itself."
AWAY = "The queue does not answer just now. Your answers are safe; the grading goes on when it is back."


class QueueAway(Exception):
    """Redis does not answer just now."""


@cache
def census_of(app: Any) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return what reads an app's queues, one for all threads, and what it raises while Redis is gone, loading or refusing."""
    connection = app.connection_for_read()
    return open_census(app), (*connection.connection_errors, *connection.channel_errors)


# After a read that failed nobody asks for so long: each would wait for the same hung Redis, and candidates who look every
# second would take all threads of the site from those who still write.
PAUSE_S = 1.0
away_until: dict[Any, float] = {}


@contextmanager
def reading() -> Iterator[Any]:
    """Give the census; raises QueueAway where Redis does not answer, or did not a moment ago."""
    app = celery_app()
    if time.monotonic() < away_until.get(app, 0):
        raise QueueAway
    census, errors = census_of(app)
    try:
        yield census
    except errors as error:
        away_until[app] = time.monotonic() + PAUSE_S
        raise QueueAway from error


def says(attempt: Attempt) -> str:
    """Say in a sentence, for its candidate, how far an attempt is."""
    if attempt.status == Attempt.Status.OPEN:
        return "Not handed in."
    if attempt.status == Attempt.Status.GRADED:
        return SAYS[State.COMPLETED]
    if not attempt.grading_job:
        return NOT_TAKEN
    try:
        with reading() as queue:
            job = queue.job(attempt.grading_job)
    except QueueAway:
        return AWAY
    return SAYS[job.state] if job else SAYS[State.FAILED]
