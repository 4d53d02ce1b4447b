"""Handing in over HTTP: both modes, every refusal, and what is left behind when the queue is down."""

from __future__ import annotations

import pytest
from django.test import Client

from examhall.models import Attempt
from examhall.scoring_service import ScoringServer
from examhall.submission import send_to_grading
from queue_kit import open_census
from queue_kit.django.conf import celery_app
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch

URL = "/examhall/attempts/a-5521/submit"
pytestmark = pytest.mark.django_db(transaction=True)


def post(site: Client, query: str = "", body: object = "", url: str = URL):
    return site.post(url + query, body, content_type="application/json")


def test_before_grades_in_the_request(site: Client, scoring: ScoringServer, attempt: Attempt) -> None:
    answer = post(site, "?mode=before")
    assert (answer.status_code, answer.content) == (200, b'{"score":71}')
    attempt.refresh_from_db()
    assert (attempt.status, attempt.score) == ("graded", 71)


def test_answers_in_the_body_replace_the_saved_ones(site: Client, scoring: ScoringServer, attempt: Attempt) -> None:
    assert post(site, "?mode=before", {"answers": {"1": "b"}}).json() == {"score": 13}


def test_after_answers_202_and_leaves_the_job_on_the_queue(site: Client, queue: RedisServer, attempt: Attempt) -> None:
    answer = post(site)
    assert (answer.status_code, answer.content) == (202, b'{"attemptId":"a-5521","status":"grading"}')
    attempt.refresh_from_db()
    assert attempt.grading_job
    status = site.get("/examhall/attempts/a-5521/status").json()
    assert 0 < status.pop("leftMs") <= 3_600_000
    says = "Handed in. Waiting for its turn to be graded."
    assert status == {
        "attemptId": "a-5521", "status": "grading", "score": None, "jobId": attempt.grading_job, "says": says,
    }  # fmt: skip


def test_handing_in_again_while_it_is_graded_is_one_job(site: Client, queue: RedisServer, attempt: Attempt) -> None:
    post(site)
    attempt.refresh_from_db()
    assert post(site).status_code == 202
    assert Attempt.objects.get(pk=attempt.pk).grading_job == attempt.grading_job


def test_two_who_press_at_once_send_one_job(queue: RedisServer, attempt: Attempt) -> None:
    """Both have read the row before either has written it."""
    rows = [Attempt.objects.select_related("exam").get(pk=attempt.pk) for _ in range(2)]
    for row in rows:
        row.grading_job = ""
        send_to_grading(row)
    assert sum(open_census(celery_app()).counts("grading").values()) == 1


def test_before_is_refused_while_a_job_grades(
    site: Client, queue: RedisServer, scoring: ScoringServer, attempt: Attempt
) -> None:
    post(site)
    answer = post(site, "?mode=before")
    assert (answer.status_code, answer.json()) == (409, {"error": "attempt a-5521 has been handed in already"})


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_graded_attempt_is_not_graded_again(site: Client, attempt: Attempt, mode: str) -> None:
    attempt.store_score(50)
    assert post(site, f"?mode={mode}").status_code == 409


def test_with_the_queue_down_503_within_a_second_and_the_answers_are_kept(
    site: Client, queue_down: None, attempt: Attempt
) -> None:
    watch = Stopwatch()
    answer = post(site, body={"answers": {"1": "c"}})
    assert watch.elapsed_s < 1.45
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    attempt.refresh_from_db()
    assert (attempt.answers, attempt.grading_job) == ({"1": "c"}, "")


def test_the_try_after_an_outage_sends_the_job(site: Client, queue_down: None, attempt: Attempt, request) -> None:
    assert post(site).status_code == 503
    request.getfixturevalue("queue")
    assert post(site).status_code == 202
    attempt.refresh_from_db()
    assert attempt.grading_job


def test_with_the_scoring_service_down_before_answers_503_and_may_be_tried_again(
    site: Client, scoring: ScoringServer, attempt: Attempt
) -> None:
    scoring.rehearsal.tell(fail_next=1)
    answer = post(site, "?mode=before")
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    assert post(site, "?mode=before").json() == {"score": 71}


@pytest.mark.parametrize(
    ("query", "body", "says"),
    [
        ("?mode=later", "", "mode must be before or after"),
        ("", "nonsense", "JSON object"),
        ("", [1], "JSON object"),
        ("", {"answers": ["b"]}, "answers must map"),
        ("", {"answers": {"one": "b"}}, "answers must map"),
        ("", {"answers": {"1": 2}}, "answers must map"),
        ("", {"answers": {"1": "b" * 21}}, "answers must map"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_would_be_right(
    site: Client, attempt: Attempt, query: str, body: object, says: str
) -> None:
    answer = post(site, query, body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]
    assert Attempt.objects.get(pk=attempt.pk).status == "open"


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_exam_without_questions_cannot_be_handed_in(
    site: Client, queue: RedisServer, scoring: ScoringServer, attempt: Attempt, mode: str
) -> None:
    attempt.exam.questions.all().delete()
    answer = post(site, f"?mode={mode}")
    assert (answer.status_code, "has no questions yet" in answer.json()["error"]) == (422, True)
    assert Attempt.objects.get(pk=attempt.pk).status == "open"


@pytest.mark.parametrize("path", ["submit", "status"])
def test_an_unknown_attempt_is_404_in_json(site: Client, attempt: Attempt, path: str) -> None:
    url = f"/examhall/attempts/a-0/{path}"
    answer = post(site, url=url) if path == "submit" else site.get(url)
    assert (answer.status_code, answer.json()) == (404, {"error": "there is no attempt a-0"})


def test_submit_takes_post_alone(site: Client, attempt: Attempt) -> None:
    assert site.get(URL).status_code == 405


def test_no_token_is_asked_for(scoring: ScoringServer, attempt: Attempt) -> None:
    assert post(Client(enforce_csrf_checks=True), "?mode=before").status_code == 200


def test_the_first_score_stays(attempt: Attempt) -> None:
    late = Attempt.objects.get(pk=attempt.pk)
    attempt.store_score(71)
    late.store_score(12)
    assert late.score == 71


def test_the_pages_show_the_attempt_and_load_nothing_from_elsewhere(site: Client, attempt: Attempt) -> None:
    for url in ("/", "/examhall/", "/examhall/attempts/a-5521/"):
        page = site.get(url).content.decode()
        assert "://" not in page
    assert "Which glass keeps colours from fading?" in page
