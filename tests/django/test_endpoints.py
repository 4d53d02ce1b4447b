"""The web process for probes, scrapers and programs: health, metrics, and a job by its id; with Redis and without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.http import HttpRequest
from django.test import Client

from deploy import celery_app
from queue_kit import enqueue
from queue_kit.observe.metrics import MOVES
from queue_kit.store.census import JobView
from tests.django.admin_site import browser_of, person
from tests.store.desk import LATER, Desk
from tests.store.test_replay import failed
from tests.support.fixtures import OwnProxy, OwnRedis
from tests.support.ports import LOOPBACK
from tests.support.probes import series
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, wait_until

#: H5: what an answer may take, whatever Redis does.
BOUND_S = 1.2 * 1.2 + 0.25
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk(queue: RedisServer, queue_name: str) -> Desk:
    return Desk(queue.client(), queue_name)


@pytest.fixture
def staff(db: None) -> Client:
    return browser_of(person("vic", "view_queue"))


def refused(server: RedisServer) -> None:
    server.kill()


def frozen(server: RedisServer) -> None:
    server.freeze()


def locked(server: RedisServer) -> None:
    server.client().config_set("requirepass", "secret")


def replica(server: RedisServer) -> None:
    server.client().replicaof(LOOPBACK, "1")


OUTAGES = [refused, frozen, locked]


def in_time(site: Client, path: str) -> Any:
    watch = Stopwatch()
    answer = site.get(path)
    assert watch.elapsed_s < BOUND_S
    assert "no-store" in answer.headers["Cache-Control"]
    return answer


def scraped(site: Client) -> dict[tuple[str, ...], float]:
    answer = in_time(site, "/metrics")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return series(answer.content.decode())


# -- health ---------------------------------------------------------------------------------------------------------------


def test_with_redis_both_probes_are_content(site: Client, queue: RedisServer) -> None:
    assert [in_time(site, path).json() for path in ("/health/live", "/health/ready")] == [{"status": "ok"}] * 2


@pytest.mark.crash
@pytest.mark.parametrize("outage", OUTAGES)
def test_an_outage_makes_ready_503_and_live_stays_200(
    site: Client, queue: RedisServer, outage: Callable[[RedisServer], None]
) -> None:
    """H5: each within 1.2 s; and ready is content again as soon as Redis is."""
    outage(queue)
    ready = in_time(site, "/health/ready")
    assert (ready.status_code, ready.json()["status"], in_time(site, "/health/live").status_code) == (503, "not_ready", 200)
    if outage is frozen:
        queue.thaw()
        wait_until(lambda: in_time(site, "/health/ready").status_code == 200, says="ready is content again", within_s=5)


@pytest.mark.crash
def test_many_who_ask_at_once_have_one_answer(queue: RedisServer) -> None:
    """H5: given a server of four threads, and Redis frozen; twenty probes; then none waits for those before it."""
    queue.freeze()
    watch = Stopwatch()
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: Client().get("/health/ready").status_code, range(20)))
    assert (answers, watch.elapsed_s < 2 * BOUND_S) == ([503] * 20, True)
    queue.thaw()


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics", "/jobs/x"])
def test_only_reading_is_allowed(path: str) -> None:
    """Not a refusal for want of a form's token."""
    assert Client(enforce_csrf_checks=True).post(path).status_code == 405


def test_a_web_process_without_redis_starts_and_answers(site: Client, queue_down: None, request: Any) -> None:
    """SPEC 12: down at web boot: live 200, ready 503; then Redis comes."""
    assert [in_time(site, f"/health/{probe}").status_code for probe in ("live", "ready")] == [200, 503]
    request.getfixturevalue("queue")
    wait_until(lambda: in_time(site, "/health/ready").status_code == 200, says="ready is content", within_s=5)


@pytest.mark.crash
def test_a_replica_is_not_ready(site: Client, queue: RedisServer) -> None:
    replica(queue)
    answer = in_time(site, "/health/ready")
    assert (answer.status_code, "replica" in answer.json()["reason"]) == (503, True)
    queue.client().replicaof("NO", "ONE")


@pytest.mark.crash
def test_the_next_of_several_urls_is_asked(
    site: Client, queue: RedisServer, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    """K11: a probe follows where sends go."""
    monkeypatch.setattr(celery_app.conf, "broker_url", f"redis://{LOOPBACK}:{unused_port}/0;{queue.url()}")
    assert in_time(site, "/health/ready").status_code == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics", "/jobs/x"])
def test_nothing_but_reading_is_answered(site: Client, queue: RedisServer, path: str) -> None:
    answer = site.post(path, {"a": "b"})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert site.head(path).content == b""


# -- metrics --------------------------------------------------------------------------------------------------------------


def test_queues_are_counted_as_the_scripts_have_counted(site: Client, desk: Desk) -> None:
    """SPEC 11: names and labels; what a registered name has not done yet is a nought."""
    desk.run(desk.moves.complete("done", desk.running("done", name="maintenance.cleanup")))
    desk.add(name="maintenance.cleanup")
    desk.add("later", when=LATER, name="maintenance.cleanup")
    failed(desk, "f")
    seen = scraped(site)
    for what, number in {"enqueued": 3, "started": 1, "completed": 1, "failed": 0, "cancelled": 0}.items():
        assert seen[f"qwk_jobs_{what}_total", "maintenance.cleanup", desk.queue] == number
    assert {state: seen["qwk_queue_jobs", desk.queue, state] for state in ("waiting", "delayed", "completed", "failed")} == {
        "waiting": 1, "delayed": 1, "completed": 1, "failed": 1,
    }  # fmt: skip
    assert seen["qwk_dead_letter_records", desk.queue] == 1
    assert seen["qwk_dead_letter_evicted_total", desk.queue] == 0
    assert seen["qwk_queue_oldest_waiting_seconds", desk.queue] < 60
    assert seen["qwk_redis_up",] == 1


def test_names_that_are_not_registered_are_one_series(site: Client, desk: Desk) -> None:
    """SPEC 11: nobody makes series by sending names."""
    for number in range(5):
        desk.add(f"job-{number}", name=f"made-up-{number}")
    seen = scraped(site)
    assert seen["qwk_jobs_enqueued_total", "unknown", desk.queue] == 5
    assert {key[1] for key in seen if key[0] == "qwk_jobs_enqueued_total"} == {"unknown"}


def test_every_name_of_the_contract_is_there(site: Client, desk: Desk) -> None:
    """SPEC 11."""
    desk.add()
    names = {key[0] for key in scraped(site)}
    assert names == {
        *(f"qwk_jobs_{what}_total" for what in MOVES), "qwk_dead_letter_evicted_total", "qwk_queue_jobs",
        "qwk_queue_oldest_waiting_seconds", "qwk_dead_letter_records", "qwk_redis_up",
    }  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_scrape_without_redis_says_so(site: Client, queue: RedisServer, outage: Callable[[RedisServer], None]) -> None:
    outage(queue)
    assert scraped(site) == {("qwk_redis_up",): 0}


@pytest.mark.crash
def test_an_answer_that_never_ends_holds_nobody(
    site: Client, queue: RedisServer, own_proxy: OwnProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page within its bound, though connections are accepted and nothing comes."""
    proxy = own_proxy(queue)
    monkeypatch.setattr(celery_app.conf, "broker_url", proxy.url())
    proxy.stall()
    assert scraped(site) == {("qwk_redis_up",): 0}
    assert in_time(site, "/health/ready").status_code == 503


def test_an_odd_wish_for_a_format_is_no_error(site: Client, desk: Desk) -> None:
    for accept in ("application/openmetrics-text; version=x; escaping=y", "text/plain; version=9.9.9.9", "\\", "*"):
        assert site.get("/metrics", headers={"accept": accept}).status_code == 200


# -- jobs -----------------------------------------------------------------------------------------------------------------


def job(site: Client, job_id: str) -> Any:
    return in_time(site, f"/jobs/{quote(job_id, safe='')}")


def test_a_job_is_shown_with_state_attempts_and_times(staff: Client, desk: Desk) -> None:
    """F1, over HTTP."""
    desk.add("a/b?c", priority=3, correlation_id="c-1", name="mail")
    answer = job(staff, "a/b?c").json()
    assert answer == {
        "id": "a/b?c", "state": "waiting", "queue": desk.queue, "name": "mail", "attempts_made": 0, "attempts_started": 0,
        "stalled_count": 0, "priority": 3, "added_at_ms": answer["added_at_ms"], "started_at_ms": None, "finished_at_ms": None,
        "due_at_ms": None, "cause": "", "error_class": "", "correlation_id": "c-1",
    }  # fmt: skip


def test_what_is_shown_names_no_secret(staff: Client, desk: Desk) -> None:
    """The same words as on the admin's page: a reason that quotes a secret of the payload, and a progress with one."""
    queued = enqueue("maintenance.cleanup", {"before": "2020-01-01T00:00:00Z"})
    moves, queue = desk.moves, "maintenance"
    (claimed,) = desk.claim(queues=[queue]).jobs
    desk.run(moves.progress(queued.id, claimed.token, json.dumps({"step": 1, "api_key": "k-12345"})))
    desk.run(moves.fail(queued.id, claimed.token, "exhausted", "refused: password=hunter22 at redis://u:pw99@host"))
    answer = job(staff, queued.id)
    assert answer.json()["state"] == "failed"
    assert (answer.json()["progress"]["step"], answer.json()["cause"]) == (1, "exhausted")
    assert not [word for word in ("hunter22", "pw99", "k-12345") if word in answer.content.decode()]


@pytest.fixture
def results(queue: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The site keeps results, in another database of its Redis."""
    monkeypatch.setattr(celery_app.conf, "result_backend", queue.url(1))
    celery_app._local.__dict__.pop("backend", None)
    yield queue.url(1)
    celery_app._local.__dict__.pop("backend", None)
    queue.client(1).flushall()


@pytest.mark.parametrize(
    ("kept", "shown"),
    [({"score": 71, "token": "t-1"}, {"score": 71, "token": "[redacted]"}), ("plain", "plain"), ([1, None], [1, None]), (0, 0)],
)
def test_a_result_that_is_kept_is_shown(staff: Client, desk: Desk, results: str, kept: Any, shown: Any) -> None:
    desk.run(desk.moves.complete("job", desk.running()))
    celery_app.backend.store_result("job", kept, "SUCCESS")
    assert job(staff, "job").json()["result"] == shown


def test_without_a_kept_result_none_is_named(staff: Client, desk: Desk) -> None:
    desk.run(desk.moves.complete("job", desk.running()))
    assert not {"result", "result_unavailable"} & job(staff, "job").json().keys()


@pytest.mark.crash
def test_results_that_do_not_answer_do_not_hide_the_job(
    staff: Client, desk: Desk, results: str, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_redis()
    monkeypatch.setattr(celery_app.conf, "result_backend", server.url())
    server.freeze()
    desk.run(desk.moves.complete("job", desk.running()))
    assert (job(staff, "job").json()["state"], job(staff, "job").json()["result_unavailable"]) == ("completed", True)


def may_see(request: HttpRequest, found: JobView) -> bool:
    """The project's own rule of these tests: whoever knows the correlation id."""
    return request.GET.get("mine") == found.correlation_id


def who(kind: str) -> Client:
    """Somebody who may not see jobs."""
    permissions = {"unpermitted": (), "not staff": ("view_queue",), "other permission": ("view_deadletter",)}.get(kind)
    if permissions is None:
        return Client()
    return browser_of(person("eve", *permissions, staff=kind != "not staff"))


@pytest.mark.parametrize("kind", ["anonymous", "unpermitted", "not staff", "other permission"])
@pytest.mark.parametrize("rule", ["", "tests.django.test_endpoints.may_see"])
def test_to_whoever_may_not_see_it_there_is_no_job(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: str, rule: str
) -> None:
    """Which ids there are is not told: the answers are the same to the byte."""
    monkeypatch.setattr(settings, "QUEUE_KIT", {**settings.QUEUE_KIT, "JOB_ACCESS": rule})
    desk.add("there")
    answers = [job(who(kind) if index == 0 else Client(), job_id) for index, job_id in enumerate(("there", "missing"))]
    assert {(answer.status_code, answer.content) for answer in answers} == {(404, b'{"error": "there is no such job"}')}


def test_the_projects_own_rule_lets_others_in(site: Client, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "QUEUE_KIT", {**settings.QUEUE_KIT, "JOB_ACCESS": "tests.django.test_endpoints.may_see"})
    desk.add("there", correlation_id="c-9")
    assert [site.get(f"/jobs/there?mine={mine}").status_code for mine in ("c-9", "c-8")] == [200, 404]


@pytest.mark.parametrize("forged", ["job:runs", "job:log", "a" * 501, "\x00", "..", "%00", "<script>", "job\n", " job", "*"])
def test_forged_ids_name_nothing(staff: Client, desk: Desk, forged: str) -> None:
    desk.run(desk.moves.retry("job", desk.running(), LATER))
    assert staff.get(f"/jobs/{quote(forged, safe='')}").status_code == 404


@pytest.mark.crash
@pytest.mark.parametrize("outage", OUTAGES)
def test_without_redis_a_job_is_503_in_time(
    staff: Client, queue: RedisServer, outage: Callable[[RedisServer], None]
) -> None:
    """H5: and whoever may see nothing costs an ailing Redis nothing."""
    outage(queue)
    answer = job(staff, "any")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert job(Client(), "any").status_code == 404
