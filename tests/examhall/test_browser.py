"""Student and examiner in a real browser: writing, a crash, the bell, the score, Redis away and back, `<script>` everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from examhall.models import Attempt, Exam
from examhall.scoring_service import ScoringServer
from tests.django.admin_site import browser_of
from tests.support.browser import PHONE, barriers, browser, fits, keep_picture, open_page
from tests.support.redis_server import RedisServer

__all__ = ["browser", "open_page"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PAPER = "/examhall/attempts/a-5521/"
RUSH = "/examhall/exams/framing-1/rush"
HTML = "<img src=x onerror=alert(1)><script>alert(1)</script>"
OpenPage = Callable[..., Any]


@pytest.fixture
def worker(site_worker: Callable[..., Any]) -> Any:
    return site_worker()


def ring_bell(in_s: float) -> None:
    Exam.objects.update(bell_at=timezone.now() + timedelta(seconds=in_s))


def saved(number: str) -> str:
    return str(Attempt.objects.get(public_id="a-5521").answers.get(number, ""))


def crash(page: Any) -> None:
    """Leave a page that sends nothing any more, as a browser that dies does; what is asked then does not fail any more."""
    page.evaluate("() => { window.fetch = () => new Promise(() => {}) }")
    page.goto("about:blank")
    page.unroute("**/answers")


def tick(page: Any, number: int, text: str) -> None:
    page.get_by_role("group", name=f"{number}. ").get_by_label(text).check()


def test_a_paper_is_handed_in_and_its_score_arrives_without_a_reload(
    attempt: Attempt, worker: Any, open_page: OpenPage
) -> None:
    page = open_page(viewport={"width": 1100, "height": 900})
    page.goto(PAPER)
    keep_picture(page, "examhall-paper")
    tick(page, 6, "30 minutes")
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.locator("#score", has_text="84").wait_for()
    assert page.locator("#state").inner_text() == "graded"
    assert page.get_by_role("heading", name="Your score").evaluate("node => node === document.activeElement")
    assert "answered 202" in page.locator("#answered").inner_text()
    keep_picture(page, "examhall-score")


def test_the_old_way_is_there_to_compare(attempt: Attempt, scoring: ScoringServer, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(PAPER)
    page.get_by_text("To compare").click()
    page.get_by_role("button", name="wait for the grading").click()
    page.locator("#score", has_text="71").wait_for()
    assert "answered 200" in page.locator("#answered").inner_text()


def test_what_is_written_is_saved_and_survives_a_crash_before_that(attempt: Attempt, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(PAPER)
    tick(page, 6, "30 minutes")
    page.get_by_text("Saved at").wait_for()
    assert saved("6") == "b"
    page.route("**/answers", lambda route: route.abort())
    tick(page, 7, "A pin")
    page.get_by_text("Kept in this browser, not yet on the site").wait_for()
    assert saved("7") == "b"
    crash(page)
    page.goto(PAPER)
    assert page.get_by_label("A pin").is_checked()
    page.get_by_text("Saved at").wait_for()
    assert saved("7") == "c"


def test_what_another_device_has_saved_since_is_not_undone(attempt: Attempt, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(PAPER)
    page.route("**/answers", lambda route: route.abort())
    tick(page, 7, "A pin")
    page.get_by_text("not yet on the site").wait_for()
    crash(page)
    Attempt.objects.update(answers={"1": "c"})
    page.goto(PAPER)
    page.get_by_text("Newer answers were saved from elsewhere").wait_for()
    assert (page.get_by_label("Frosted glass").is_checked(), page.get_by_label("A pin").is_checked()) == (True, False)


def test_what_is_written_before_the_script_is_there_is_saved(attempt: Attempt, open_page: OpenPage) -> None:
    """On a slow line."""
    page = open_page()
    page.route("**/paper.js", lambda route: route.abort())
    page.goto(PAPER)
    tick(page, 6, "30 minutes")
    page.unroute("**/paper.js")
    page.add_script_tag(url="/static/examhall/paper.js")
    page.get_by_text("Saved at").wait_for()
    assert saved("6") == "b"


def test_a_forgotten_tab_hands_in_what_the_site_has(attempt: Attempt, queue: RedisServer, open_page: OpenPage) -> None:
    """Its own sheet is an old one."""
    page = open_page()
    page.goto(PAPER)
    Attempt.objects.update(answers={"1": "c"})
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.get_by_text("Waiting for its turn").wait_for()
    assert (saved("1"), saved("7")) == ("c", "")


def test_at_the_bell_it_is_handed_in_by_itself(
    attempt: Attempt, queue: RedisServer, open_page: OpenPage, settings: Any
) -> None:
    """The bell is moved while the page is open; what is written and not yet saved goes along."""
    settings.EXAMHALL_GRACE_S = 60
    page = open_page()
    page.goto(PAPER)
    assert re.fullmatch(r"1:00:00|5\d:\d\d", page.get_by_role("timer").inner_text())
    page.route("**/answers", lambda route: route.abort())
    tick(page, 6, "30 minutes")
    ring_bell(in_s=1)
    page.get_by_text("Waiting for its turn").wait_for()
    assert saved("6") == "b"


def test_long_after_the_bell_no_answer_is_taken(attempt: Attempt, open_page: OpenPage, queue: RedisServer) -> None:
    ring_bell(in_s=-60)
    page = open_page()
    page.goto(PAPER)
    page.get_by_text("The bell has rung").wait_for()
    assert page.locator("fieldset").count() == 0
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.get_by_text("Waiting for its turn").wait_for()
    assert saved("6") == "c"


def test_with_redis_away_the_page_says_so_and_hands_in_when_it_is_back(
    attempt: Attempt, queue: RedisServer, open_page: OpenPage
) -> None:
    """H4, as a student sees it."""
    queue.kill()
    page = open_page()
    page.goto(PAPER)
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.get_by_text("The job queue is not reachable just now").wait_for()
    queue.start()
    page.get_by_text("Waiting for its turn").wait_for()


def test_while_it_is_graded_the_page_says_that_the_queue_is_away(
    attempt: Attempt, queue: RedisServer, open_page: OpenPage
) -> None:
    page = open_page()
    page.goto(PAPER)
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.get_by_text("Waiting for its turn").wait_for()
    queue.kill()
    page.get_by_text("The queue does not answer just now").wait_for()
    queue.start()


def test_with_the_site_away_the_page_keeps_the_answers_and_says_so(attempt: Attempt, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(PAPER)
    page.route("**/attempts/**", lambda route: route.abort())
    tick(page, 6, "30 minutes")
    page.get_by_text("The site does not answer. What you write is kept").wait_for()
    page.unroute("**/attempts/**")
    page.get_by_text("Saved at").wait_for()
    assert page.locator("#trouble").is_hidden()
    assert saved("6") == "b"


def test_who_is_logged_out_while_writing_logs_in_elsewhere_and_goes_on(attempt: Attempt, open_page: OpenPage) -> None:
    """A login changes the token too, under which the open page was made."""
    cleo = User.objects.create_user("cleo", password="right")
    Attempt.objects.filter(pk=attempt.pk).update(student=cleo)
    page = open_page(browser_of(cleo))
    page.goto(PAPER)
    Session.objects.all().delete()
    tick(page, 6, "30 minutes")
    page.get_by_text("You are no longer logged in here").wait_for()
    other = page.context.new_page()
    other.goto("/examhall/login/")
    other.get_by_label("Name").fill("cleo")
    other.get_by_label("Password").fill("right")
    other.get_by_role("button", name="Log in").click()
    page.get_by_text("Saved at").wait_for()
    assert (saved("6"), page.locator("#trouble").is_hidden()) == ("b", True)


def test_without_javascript_a_paper_is_saved_and_handed_in(
    attempt: Attempt, queue: RedisServer, open_page: OpenPage
) -> None:
    page = open_page(java_script_enabled=False)
    page.goto(PAPER)
    tick(page, 6, "30 minutes")
    page.get_by_role("button", name="Save").click()
    assert saved("6") == "b"
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.get_by_text("Waiting for its turn").wait_for()


def test_an_examiner_sees_the_rush_and_the_report_grow(
    attempt: Attempt, examiner: User, worker: Any, queue: RedisServer, open_page: OpenPage
) -> None:
    page = open_page(browser_of(examiner), viewport={"width": 1100, "height": 1200})
    page.goto(RUSH)
    student = open_page()
    student.goto(PAPER)
    student.get_by_role("button", name="Hand in", exact=True).click()
    page.locator("#latest").get_by_text("Cleo Dunn").wait_for()
    page.get_by_role("button", name="Write the report").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the report").click()
    assert "a-5521,Cleo Dunn,graded,71," in Path(download.value.path()).read_text()
    page.get_by_text("of 1 sent").wait_for()
    queue.kill()
    page.locator("#queue").get_by_text("The queue does not answer just now").wait_for()
    queue.start()
    page.locator("#queue").get_by_text("Being graded").wait_for()


def test_html_in_every_field_is_shown_as_text(
    attempt: Attempt, examiner: User, queue: RedisServer, open_page: OpenPage
) -> None:
    Exam.objects.update(title=HTML)
    Attempt.objects.update(candidate=HTML, answers={"1": HTML[:20], "8": HTML[:20]})
    attempt.exam.questions.create(number=8, text=HTML, right="a")
    attempt.exam.questions.filter(number=1).update(text=HTML, choices=f"{HTML}\n{HTML}")
    page = open_page(browser_of(examiner))
    page.goto(PAPER)
    assert page.locator("h1").inner_text() == HTML
    page.goto("about:blank")
    attempt.refresh_from_db()
    attempt.store_score(71)
    for url in (PAPER, RUSH, "/examhall/"):
        page.goto(url)
        assert HTML in page.locator("main").inner_text()
        assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(
    attempt: Attempt, examiner: User, queue: RedisServer, open_page: OpenPage, scheme: str
) -> None:
    """A phone's width, axe, light and dark."""
    Attempt.objects.get(public_id="a-5519").store_score(50)
    page = open_page(browser_of(examiner), viewport=PHONE, color_scheme=scheme)
    for url in ("/examhall/", "/examhall/login/", PAPER, "/examhall/attempts/a-5519/", RUSH):
        page.goto(url)
        assert (url, fits(page), barriers(page)) == (url, True, [])
    page.goto(PAPER)
    page.get_by_role("button", name="Hand in", exact=True).click()
    page.get_by_text("Waiting for its turn").wait_for()
    assert (fits(page), barriers(page)) == (True, [])


def test_all_of_a_paper_is_reached_by_keyboard(attempt: Attempt, queue: RedisServer, open_page: OpenPage) -> None:
    page = open_page()
    page.goto(PAPER)
    page.get_by_label("Museum glass").focus()
    page.keyboard.press("ArrowDown")
    page.get_by_text("Saved at").wait_for()
    assert saved("1") == "c"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.value") == "after":
            break
    page.keyboard.press("Enter")
    page.get_by_text("Waiting for its turn").wait_for()
