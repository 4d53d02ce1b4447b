"""The numbers of an exam at its bell: papers by state, how fast they come in and are graded, what the queue still holds.

The papers are counted in the database, the queue is asked how much waits; without either, the page still shows the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count
from django.utils import timezone

from examhall.models import Attempt, Exam
from examhall.watching import QueueAway, reading
from queue_kit import State

# What "a second" is the mean of, and how far back the drawing goes, in bars of so many seconds.
MEAN_S, BAR_S, BARS = 10, 2, 60
LATEST = 10


@dataclass(frozen=True)
class QueueNumbers:
    """The grading queue, all exams together, and the mails; counts of jobs."""

    waiting: int
    active: int
    delayed: int
    failed: int
    oldest_s: float | None
    mails_waiting: int
    mails_failed: int


def queue_numbers() -> QueueNumbers | None:
    """Ask the queue; None while it does not answer."""
    try:
        with reading() as census:
            grading, mail = census.counts("grading"), census.counts("email")
            oldest = census.oldest_waiting("grading")
            age_s = (census.now_ms() - oldest.added_at_ms) / 1000 if oldest else None
    except QueueAway:
        return None
    not_sent = mail[State.WAITING] + mail[State.DELAYED] + mail[State.ACTIVE]
    states = (State.WAITING, State.ACTIVE, State.DELAYED, State.FAILED)
    return QueueNumbers(*(grading[state] for state in states), age_s, not_sent, mail[State.FAILED])


def paper_numbers(exam: Exam) -> dict[str, Any]:
    """Count an exam's papers, and what came in and was graded lately."""
    now = timezone.now()
    counted = dict(exam.attempts.order_by().values_list("status").annotate(Count("pk")))
    since = now - timedelta(seconds=BAR_S * BARS)
    handed_in = list(exam.attempts.filter(submitted_at__gt=since).values_list("submitted_at", flat=True))
    graded = list(exam.attempts.filter(graded_at__gt=since).values_list("graded_at", flat=True))
    return {
        "states": [(status, counted.get(status, 0)) for status in Attempt.Status.values],
        "handed_in_per_s": a_second(handed_in, now),
        "graded_per_s": a_second(graded, now),
        "bars": bars(handed_in, graded, now),
        "latest": exam.attempts.filter(status=Attempt.Status.GRADED).order_by("-graded_at")[:LATEST],
        "mails_due": exam.attempts.filter(status=Attempt.Status.GRADED).exclude(email="").count(),
        "mailed": exam.attempts.filter(mailed_at__isnull=False).count(),
    }


def a_second(times: Iterable[datetime], now: datetime) -> float:
    """Return how many there were a second, lately."""
    since = now - timedelta(seconds=MEAN_S)
    return sum(time > since for time in times) / MEAN_S


def bars(handed_in: Iterable[datetime], graded: Iterable[datetime], now: datetime) -> dict[str, Any]:
    """Return the drawing of the last two minutes: for each bar its x, the y and the height of what came in above the line at
    100, and the height of what was graded below it."""
    counts = [in_bars(times, now) for times in (handed_in, graded)]
    most = max(1, *counts[0], *counts[1])
    scaled = [[round(100 * count / most, 1) for count in row] for row in counts]
    rows = [(10 * place, 100 - up, up, down) for place, (up, down) in enumerate(zip(*scaled, strict=True))]
    return {"rows": rows, "most": most, "seconds": BAR_S, "minutes": BAR_S * BARS // 60, "width": 10 * BARS}


def in_bars(times: Iterable[datetime], now: datetime) -> list[int]:
    counts = [0] * BARS
    for time in times:
        age = int((now - time).total_seconds() // BAR_S)
        if 0 <= age < BARS:
            counts[BARS - 1 - age] += 1
    return counts
