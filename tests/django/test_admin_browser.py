"""The admin pages in a real browser: a job that failed is found, replayed and seen to complete; a viewer can do nothing;
what a payload holds is text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queue_kit.django.admin.pages import RETRY_AFTER_S
from queue_kit.django.quoting import quoted
from tests.apps import dead_letters_app
from tests.conftest import StartWorker
from tests.django.admin_site import ALL, LETTERS, QUEUES, VIEWING, browser_of, person
from tests.store.desk import LATER, Desk
from tests.store.test_letters import sent
from tests.store.test_replay import failed
from tests.support.browser import PHONE, barriers, browser, fits, keep_picture, open_page
from tests.support.redis_server import RedisServer
from tests.support.site import BROKER_URL
from tests.support.waiting import wait_until

__all__ = ["browser", "open_page"]
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
HTML = "<img src=x onerror=alert(1)><script>alert(1)</script>"
OpenPage = Callable[..., Any]


@pytest.fixture
def desk(queue: RedisServer, queue_name: str) -> Desk:
    return Desk(queue.client(), queue_name)


@pytest.fixture
def worker(desk: Desk, start_worker: StartWorker, tmp_path: Path) -> Iterator[Path]:
    """A worker on the site's Redis, whose jobs fail until a file is there; its folder."""
    env = {"CRASH_FOLDER": str(tmp_path)}
    started = start_worker("tests.apps.dead_letters_app", broker_url=BROKER_URL, backend_url="", env=env, pool="solo")
    yield tmp_path
    started.kill_all()


def test_a_dead_letter_is_found_replayed_and_completes(desk: Desk, worker: Path, open_page: OpenPage) -> None:
    """I7, by hand: list, detail, dry run, replay, completed."""
    job = dead_letters_app.make(BROKER_URL).send_task(
        "letters.fail", kwargs={"mended": "mended", "note": HTML, "password": "hunter2"}, queue=desk.queue
    )
    wait_until(lambda: desk.state(job.id) == "failed", says="the job has failed", within_s=20)
    (worker / "mended").touch()
    page = open_page(browser_of(person("ada", *ALL)), viewport={"width": 1280, "height": 900})
    page.goto(LETTERS)
    keep_picture(page, "list")
    page.get_by_role("link", name=job.id).click()
    payload = page.locator("#qk-payload ~ pre").inner_text()
    assert HTML in payload
    assert "hunter2" not in page.content()
    page.get_by_role("button", name="Replay…").click()
    assert "1 would be replayed" in page.get_by_role("table", name="Dry run").inner_text().replace("\t", " ")
    page.get_by_role("button", name="Replay 1").click()
    assert "1 replayed." in page.locator(".messagelist").inner_text()
    wait_until(lambda: desk.state(job.id) == "completed", says="the job has completed", within_s=20)
    page.get_by_role("link", name=job.id).click()
    assert page.locator(".qk-state").first.inner_text() == "completed"
    assert page.locator("svg .qk-mark.qk-completed").count() == 1


def test_a_queue_is_paused_and_resumed_and_its_numbers_stay_fresh(desk: Desk, open_page: OpenPage) -> None:
    desk.add("a")
    page = open_page(browser_of(person("ada", *ALL)))
    page.goto(QUEUES)
    page.get_by_role("link", name=desk.queue).click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("heading", name="Paused").wait_for()
    assert desk.claimed() == []
    desk.add("b")
    page.get_by_role("link", name="waiting 2").wait_for()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("heading", name="Running").wait_for()
    assert desk.claimed() == ["a", "b"]


def test_a_viewer_reads_and_is_refused(desk: Desk, open_page: OpenPage) -> None:
    letter = failed(desk, body=sent(note=HTML))
    page = open_page(browser_of(person("vic", *VIEWING)), viewport=PHONE, color_scheme="dark")
    queue = f"{QUEUES}{desk.queue}"
    pages = (LETTERS, f"{LETTERS}{letter}/change/", QUEUES, f"{queue}/change/", f"{queue}/hour/", f"{queue}/key/")
    for url in (*pages, f"{QUEUES}workers/", f"{QUEUES}jobs/job/show/"):
        page.goto(url)
        assert (url, fits(page)) == (url, True)
        assert page.locator("#content button[name=action]").count() == 0
    assert page.request.post(f"{LETTERS}act/", form={"action": "replay", "id": letter}).status == 403
    assert desk.state() == "failed"


@pytest.mark.parametrize("name", ["..", "q" * 300], ids=["two dots", "long"])
def test_whatever_a_queue_is_called_it_has_its_pages_and_they_fit(desk: Desk, open_page: OpenPage, name: str) -> None:
    """Browsers take dots in an address for a way up; a name without a place to break widens what it stands in."""
    letter = failed(desk, "job", queue=name, name="task" * 75)
    desk.add(name, queue=name, name="task" * 75)
    page = open_page(browser_of(person("ada", *ALL)), viewport=PHONE)
    for url in (QUEUES, LETTERS, f"{LETTERS}{quoted(letter)}/change/"):
        page.goto(url)
        assert (url, fits(page), _widest(page) <= PHONE["width"]) == (url, True, True)
    page.goto(QUEUES)
    page.get_by_role("link", name=name, exact=True).click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("heading", name="Paused").wait_for()
    assert fits(page)
    for link in [page.get_by_role("link", name=link).get_attribute("href") for link in ("The last hour", "Deduplication keys")]:
        page.goto(link)
        assert (link, name in page.locator("h1").last.inner_text(), fits(page)) == (link, True, True)
    page.go_back()
    page.go_back()
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("link", name="No, go back").wait_for()
    assert fits(page)
    page.get_by_role("link", name="No, go back").click()
    page.get_by_role("table").get_by_role("link", name=name, exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.").first.wait_for()
    assert fits(page)
    assert desk.state(name) == "cancelled"


def _widest(page: Any) -> int:
    """How wide the widest cell of a table is."""
    return int(page.evaluate("Math.max(0, ...[...document.querySelectorAll('td, th')].map(cell => cell.offsetWidth))"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_on_any_page(desk: Desk, open_page: OpenPage, scheme: str) -> None:
    letter = failed(desk, body=sent(note=HTML))
    desk.add("later", when=LATER)
    page = open_page(browser_of(person("ada", *ALL)), color_scheme=scheme)
    queue = f"{QUEUES}{desk.queue}"
    for url in (
        LETTERS, f"{LETTERS}?since=x", f"{LETTERS}{letter}/change/", f"{LETTERS}x/change/", QUEUES, f"{queue}/change/",
        f"{QUEUES}workers/", f"{queue}/hour/", f"{queue}/key/", f"{QUEUES}jobs/later/show/", f"{QUEUES}jobs/job/show/",
    ):  # fmt: skip
        page.goto(url)
        assert (url, barriers(page, "#content")) == (url, [])
    page.goto(LETTERS)
    page.get_by_role("button", name="Replay all").click()
    page.get_by_text("Nothing has been changed yet").wait_for()
    assert barriers(page, "#content") == []


def test_all_is_reached_by_keyboard(desk: Desk, open_page: OpenPage) -> None:
    failed(desk)
    page = open_page(browser_of(person("ada", *ALL)))
    page.goto(LETTERS)
    page.locator("[data-tick-all]").focus()
    page.keyboard.press("Space")
    assert page.locator("input[name=id]").first.is_checked()
    page.get_by_role("button", name="Replay…").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Replay 1").focus()
    page.keyboard.press("Enter")
    page.locator(".messagelist").wait_for()
    assert desk.state() == "waiting"


def test_a_long_replay_goes_on_by_itself(desk: Desk, open_page: OpenPage) -> None:
    for n in range(8):
        failed(desk, f"job-{n}")
    page = open_page(browser_of(person("ada", *ALL)))
    page.goto(LETTERS)
    page.get_by_role("button", name="Replay all").click()
    page.get_by_label("At most so many a second").fill("1.4")
    page.get_by_role("button", name="Replay 8").click()
    page.get_by_text("1 to go").wait_for()
    page.get_by_text("8 replayed.").wait_for()


def test_with_redis_away_an_open_page_says_so_and_recovers(desk: Desk, queue: RedisServer, open_page: OpenPage) -> None:
    desk.add("a")
    page = open_page(browser_of(person("ada", *ALL)))
    page.goto(QUEUES)
    queue.kill()
    page.locator(".qk-stale").wait_for()
    page.reload()
    page.get_by_role("heading", name="Queue not available").wait_for()
    assert page.request.get(QUEUES).headers["retry-after"] == str(RETRY_AFTER_S)
    queue.start()
    page.reload()
    page.get_by_role("heading", name="Queues").wait_for()
