"""Queues and jobs in the admin: what is shown, who may control, what each button does, what is said when it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client

from deploy import celery_app
from queue_kit import Enqueued, enqueue
from queue_kit.django.admin.hour import HOUR_MS, summarise
from queue_kit.store import AT_ONCE
from queue_kit.store.census import EventView
from queue_kit.store.roster import Facts, enrol
from queue_kit.worker.operating.control import limits
from tests.django.admin_site import ALL, QUEUES, VIEWING, browser_of, person
from tests.store.desk import LATER, Desk
from tests.store.test_letters import sent
from tests.store.test_replay import failed
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
HTML = "<script>alert(1)</script>"


@pytest.fixture
def desk(queue: RedisServer, queue_name: str) -> Desk:
    return Desk(queue.client(), queue_name)


@pytest.fixture
def admin(db: None) -> Client:
    return browser_of(person("ada", *ALL))


@pytest.fixture
def viewer(db: None) -> Client:
    return browser_of(person("vic", *VIEWING))


def queue_page(queue: str) -> str:
    return f"{QUEUES}{quote(queue)}/change/"


def job_page(job_id: str) -> str:
    return f"{QUEUES}jobs/{quote(job_id)}/show/"


def act(site: Client, queue: str, action: str, **fields: Any) -> Any:
    return site.post(f"{QUEUES}{quote(queue)}/act/", {"action": action, **fields}, follow=True)


def do(site: Client, job_id: str, action: str, **fields: Any) -> Any:
    return site.post(f"{QUEUES}jobs/{quote(job_id)}/do/", {"action": action, **fields}, follow=True)


def enrolled(desk: Desk, nonce: str, queue: str) -> None:
    """Put a worker on the roster."""
    facts = Facts(nonce, f"{nonce}@{HTML}", HTML, "", 1, "prefork", 4, [queue], desk.now_ms() - 60_000)
    desk.run(enrol(desk.moves, facts, ""))


def text(answer: Any) -> str:
    return answer.content.decode()


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_queues_are_listed_with_their_numbers(desk: Desk, viewer: Client) -> None:
    failed(desk, "f")
    desk.add_all("a", "b")
    desk.add("later", when=LATER)
    (row,) = viewer.get(QUEUES).context["rows"]
    assert (row.name, row.dead, row.oldest.id) == (desk.queue, 1, "a")
    assert dict(row.counts) == {"waiting": 2, "delayed": 1, "active": 0, "completed": 0, "failed": 1, "cancelled": 0}


def test_one_queue_lists_its_jobs_by_state(desk: Desk, viewer: Client) -> None:
    failed(desk, "f")
    desk.add_all("a", "b")
    for query, jobs in (("", ["a", "b"]), ("?state=failed", ["f"]), ("?state=active", []), ("?state=x", ["a", "b"])):
        page = viewer.get(queue_page(desk.queue) + query)
        assert [job.id for job in page.context["jobs"]] == jobs
    assert "<button" not in text(page).partition("data-live")[2].partition("</main>")[0]


def test_the_workers_are_listed_with_what_each_runs_and_how_long_it_has_been_silent(desk: Desk, viewer: Client) -> None:
    """Names come from workers, and are text."""
    assert "No worker lives." in text(viewer.get(f"{QUEUES}workers/"))
    enrolled(desk, "w1", HTML)
    enrolled(desk, "w2", desk.queue)
    desk.client.zadd(desk.keys.beats, {"w1": desk.now_ms() - 9_000})
    desk.running("job")
    page = viewer.get(f"{QUEUES}workers/")
    assert [worker.facts.nonce for worker in page.context["workers"]] == ["w1", "w2"]
    assert all(word in text(page) for word in ("silent for 9.", job_page("job"), "4 at once", "data-live"))
    assert HTML not in text(page)


def test_a_queue_that_nothing_consumes_says_so_until_something_does(desk: Desk, viewer: Client) -> None:
    desk.add("job")
    enrolled(desk, "w1", "elsewhere")
    assert "nothing consumes it" in text(viewer.get(QUEUES))
    assert "Nothing consumes this queue" in text(viewer.get(queue_page(desk.queue)))
    enrolled(desk, "w1", desk.queue)
    (row,) = viewer.get(QUEUES).context["rows"]
    assert row.consumers == 1
    assert "onsumes" not in text(viewer.get(QUEUES)) + text(viewer.get(queue_page(desk.queue)))


def test_a_job_is_found_by_its_id_and_shown_with_its_history_without_secrets(desk: Desk, viewer: Client) -> None:
    desk.add("a/b_c", name="mail", body=sent(to="ada", password="hunter2"), correlation_id="c-1")
    desk.run(desk.moves.retry("a/b_c", desk.begin("a/b_c"), AT_ONCE, reason="hunter2 refused"))
    page = viewer.get(f"{QUEUES}jobs/find/", {"id": " a/b_c "}, follow=True)
    assert page.redirect_chain == [(job_page("a/b_c"), 302)]
    assert "hunter2" not in text(page)
    assert all(word in text(page) for word in ("&quot;ada&quot;", "c-1", "<svg", "[redacted] refused"))
    assert [event.kind for event in page.context["events"]] == ["added", "waiting", "active", "waiting"]


def test_html_is_text_wherever_it_stands(desk: Desk, admin: Client) -> None:
    desk.add(HTML, name=HTML, queue=HTML, body=sent(HTML, **{HTML: HTML}), correlation_id=HTML)
    token = desk.begin(HTML, queues=[HTML], worker=HTML)
    shown = [text(admin.get(queue_page(HTML) + "?state=active"))]
    desk.run(desk.moves.retry(HTML, token, AT_ONCE, reason=HTML))
    shown += [text(admin.get(url)) for url in (QUEUES, queue_page(HTML), job_page(HTML), job_page(HTML * 2))]
    shown += [
        text(admin.get(f"{QUEUES}{quote(HTML)}/{page}/", {"name": HTML, "key": HTML})) for page in ("hour", "key")
    ]
    shown += [text(act(admin, HTML, action)) for action in ("pause", "drain")] + [text(do(admin, HTML, "remove"))]
    assert [HTML in page for page in shown] == [False] * len(shown)
    assert ["alert(1)" in page for page in shown] == [True] * len(shown)


# -- who ---------------------------------------------------------------------------------------------------------------


def test_a_viewer_controls_nothing(desk: Desk, viewer: Client) -> None:
    desk.add("job", when=LATER)
    assert act(viewer, desk.queue, "pause").status_code == 403
    assert do(viewer, "job", "promote").status_code == 403
    assert 'name="action"' not in text(viewer.get(job_page("job")))
    assert desk.state() == "delayed"


def test_who_sees_only_dead_letters_sees_no_queue(desk: Desk) -> None:
    desk.add("job")
    other = browser_of(person("other", "view_deadletter"))
    for url in (QUEUES, f"{QUEUES}workers/", queue_page(desk.queue), job_page("job")):
        assert other.get(url).status_code == 403
        assert Client().get(url).headers["Location"].startswith("/admin/login/")


def test_a_post_without_its_token_is_refused_and_a_get_does_nothing(desk: Desk) -> None:
    desk.add("job")
    strict = browser_of(person("ada", *ALL), enforce_csrf_checks=True)
    assert act(strict, desk.queue, "pause").status_code == 403
    assert do(strict, "job", "cancel").status_code == 403
    assert strict.get(f"{QUEUES}{desk.queue}/act/").status_code == 405
    assert strict.get(f"{QUEUES}jobs/job/do/").status_code == 405


# -- a queue's buttons -------------------------------------------------------------------------------------------------


def test_pause_and_resume(desk: Desk, admin: Client) -> None:
    desk.add("job")
    assert "Paused." in text(act(admin, desk.queue, "pause"))
    assert desk.claimed() == []
    assert "Resumed." in text(act(admin, desk.queue, "resume"))
    assert desk.claimed() == ["job"]
    assert list(LogEntry.objects.values_list("user__username", "object_id", "change_message")) == [
        ("ada", desk.queue, "Resumed."), ("ada", desk.queue, "Paused."),
    ]  # fmt: skip


def test_limits_are_set_shown_and_lifted(desk: Desk, admin: Client) -> None:
    desk.add("job")
    page = act(admin, desk.queue, "limit", concurrency="2", rate_max="10", rate_ms="1000")
    assert "Limits set: at once 2, rate 10 in 1000 ms." in text(page)
    now = limits(desk.queue, celery_app)
    assert (now.concurrency, now.rate) == (2, (10, 1000))
    assert 'name="concurrency" value="2"' in text(page)
    act(admin, desk.queue, "limit")
    now = limits(desk.queue, celery_app)
    assert (now.concurrency, now.rate) == (None, None)


def test_holding_off_and_ending_it(desk: Desk, admin: Client) -> None:
    desk.add("job")
    act(admin, desk.queue, "hold", seconds="60")
    assert 55_000 < limits(desk.queue, celery_app).held_off_ms <= 60_000
    act(admin, desk.queue, "hold", seconds="0")
    assert limits(desk.queue, celery_app).held_off_ms == 0


def test_drain_asks_first(desk: Desk, admin: Client) -> None:
    desk.add_all("a", "b")
    desk.add("later", when=LATER)
    assert "Remove 3 jobs" in text(act(admin, desk.queue, "drain", delayed="on"))
    assert desk.listed("wait") == ["a", "b"]
    assert "2 jobs removed" in text(act(admin, desk.queue, "drain", sure="on"))
    assert (desk.listed("wait"), desk.listed("delayed")) == ([], ["later"])


@pytest.mark.parametrize(
    "posted",
    [
        {"action": "limit", "concurrency": "0"}, {"action": "limit", "concurrency": "x"},
        {"action": "limit", "concurrency": "9" * 40}, {"action": "limit", "rate_max": "5"}, {"action": "hold"},
        {"action": "hold", "seconds": "-1"}, {"action": "hold", "seconds": "9" * 9}, {"action": "nothing"}, {"action": ""},
    ],
)  # fmt: skip
def test_what_is_wrongly_asked_is_said_and_nothing_set(desk: Desk, admin: Client, posted: dict[str, str]) -> None:
    desk.add("job")
    assert act(admin, desk.queue, **posted).status_code == 400
    assert limits(desk.queue, celery_app) == type(limits(desk.queue, celery_app))()


# -- a job's buttons ---------------------------------------------------------------------------------------------------


def test_promote_cancel_replay_remove(desk: Desk, admin: Client) -> None:
    desk.add("job", when=LATER)
    for action, state in (("promote", "waiting"), ("cancel", "cancelled"), ("retry", "waiting")):
        assert do(admin, "job", action).status_code == 200
        assert desk.state() == state
    assert "for good" in text(do(admin, "job", "remove"))
    assert desk.state() == "waiting"
    do(admin, "job", "remove", sure="on")
    assert desk.state() == ""
    assert LogEntry.objects.filter(object_id="job").count() == 4


def test_a_running_job_is_asked_to_stop_and_cannot_be_removed(desk: Desk, admin: Client) -> None:
    desk.running()
    assert do(admin, "job", "remove", sure="on").status_code == 409
    assert "Asked to stop" in text(do(admin, "job", "cancel"))
    assert do(admin, "job", "promote").status_code == 409
    assert do(admin, "job", "nothing").status_code == 400
    assert do(admin, "job", "retry").status_code == 409


@pytest.mark.parametrize("name", [".", "..", "_2E", "_2E_2E", "...", "a/../b", "?", "jobs", "workers"])
def test_every_name_has_an_address_of_its_own_that_no_browser_changes(desk: Desk, admin: Client, name: str) -> None:
    desk.add(name, queue=name)
    page = admin.get(QUEUES)
    (link,) = re.findall(rf'href="({QUEUES}[^"]+/change/)"', text(page))
    assert set(link.split("/")).isdisjoint({".", ".."})
    assert admin.get(link).context["row"].name == name
    answer = admin.get(f"{QUEUES}jobs/find/", {"id": name})
    assert (set(answer.url.split("/")) & {".", ".."}, admin.get(answer.url).context["job"].id) == (set(), name)
    assert admin.post(link.replace("/change/", "/act/"), {"action": "pause"}).url == link


@pytest.mark.parametrize("forged", ["nothing", "../x", "_ZZ", "%00", "a\x00b", "x" * 3000, "🎫", HTML])
def test_a_forged_name_is_not_found(desk: Desk, admin: Client, forged: str) -> None:
    desk.add("job")
    assert admin.get(queue_page(forged)).status_code == 404
    assert admin.get(job_page(forged)).status_code == 404
    assert act(admin, forged, "pause").status_code == 404
    assert do(admin, forged, "cancel").status_code == 404
    assert admin.get(f"{QUEUES}jobs/find/", {"id": forged}).status_code == 404
    assert {admin.get(f"{QUEUES}{quote(forged)}/{page}/").status_code for page in ("hour", "key")} == {404}
    assert desk.client.smembers("qwk:queues") == {desk.queue}


@pytest.mark.parametrize(
    "ask",
    [
        lambda site: site.get(QUEUES), lambda site: site.get(f"{QUEUES}workers/"),
        lambda site: site.get(queue_page("q")), lambda site: site.get(job_page("x")),
        lambda site: act(site, "q", "pause"), lambda site: do(site, "x", "cancel"),
        lambda site: site.get(f"{QUEUES}q/hour/"), lambda site: site.get(f"{QUEUES}q/key/", {"name": "n", "key": "k"}),
    ],
)  # fmt: skip
def test_with_redis_away_the_page_says_so(queue_down: None, admin: Client, ask: Callable[[Client], Any]) -> None:
    """H4: 503, with when to come back."""
    answer = ask(admin)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "The queue does not answer just now" in text(answer)


def test_a_page_recovers_with_redis(desk: Desk, queue: RedisServer, admin: Client) -> None:
    desk.add("job")
    queue.kill()
    assert admin.get(QUEUES).status_code == 503
    queue.start()
    assert admin.get(QUEUES).status_code == 200


# -- the last hour, keys -----------------------------------------------------------------------------------------------


def test_the_last_hour_is_counted_and_drawn(desk: Desk, viewer: Client) -> None:
    desk.run(desk.moves.complete("a", desk.running("a")))
    failed(desk, "b")
    desk.add("c")
    page = viewer.get(f"{QUEUES}{quote(desk.queue)}/hour/")
    hour = page.context["hour"]
    assert (hour.completed, hour.failed, hour.highest) == (1, 1, 2)
    assert (hour.columns[59].completed, hour.columns[59].failed) == (1, 1)
    assert [percent for percent, _ in hour.waits] == [percent for percent, _ in hour.runs] == [50, 95, 99]
    assert "<svg" in text(page)
    desk.client.delete(desk.key("events"))
    assert "none began" in text(viewer.get(f"{QUEUES}{quote(desk.queue)}/hour/"))


def test_percentiles_and_minutes_follow_from_the_events() -> None:
    now = 10 * HOUR_MS

    def event(kind: str, job: int, ago_ms: int) -> EventView:
        return EventView(f"{now - ago_ms}-0", kind, str(job), now - ago_ms, {})

    jobs = range(1, 101)
    events = [event("waiting", n, 600_000) for n in jobs]
    events += [event("active", n, 600_000 - n * 100) for n in jobs]
    events += [event("completed", n, 500_000 - n * 1000) for n in jobs]
    hour = summarise(events, now)
    assert hour.waits == [(50, 5_000), (95, 9_500), (99, 9_900)]
    assert (sum(column.completed for column in hour.columns), hour.highest) == (100, 60)
    assert hour.since_ms == now - 600_000


def test_a_key_is_looked_up_and_freed(queue: RedisServer, admin: Client, viewer: Client) -> None:
    def send() -> Enqueued:
        return enqueue("grade-attempt", {"attempt_id": "a-1"}, idempotency_key="k <1>")

    first = send()
    url, given = f"{QUEUES}grading/key/", {"name": "grade-attempt", "key": "k <1>"}
    assert first.id in text(viewer.get(url, given))
    assert viewer.post(url, given).status_code == 403
    assert "No job holds this key" in text(viewer.get(url, {**given, "key": "other"}))
    assert viewer.get(url, {"name": "x"}).status_code == 400
    assert f"job {first.id} held it" in text(admin.post(url, given, follow=True))
    assert not send().deduplicated
    assert LogEntry.objects.get().change_message == f"Freed the key k <1> of grade-attempt, held by {first.id}."
