"""Handing in an attempt: graded while the candidate waits, or handed to the queue.

The order matters: answers are committed first and the job is sent after. The other way round, a worker could look for answers
that are not there yet.
"""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from examhall.models import Attempt, Question
from examhall.scoring import fetch_score
from queue_kit import enqueue, exponential

Answers = dict[str, str]


class AlreadyHandedIn(Exception):
    """This attempt has been handed in, and its score is there or on its way."""


class NoQuestions(Exception):
    """The exam has no questions, so there is nothing to hand in or to grade."""


def grade_now(attempt: Attempt, answers: Answers | None = None) -> int:
    """Hand in and grade within the request, and return the score; if grading fails, the attempt may be handed in again."""
    hand_in(attempt, answers)
    attempt.store_score(fetch_score(attempt))
    return attempt.score


def grade_later(attempt: Attempt, answers: Answers | None = None) -> None:
    """Hand in and leave the grading to a job; handing in once more while that job is on its way changes nothing.

    Raises QueueUnavailable when the queue did not take the job. The answers are kept then, and the next try sends it: should the
    first have reached the queue after all, the two jobs find one row and store one score.
    """
    if attempt.status == Attempt.Status.GRADING and attempt.grading_job:
        return
    with transaction.atomic():
        hand_in(attempt, answers)
        transaction.on_commit(lambda: send_to_grading(attempt))


def in_time(attempt: Attempt, answers: Answers | None) -> Answers | None:
    """Return what of a sheet still counts: all of it, or after the bell nothing but what was saved before."""
    return None if attempt.exam.is_over() else answers


def left_lying(rung_before: datetime, most: int = 1000) -> list[Attempt]:
    """Return what nobody hands in any more: open after a bell before that instant, or handed in to a queue that was away.

    A sheet without any answer is that of somebody who did not come. Where the exam has lost its questions there is nothing to
    grade: such papers lie until it has some again, and take no place from those that can be collected.
    """
    asks = Exists(Question.objects.filter(exam=OuterRef("exam")))
    open_still = Q(status=Attempt.Status.OPEN, exam__bell_at__lt=rung_before) & ~Q(answers={})
    not_taken = Q(status=Attempt.Status.GRADING, grading_job="", submitted_at__lt=rung_before)
    return list(Attempt.objects.select_related("exam").filter(asks, open_still | not_taken).order_by("pk")[:most])


def collect_paper(attempt: Attempt) -> bool:
    """Hand in an attempt with the answers saved in it; False where its candidate was quicker, or there is nothing to grade."""
    try:
        grade_later(attempt)
    except (AlreadyHandedIn, NoQuestions):
        return False
    return True


def hand_in(attempt: Attempt, answers: Answers | None) -> None:
    """Fix the answers, unless a job or a score is there already."""
    if not attempt.exam.questions.exists():
        raise NoQuestions("this exam has no questions yet: it can be handed in once its examiner has set some")
    changes: dict[str, Any] = {"status": Attempt.Status.GRADING, "submitted_at": attempt.submitted_at or timezone.now()}
    if answers is not None:
        changes["answers"] = answers
    if not Attempt.objects.filter(pk=attempt.pk, score=None, grading_job="").update(**changes):
        raise AlreadyHandedIn(f"attempt {attempt.public_id} has been handed in already")
    attempt.refresh_from_db()


def send_to_grading(attempt: Attempt) -> None:
    """Put the grading job on its queue and note its id; of two who press at once, both send the same job."""
    key = {"idempotency_key": attempt.public_id, "dedup": "until_finished"}
    handle = enqueue("grade-attempt", {"attempt_id": attempt.public_id}, **key, **retry_policy())
    Attempt.objects.filter(pk=attempt.pk).update(grading_job=handle.id)


def retry_policy() -> dict[str, Any]:
    """Return what this deployment sets in place of the job's own policy."""
    policy: dict[str, Any] = {}
    if settings.EXAMHALL_GRADING_ATTEMPTS:
        policy["attempts"] = settings.EXAMHALL_GRADING_ATTEMPTS
    if settings.EXAMHALL_GRADING_BACKOFF_MS:
        policy["backoff"] = exponential(settings.EXAMHALL_GRADING_BACKOFF_MS)
    return policy
