"""Who may touch an attempt, and what becomes of requests that no page of ours sends: a clear answer each, never a 500."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from examhall import watching
from examhall.models import Attempt, Exam
from examhall.sheets import MOST_BYTES
from tests.django.admin_site import browser_of
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
PAPER = "/examhall/attempts/a-5521/"
SUBMIT, SAVE, STATUS = f"{PAPER}submit", f"{PAPER}answers", f"{PAPER}status"
JSON = "application/json"


@pytest.fixture
def cleo(attempt: Attempt) -> User:
    """The student whose attempt it is."""
    user = User.objects.create_user("cleo", password="right")
    Attempt.objects.filter(pk=attempt.pk).update(student=user)
    return user


def post(client: Client, url: str, body: Any = None, **headers: str) -> Any:
    return client.post(url, {"answers": {"1": "c"}} if body is None else body, content_type=JSON, headers=headers)


def now(attempt: Attempt) -> Attempt:
    return Attempt.objects.get(pk=attempt.pk)


def test_an_attempt_is_its_students_alone(attempt: Attempt, cleo: User, queue: RedisServer) -> None:
    mallory = browser_of(User.objects.create_user("mallory"))
    assert mallory.get(PAPER).status_code == 404
    for answer in (mallory.get(STATUS), post(mallory, SUBMIT), post(mallory, SAVE)):
        assert (answer.status_code, answer.json()) == (404, {"error": "there is no attempt a-5521"})
    assert "a-5521" not in mallory.get("/examhall/").content.decode()
    assert now(attempt).status == "open"
    assert "a-5521" in browser_of(cleo).get("/examhall/").content.decode()
    assert post(browser_of(cleo), SUBMIT).status_code == 202


def test_who_is_not_logged_in_is_sent_to_log_in(attempt: Attempt, cleo: User, site: Client) -> None:
    page = site.get(PAPER)
    assert page.headers["Location"] == f"/examhall/login/?next={PAPER}"
    login = site.post(page.headers["Location"], {"username": "cleo", "password": "right", "next": PAPER})
    assert login.headers["Location"] == PAPER
    assert site.get(PAPER).status_code == 200


def test_a_wrong_password_and_a_way_out_of_the_site_are_refused(cleo: User, site: Client) -> None:
    answer = site.post("/examhall/login/", {"username": "cleo", "password": "wrong"})
    assert "do not fit together" in answer.content.decode()
    login = site.post("/examhall/login/", {"username": "cleo", "password": "right", "next": "https://evil.example/"})
    assert login.headers["Location"] == "/examhall/"


def test_an_expired_session_is_told_apart_from_a_stranger(attempt: Attempt, cleo: User, site: Client) -> None:
    answer = post(site, SAVE)
    assert (answer.status_code, answer.json()["error"]) == (403, "This attempt belongs to a student: log in as that student.")


@pytest.mark.parametrize("url", [SUBMIT, SAVE])
def test_a_students_attempt_needs_the_token_of_a_page_of_ours(attempt: Attempt, cleo: User, url: str) -> None:
    """Another site could otherwise hand in for whoever visits it."""
    client = browser_of(cleo, enforce_csrf_checks=True)
    assert post(client, url).status_code == 403
    assert now(attempt).status == "open"
    client.get(PAPER)
    token = client.cookies["csrftoken"].value
    assert post(client, SAVE, **{"X-CSRFToken": token}).status_code == 200


def test_a_saved_sheet_is_there_and_a_late_one_is_not(attempt: Attempt, site: Client, queue: RedisServer) -> None:
    assert post(site, SAVE, {"answers": {"1": "a"}}).json()["saved"] == 1
    assert now(attempt).answers == {"1": "a"}
    Exam.objects.update(bell_at=timezone.now() - timedelta(seconds=60))
    answer = post(site, SAVE)
    assert (answer.status_code, "bell has rung" in answer.json()["error"]) == (409, True)
    late = post(site, SUBMIT)
    assert (late.status_code, "does not count" in late.json()["late"]) == (202, True)
    assert now(attempt).answers == {"1": "a"}


def test_what_is_under_way_when_the_bell_rings_still_counts(attempt: Attempt, site: Client, queue: RedisServer) -> None:
    Exam.objects.update(bell_at=timezone.now() - timedelta(seconds=1))
    assert post(site, SUBMIT).json() == {"attemptId": "a-5521", "status": "grading"}
    assert now(attempt).answers == {"1": "c"}


def test_after_handing_in_no_answer_is_saved(attempt: Attempt, site: Client, queue: RedisServer) -> None:
    post(site, SUBMIT, {"answers": {"1": "a"}})
    assert post(site, SAVE).status_code == 409
    assert now(attempt).answers == {"1": "a"}


@pytest.mark.parametrize("url", [SUBMIT, SAVE])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\xff\xfe", 400), (b"[" * 60_000, 400), (b"{" * 1000, 400), (b'{"answers": {"1": "\\u0000"}}', 400),
        (b'{"answers": {"1": "\\ud800"}}', 400), (b'{"answers": {"\xc2\xb2": "b"}}', 400),
        (json.dumps({"answers": {"9" * 6: "b"}}).encode(), 400), (b'{"answers": NaN}', 400),
        (b"x" * (MOST_BYTES + 1), 413), (b"x" * 3_000_000, 413),
    ],
)  # fmt: skip
def test_a_body_that_is_no_sheet_is_refused(attempt: Attempt, site: Client, url: str, body: bytes, status: int) -> None:
    answer = site.post(url, body, content_type=JSON)
    assert (answer.status_code, "must" in answer.json()["error"]) == (status, True)
    assert now(attempt).status == "open"


@pytest.mark.parametrize("url", [SUBMIT, SAVE])
def test_a_form_that_is_broken_is_refused(attempt: Attempt, site: Client, url: str) -> None:
    broken = site.post(url, b"--x\r\nnothing", content_type="multipart/form-data")
    assert broken.status_code == 400
    many = site.post(url, "&".join(f"a{n}=1" for n in range(1001)), content_type="application/x-www-form-urlencoded")
    assert many.status_code == 400
    assert now(attempt).status == "open"


@pytest.mark.parametrize("url", [SUBMIT, SAVE])
@pytest.mark.parametrize("server", [{}, {"CONTENT_LENGTH": ""}])
def test_a_body_in_chunks_is_refused_and_not_taken_for_none(
    attempt: Attempt, site: Client, url: str, server: dict[str, str]
) -> None:
    """What a server makes of `Transfer-Encoding: chunked`: it tells no length, and nothing of the body would be read."""
    answer = site.post(url, b"", content_type=JSON, headers={"transfer-encoding": "chunked"}, **server)
    assert (answer.status_code, "Content-Length" in answer.json()["error"]) == (411, True)
    assert now(attempt).status == "open"


def test_an_empty_body_saves_nothing(attempt: Attempt, site: Client) -> None:
    assert site.post(SAVE).status_code == 400
    assert now(attempt).answers == attempt.answers


def test_a_form_without_scripts_goes_back_to_the_paper(attempt: Attempt, site: Client, queue: RedisServer) -> None:
    form = {"answer-1": "a", "answer-2": ["a", "c"], "mode": "after"}
    saved = site.post(SAVE, form, headers={"accept": "text/html"})
    assert (saved.status_code, saved.headers["Location"], now(attempt).answers) == (302, PAPER, {"1": "a", "2": "ac"})
    assert site.post(SUBMIT, form, headers={"accept": "text/html"}).headers["Location"] == PAPER
    assert "Waiting for its turn" in site.get(PAPER).content.decode()
    site.post(SAVE, form, headers={"accept": "text/html"})
    assert "no more answers are taken" in site.get(PAPER).content.decode()


@pytest.mark.parametrize("url", [SUBMIT, SAVE])
@pytest.mark.parametrize("body", ['{"answers": {"1": "b"}}', "mode=after"])
def test_a_form_without_any_answer_is_refused_and_erases_nothing(attempt: Attempt, site: Client, url: str, body: str) -> None:
    answer = site.post(url, body, content_type="application/x-www-form-urlencoded")
    assert (answer.status_code, "answer-1" in answer.json()["error"]) == (400, True)
    assert (now(attempt).status, now(attempt).answers) == ("open", attempt.answers)


def test_the_form_of_the_paper_may_be_sent_with_nothing_ticked(attempt: Attempt, site: Client) -> None:
    assert '<input type="hidden" name="sheet"' in site.get(PAPER).content.decode()
    assert site.post(SAVE, {"sheet": "1"}).json()["saved"] == 0
    assert now(attempt).answers == {}


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_a_forged_id_is_not_found(attempt: Attempt, site: Client, accept: str) -> None:
    forged = "/examhall/attempts/a-x'--/" , "/examhall/attempts/a-0/", f"/examhall/attempts/{'a' * 5000}/"
    for url in forged:
        assert site.get(url, headers={"accept": accept}).status_code == 404
        assert site.post(f"{url}submit", {"mode": "after"}, headers={"accept": accept}).status_code == 404


def test_with_redis_away_the_status_says_so(attempt: Attempt, site: Client, queue: RedisServer) -> None:
    post(site, SUBMIT)
    queue.kill()
    answer = site.get(STATUS)
    assert (answer.status_code, "The queue does not answer" in answer.json()["says"]) == (200, True)


def test_a_redis_that_hangs_is_not_waited_for_by_everybody(
    attempt: Attempt, site: Client, queue: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K14, for reads: candidates who look would otherwise take the threads of those who write. The pause is long here, so that
    it shows: within it nobody asks, although Redis is back."""
    monkeypatch.setattr(watching, "PAUSE_S", 600)
    post(site, SUBMIT)
    queue.freeze()
    assert "does not answer" in site.get(STATUS).json()["says"]
    queue.thaw()
    assert "does not answer" in site.get(STATUS).json()["says"]
    watching.away_until.clear()
    assert "Waiting for its turn" in site.get(STATUS).json()["says"]


def test_an_account_with_attempts_stays(attempt: Attempt, cleo: User) -> None:
    """One that is nobody's could be sat by anybody."""
    with pytest.raises(Exception, match="protected"):
        cleo.delete()


@pytest.mark.parametrize(
    ("field", "value"),
    [("answers", ["b"]), ("answers", {"1": 2}), ("answers", "b"), ("public_id", "exam_1"), ("public_id", "a-B")],
)
def test_what_no_page_can_show_is_refused_in_the_admin(attempt: Attempt, field: str, value: Any) -> None:
    setattr(attempt, field, value)
    with pytest.raises(ValidationError) as refused:
        attempt.full_clean()
    assert list(refused.value.message_dict) == [field]


@pytest.mark.parametrize("right", ["-", ",;", "\U0001f600", "d", "a1"])
def test_a_right_answer_that_cannot_be_graded_is_refused_in_the_admin(attempt: Attempt, right: str) -> None:
    question = attempt.exam.questions.get(number=1)
    question.full_clean()
    question.right = right
    with pytest.raises(ValidationError, match=r"Right must name (at least one letter|letters of the choices, a to c)") as refused:
        question.full_clean()
    assert list(refused.value.message_dict) == ["right"]
