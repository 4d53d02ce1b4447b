"""Papers that nobody hands in: collected after the bell, once, without those of who did not come."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from examhall.models import Attempt, Exam, Question
from examhall.submission import left_lying
from examhall.tasks import collect_papers
from queue_kit import InvalidPayload
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def collect(before: datetime) -> int:
    return collect_papers.apply(kwargs={"rung_before": before.isoformat()}, throw=True).get()


def ago(seconds: float) -> datetime:
    return timezone.now() - timedelta(seconds=seconds)


def test_what_lies_open_after_the_bell_is_handed_in_once(attempt: Attempt, queue: RedisServer) -> None:
    Attempt.objects.filter(public_id="a-5519").update(answers={})
    assert collect(ago(60)) == 0
    Exam.objects.update(bell_at=ago(120))
    assert (collect(ago(60)), collect(ago(60))) == (15, 0)
    attempt.refresh_from_db()
    assert (attempt.status, bool(attempt.grading_job)) == ("grading", True)
    assert Attempt.objects.get(public_id="a-5519").status == "open"


def test_what_the_queue_did_not_take_is_sent_again(attempt: Attempt, site: Client, queue_down: None, request) -> None:
    """A browser that was closed on a 503 asks no more."""
    assert site.post("/examhall/attempts/a-5521/submit").status_code == 503
    request.getfixturevalue("queue")
    assert collect(ago(60)) == 0
    assert collect(ago(-1)) == 1
    attempt.refresh_from_db()
    assert attempt.grading_job


def test_papers_of_an_exam_without_questions_are_not_read_again_and_again(attempt: Attempt, queue: RedisServer) -> None:
    """Given more of them than one run reads; then they take no place from those of other exams, and have not gone for good."""
    lost, papers = attempt.exam, Attempt.objects.filter(exam=attempt.exam)
    Exam.objects.update(bell_at=ago(120))
    questions = list(lost.questions.all())
    lost.questions.all().delete()
    assert (left_lying(ago(60)), collect(ago(60))) == ([], 0)
    other = Exam.objects.create(slug="other", title="Other", bell_at=ago(120))
    Question.objects.create(exam=other, number=1, text="?", right="a")
    late = Attempt.objects.create(exam=other, candidate="Ben", answers={"1": "a"})
    assert left_lying(ago(60), most=1) == [late]
    Question.objects.bulk_create(questions)
    assert len(left_lying(ago(60))) == 1 + papers.exclude(answers={}).count()


def test_an_instant_without_a_zone_is_refused(attempt: Attempt) -> None:
    with pytest.raises(InvalidPayload, match="rung_before"):
        collect_papers.declared.dump({"rung_before": "2026-01-01T00:00:00"})


def test_beat_sends_what_the_job_takes() -> None:
    from celery.beat import _evaluate_entry_kwargs  # noqa: PLC0415 - private, and the only way to send as beat does

    from deploy import celery_app  # noqa: PLC0415

    entry = celery_app.conf.beat_schedule["papers-collect"]
    sent = collect_papers.declared.dump(_evaluate_entry_kwargs(entry["kwargs"]))
    assert entry["task"] == collect_papers.name
    assert ago(70) < datetime.fromisoformat(sent["rung_before"]) <= ago(50)
