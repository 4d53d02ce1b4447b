"""Dead letters in the admin: who may see and do what, what is meant by a filter, what is said when it cannot be done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote
from django.test import Client

from deploy import celery_app
from queue_kit import dead_letters
from queue_kit.store.dead_letters import DeadLetters
from tests.django.admin_site import ALL, LETTERS, VIEWING, browser_of, person
from tests.store.desk import Desk
from tests.store.test_letters import buried, sent
from tests.store.test_replay import failed, trim
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch

pytestmark = pytest.mark.django_db(transaction=True)
HTML = "<script>alert(1)</script>"
ACT = f"{LETTERS}act/"


@pytest.fixture
def desk(queue: RedisServer, queue_name: str) -> Desk:
    return Desk(queue.client(), queue_name)


@pytest.fixture
def letters(desk: Desk) -> DeadLetters:
    return dead_letters(celery_app)


@pytest.fixture
def admin(db: None) -> Client:
    """Ada, who may do everything with dead letters and queues, and nothing else."""
    return browser_of(person("ada", *ALL))


@pytest.fixture
def viewer(db: None) -> Client:
    return browser_of(person("vic", *VIEWING))


def page_of(letter_id: str) -> str:
    return f"{LETTERS}{quote(letter_id)}/change/"


def jobs_on(page: Any) -> str:
    return "".join(letter.job_id for letter in page.context["letters"])


def text(answer: Any) -> str:
    return answer.content.decode()


@pytest.fixture
def five(desk: Desk) -> None:
    """Dead letters a to e, at 10 to 50 s of 1970."""
    buried(desk, "a", 10_000, error_class="KeyError", reason="password=hunter2")
    buried(desk, "b", 20_000, name="mail", message=sent(to="ada", token="t-1234"), stack="line\nt-1234")
    buried(desk, "c", 30_000, cause="stalled", reason="Disk full")
    buried(desk, "d", 40_000, correlation_id="c-9", replayed_at=45_000, replayed_by="bob")
    buried(desk, "e", 50_000, queue="other")


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [LETTERS, f"{LETTERS}x/change/"])
def test_nobody_unknown_sees_anything(desk: Desk, url: str) -> None:
    assert Client().get(url).headers["Location"].startswith("/admin/login/")
    assert browser_of(person("stan")).get(url).status_code == 403
    assert browser_of(person("guest", *ALL, staff=False)).get(url).status_code == 302


def test_a_viewer_reads_and_has_no_buttons(desk: Desk, viewer: Client) -> None:
    letter = failed(desk)
    for url in (LETTERS, page_of(letter)):
        page = viewer.get(url)
        assert page.status_code == 200
        assert 'name="action"' not in text(page)


@pytest.mark.parametrize("action", ["replay", "discard", "export"])
def test_each_action_has_a_permission_of_its_own(desk: Desk, viewer: Client, action: str) -> None:
    letter = failed(desk)
    for sure in ({}, {"sure": "on"}):
        assert viewer.post(ACT, {"action": action, "id": letter, **sure}).status_code == 403
    one = browser_of(person("one", "view_deadletter", f"{action}_deadletter"))
    assert one.post(ACT, {"action": action, "id": letter}).status_code == 200
    others = {"replay", "discard", "export"} - {action}
    assert {one.post(ACT, {"action": other, "id": letter}).status_code for other in others} == {403}
    assert desk.state() == "failed"


def test_a_post_without_its_token_is_refused_and_a_get_does_nothing(desk: Desk, letters: DeadLetters) -> None:
    letter = failed(desk)
    strict = browser_of(person("ada", *ALL), enforce_csrf_checks=True)
    assert strict.post(ACT, {"action": "discard", "id": letter, "sure": "on"}).status_code == 403
    assert strict.get(ACT, {"action": "discard", "id": letter, "sure": "on"}).status_code == 405
    assert letters.ids() == [letter]


# -- the list ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("query", "jobs"),
    [
        ("", "edcba"), ("queue=other", "e"), ("name=mail", "b"), ("cause=stalled", "c"), ("error=KeyError", "a"),
        ("text=C-9", "d"), ("text=other-e-1", "e"), ("replayed=yes", "d"), ("replayed=no&cause=exhausted", "eba"),
        ("since=1970-01-01T00:00:40", "ed"), ("until=1970-01-01T00:00:20", "a"), ("name=nothing", ""),
        ("page=99", ""), ("page=x", "edcba"), ("page=-1", "edcba"),
    ],
)  # fmt: skip
def test_filters_choose(admin: Client, query: str, jobs: str) -> None:
    page = admin.get(f"{LETTERS}?{query}")
    assert (page.status_code, jobs_on(page)) == (200, jobs)


@pytest.mark.usefixtures("five")
def test_causes_are_counted_and_are_links(admin: Client) -> None:
    page = admin.get(f"{LETTERS}?replayed=no")
    assert [(cause, number) for cause, number, _ in page.context["causes"]] == [("exhausted", 3), ("stalled", 1)]
    assert 'href="?replayed=no&amp;cause=stalled"' in text(page)


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    "query", ["cause=nothing", "since=yesterday", "since=1970-01-02&until=1970-01-01", "text=" + "x" * 400, "text=%00"]
)
def test_a_filter_that_cannot_be_read_is_named(admin: Client, query: str) -> None:
    page = admin.get(f"{LETTERS}?{query}")
    assert page.status_code == 400
    assert "errorlist" in text(page)


def test_pages_follow_each_other(desk: Desk, admin: Client) -> None:
    for n in range(120):
        buried(desk, f"{n:03} ", n * 1000)
    first = admin.get(f"{LETTERS}?cause=exhausted")
    assert first.context["after"] == "cause=exhausted&page=2"
    last = admin.get(f"{LETTERS}?cause=exhausted&page=3")
    assert (len(last.context["letters"]), last.context["before"], last.context["after"]) == (
        20,
        "cause=exhausted&page=2",
        "",
    )
    assert len({*jobs_on(first).split(), *jobs_on(last).split()}) == 70


def test_five_thousand_are_listed_in_time(desk: Desk, admin: Client) -> None:
    """200 ms on the server by itself; the bound here leaves room for whatever else this machine does."""
    for n in range(5000):
        buried(desk, f"job-{n}", n, cause=("exhausted", "stalled", "timeout")[n % 3], stack="x" * 2000)
    admin.get(LETTERS)
    watch = Stopwatch()
    page = admin.get(LETTERS)
    print(f"5,000 dead letters listed in {watch.elapsed_ms:.0f} ms")
    assert (page.context["total"], watch.elapsed_s < 2) == (5000, True)


# -- one ---------------------------------------------------------------------------------------------------------------


def test_one_is_shown_whole_without_secrets(desk: Desk, viewer: Client) -> None:
    token = desk.running(body=sent(1, to="ada", password="hunter2"), name="mail", correlation_id="c-1")
    desk.run(desk.moves.fail("job", token, "timeout", "no hunter2", error_class="JobTimeoutError", stack="at\nhunter2"))
    page = viewer.get(page_of(f"dlq-{desk.queue}-job-1"))
    shown = text(page)
    assert "hunter2" not in shown
    assert "&quot;to&quot;: &quot;ada&quot;,\n  &quot;password&quot;: &quot;[redacted]&quot;" in shown
    assert all(word in shown for word in ("JobTimeoutError", "c-1", "<svg", "no [redacted]"))
    assert [event.kind for event in page.context["events"]] == ["added", "waiting", "active", "failed", "dead-lettered"]
    assert [run.cause for run in page.context["runs"]] == ["timeout"]


def test_one_whose_job_is_trimmed_is_shown_too(desk: Desk, viewer: Client) -> None:
    letter = failed(desk)
    trim(desk)
    desk.client.delete(desk.keys.job("job"))
    assert "a replay rebuilds it" in text(viewer.get(page_of(letter)))


def test_html_is_text_wherever_it_stands(desk: Desk, admin: Client) -> None:
    body = sent(HTML, **{HTML: HTML})
    token = desk.running(HTML, body=body, name=HTML, queue=HTML, correlation_id=HTML)
    desk.run(desk.moves.fail(HTML, token, "exhausted", HTML, error_class=HTML, stack=HTML))
    letter = dead_letters(celery_app).ids()[0]
    urls = [LETTERS, f"{LETTERS}?text={HTML}&queue={HTML}", page_of(letter), f"{LETTERS}{quote(HTML)}/change/"]
    shown = [text(admin.get(url)) for url in urls]
    shown.append(text(admin.post(ACT, {"action": "replay", "id": [letter, HTML]})))
    assert [HTML in page for page in shown] == [False] * len(shown)
    assert ["alert(1)" in page for page in shown] == [True] * len(shown)


def test_half_a_surrogate_pair_and_deep_nesting_are_shown(desk: Desk, admin: Client) -> None:
    message = json.loads(sent())
    half = buried(desk, "half", 1000, message=json.dumps({**message, "body": '[[], {"a": "\\ud800"}, {}]'}))
    deep = buried(
        desk, "deep", 2000, message=json.dumps({**message, "body": "[[" + "[" * 900 + "]" * 900 + "], {}, {}]"})
    )
    assert "\\ud800" in text(admin.get(page_of(half)))
    assert admin.get(page_of(deep)).status_code == 200
    line = b"".join(admin.post(ACT, {"action": "export", "id": half}).streaming_content)
    assert json.loads(line)["payload"]["kwargs"] == {"a": "\ud800"}


@pytest.mark.parametrize("forged", ["dlq-x-1", "../../etc", "_ZZ", "%00", "a\x00b", "x" * 3000, "🎫", HTML])
def test_a_forged_id_is_not_found(desk: Desk, admin: Client, forged: str) -> None:
    assert admin.get(f"{LETTERS}{quote(forged)}/change/").status_code == 404
    answer = admin.post(ACT, {"action": "replay", "id": forged, "sure": "on"}, follow=True)
    assert answer.status_code == 200
    assert "1 left as they are" in text(answer)
    assert not LogEntry.objects.exists()


def test_one_of_a_later_version_is_said_to_be_so(desk: Desk, admin: Client) -> None:
    letter = buried(desk, "z", 60_000, version=3)
    assert admin.get(page_of(letter)).status_code == 409
    assert "a later version" in text(admin.get(LETTERS))


# -- replay ------------------------------------------------------------------------------------------------------------


def test_one_is_replayed_after_a_dry_run_and_the_log_says_by_whom(
    desk: Desk, admin: Client, letters: DeadLetters
) -> None:
    """I7: the second time it is refused."""
    letter = failed(desk)
    plan = admin.post(ACT, {"action": "replay", "id": letter})
    assert "would be replayed" in text(plan)
    assert desk.state() == "failed"
    done = admin.post(ACT, {"action": "replay", "id": letter, "sure": "on", "from": "detail"}, follow=True)
    assert "1 replayed." in text(done)
    assert (desk.state(), letters.get(letter).replayed_by) == ("waiting", "ada")
    (entry,) = LogEntry.objects.all()
    assert (entry.user.username, entry.object_id, entry.action_flag) == ("ada", letter, CHANGE)
    assert entry.get_admin_url() == page_of(letter)
    assert "Replayed by ada." in text(admin.get(page_of(letter)))
    again = admin.post(ACT, {"action": "replay", "id": letter, "sure": "on"}, follow=True)
    assert "has been replayed already, by ada" in text(again)
    assert LogEntry.objects.count() == 1


def test_by_filter_those_not_replayed_the_oldest_first_and_nothing_that_failed_since(
    desk: Desk, admin: Client, letters: DeadLetters
) -> None:
    """I7."""
    ids = [failed(desk, f"job-{n}") for n in range(4)]
    letters.replay(ids[1], "bob")
    desk.claim()
    plan = admin.post(ACT, {"action": "replay", "everything": "on", "queue": desk.queue})
    assert len(plan.context["outcome"].done) == 3
    desk.client.zadd(desk.key("dead"), {failed(desk, "later"): desk.now_ms() + 60_000})
    done = admin.post(ACT, {"action": "replay", "sure": "on", **dict(plan.context["carried"])}, follow=True)
    assert "3 replayed." in text(done)
    assert desk.listed("wait") == ["job-0", "job-2", "job-3"]
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == {ids[0], ids[2], ids[3]}


def test_at_a_rate_a_request_does_some_and_the_next_goes_on(desk: Desk, admin: Client, letters: DeadLetters) -> None:
    """I7: the refused are passed over once."""
    live = failed(desk, "live")
    for n in range(7):
        failed(desk, f"job-{n}")
    letters.replay(live, "bob")
    desk.client.hdel(desk.keys.dead_letter(live), "replayed_at")
    first = {"action": "replay", "sure": "on", "everything": "on", "rate": "1.2"}
    watch = Stopwatch()
    going = admin.post(ACT, first)
    assert (going.context["done"], going.context["skip"], going.context["left"]) == (5, 1, 2)
    assert watch.elapsed_s >= 5 / 1.2
    done = admin.post(ACT, {"action": "replay", **dict(going.context["carried"])}, follow=True)
    assert "7 replayed." in text(done)
    assert "1 left as they are" in text(done)
    assert LogEntry.objects.count() == 7


# -- discard, export ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("five")
def test_discard_asks_then_deletes(admin: Client, letters: DeadLetters) -> None:
    meant = {"action": "discard", "everything": "on", "cause": "stalled"}
    plan = admin.post(ACT, meant)
    assert "would be discarded" in text(plan)
    assert len(letters.ids()) == 5
    assert "1 discarded." in text(admin.post(ACT, {**meant, "sure": "on"}, follow=True))
    assert [letter.job_id for letter in letters.each()] == list("edba")
    assert LogEntry.objects.get().action_flag == DELETION


@pytest.mark.usefixtures("five")
def test_export_is_a_file_of_json_lines_without_secrets(desk: Desk, admin: Client) -> None:
    answer = admin.post(ACT, {"action": "export", "everything": "on", "queue": desk.queue})
    assert 'filename="dead-letters.jsonl"' in answer.headers["Content-Disposition"]
    lines = b"".join(answer.streaming_content).decode()
    assert [json.loads(line)["job_id"] for line in lines.splitlines()] == list("abcd")
    assert "hunter2" not in lines
    assert LogEntry.objects.filter(change_message="Exported.").count() == 4


def test_nothing_that_is_not_there_is_exported(desk: Desk, admin: Client) -> None:
    answer = admin.post(ACT, {"action": "export", "id": ["dlq-a-b-1", "x"]}, follow=True)
    assert "None of them is there any more." in text(answer)
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize(
    ("posted", "status"),
    [
        ({}, 400), ({"action": "nothing"}, 400), ({"action": "replay"}, 302), ({"action": "replay", "rate": "0"}, 400),
        ({"action": "replay", "rate": "nan"}, 400), ({"action": "replay", "everything": "on", "since": "x"}, 400),
        ({"action": "discard", "everything": "on", "newest_ms": "x"}, 400), ({"action": "replay", "everything": "on"}, 302),
    ],
)  # fmt: skip
def test_what_is_wrongly_asked_is_said(desk: Desk, admin: Client, posted: dict[str, str], status: int) -> None:
    assert admin.post(ACT, posted).status_code == status


# -- without Redis -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda site: site.get(LETTERS), lambda site: site.get(f"{LETTERS}x/change/"),
        lambda site: site.post(ACT, {"action": "replay", "id": "x", "sure": "on"}),
        lambda site: site.post(ACT, {"action": "export", "everything": "on"}),
        lambda site: site.post(ACT, {"action": "export", "id": "x"}),
    ],
)  # fmt: skip
def test_with_redis_away_the_page_says_so(queue_down: None, admin: Client, ask: Callable[[Client], Any]) -> None:
    """H4: 503, in about a second."""
    watch = Stopwatch()
    answer = ask(admin)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "The queue does not answer just now" in text(answer)
    assert watch.elapsed_s < 2.5
