"""What examiners see of a rush, who else does not, and the report they have written."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from examhall.models import Attempt, Exam
from examhall.report import report_path
from examhall.rush import BAR_S, BARS, a_second, bars, paper_numbers, queue_numbers
from tests.django.admin_site import browser_of
from tests.store.desk import Desk
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
RUSH = "/examhall/exams/framing-1/rush"
REPORT, FILE = "/examhall/exams/framing-1/report", "/examhall/exams/framing-1/report.csv"


@pytest.fixture
def exam(attempt: Attempt, settings: Any, tmp_path: Path) -> Exam:
    settings.EXAMHALL_REPORTS_DIR = str(tmp_path)
    return attempt.exam


def test_only_staff_with_the_permission_get_in(exam: Exam, site: Client, queue: RedisServer) -> None:
    for url in (RUSH, FILE):
        assert site.get(url).headers["Location"] == f"/examhall/login/?next={RUSH}"
    student = User.objects.create_user("cleo")
    student.user_permissions.set(Permission.objects.filter(codename="watch_exam"))
    for user in (student, User.objects.create_user("staff", is_staff=True)):
        client = browser_of(user)
        answers = [client.get(RUSH), client.get(FILE), client.post(REPORT)]
        assert [answer.status_code for answer in answers] == [403, 403, 403]
        assert "For examiners" not in client.get("/examhall/").content.decode()
    exam.refresh_from_db()
    assert exam.report_job == ""


def test_a_report_needs_the_token_of_a_page_of_ours(exam: Exam, examiner: User) -> None:
    assert browser_of(examiner, enforce_csrf_checks=True).post(REPORT).status_code == 403


def test_who_asks_twice_watches_one_report(exam: Exam, examiner: User, queue: RedisServer) -> None:
    client = browser_of(examiner)
    jobs = set()
    for _ in range(2):
        assert client.post(REPORT).headers["Location"] == RUSH
        jobs.add(Exam.objects.get(pk=exam.pk).report_job)
    assert len(jobs) == 1
    assert "<progress" in client.get(RUSH).content.decode()


def test_the_bar_shows_what_the_run_says(exam: Exam, examiner: User, queue: RedisServer) -> None:
    client, desk = browser_of(examiner), Desk(queue.client(), "reports")
    client.post(REPORT)
    job = Exam.objects.get(pk=exam.pk).report_job
    desk.run(desk.moves.progress(job, desk.begin(job), '{"done": 100, "of": 250}'))
    page = client.get(RUSH).content.decode()
    assert '<progress id="progress" max="250" value="100"></progress>' in page
    assert "Report: active, 100 of 250 papers" in page


def test_a_report_that_lies_on_another_machine_is_told(exam: Exam, examiner: User, queue: RedisServer) -> None:
    client, desk = browser_of(examiner), Desk(queue.client(), "reports")
    client.post(REPORT)
    job = Exam.objects.get(pk=exam.pk).report_job
    desk.run(desk.moves.complete(job, desk.begin(job)))
    assert "need EXAMHALL_REPORTS_DIR in common" in client.get(RUSH).content.decode()


def test_the_file_is_there_once_it_is_written(exam: Exam, examiner: User, queue: RedisServer) -> None:
    client = browser_of(examiner)
    assert client.get(FILE).status_code == 404
    report_path(exam).write_text("attempt\n")
    answer = client.get(FILE)
    assert b"".join(answer.streaming_content) == b"attempt\n"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="framing-1.csv"'
    assert "Download the report" in client.get(RUSH).content.decode()


def test_with_redis_away_the_papers_are_shown_and_a_report_is_a_503(
    exam: Exam, examiner: User, queue: RedisServer
) -> None:
    client = browser_of(examiner)
    client.post(REPORT)
    queue.kill()
    page = client.get(RUSH).content.decode()
    assert "The queue does not answer just now" in page
    assert "is not known just now" in page
    assert client.post(REPORT).status_code == 503


def test_an_exam_that_is_none_is_not_found(exam: Exam, examiner: User) -> None:
    assert browser_of(examiner).get("/examhall/exams/none/rush").status_code == 404


def test_papers_and_queue_are_counted(exam: Exam, site: Client, queue: RedisServer, attempt: Attempt) -> None:
    site.post("/examhall/attempts/a-5519/submit")
    attempt.store_score(71)
    papers, jobs = paper_numbers(exam), queue_numbers()
    assert dict(papers["states"]) == {"open": 14, "grading": 1, "graded": 1}
    assert (papers["handed_in_per_s"], papers["graded_per_s"], papers["mails_due"], papers["mailed"]) == (0.1, 0.1, 1, 0)
    assert [shown.public_id for shown in papers["latest"]] == ["a-5521"]
    assert jobs is not None
    assert (jobs.waiting, jobs.active, jobs.failed) == (1, 0, 0)
    assert jobs.oldest_s is not None


def test_the_drawing_has_a_bar_for_each_moment() -> None:
    now = timezone.now()
    times = [now, now, now - timedelta(seconds=BAR_S), now - timedelta(seconds=BAR_S * BARS)]
    drawn = bars(times, [now], now)
    assert (drawn["most"], len(drawn["rows"])) == (2, BARS)
    assert drawn["rows"][-1] == (10 * (BARS - 1), 0.0, 100.0, 50.0)
    assert drawn["rows"][-2][2:] == (50.0, 0.0)
    assert a_second(times, now) == 0.3
