"""What the doctor finds in the queues and beside them: jobs stuck, forgotten or given up, and stock Celery's; and its command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from celery import Celery

from queue_kit import State, dead_letters, open_census
from queue_kit.worker.operating.control import pause
from queue_kit.worker.operating.doctor import examine_app
from tests.support.fixtures import StartWorker
from tests.support.processes import ROOT, environment_with_project
from tests.support.redis_server import RedisServer
from tests.support.waiting import let_pass, wait_until
from tests.worker.doctor_shop import KEYS, SHORT, Shop, claim, fail, said, shop

pytestmark = pytest.mark.usefixtures("own_tasks_alone")

__all__ = ["shop"]

# -- stock Celery on the same database ------------------------------------------------------------------------------------


def test_what_a_producer_without_queue_kit_has_sent_is_listed(
    shop: Shop, redis_server: RedisServer, client: redis.Redis
) -> None:
    """K22: in every list that stock Celery has for a queue, one for each of its priorities."""
    stock = Celery("stock", broker=redis_server.url(), set_as_current=False)
    for priority in (0, 3, 9):
        stock.send_task("shop.sell", priority=priority)
    stock.close()
    [(verdict, says)] = said(shop(), "stock messages")
    assert verdict == "bad"
    assert says.startswith("queue celery: 3 messages wait in its plain Redis list")
    assert said(shop({"TAKE_STOCK_MESSAGES": True}), "stock messages")[0][0] == "warn"
    client.delete(*client.keys("celery*"))


def test_a_stock_worker_on_the_database_is_named_and_so_is_what_it_holds(
    shop: Shop, redis_server: RedisServer, client: redis.Redis, start_worker: StartWorker
) -> None:
    """K13."""
    worker = start_worker(pool="threads", queues=["celery"])
    stock = Celery("stock", broker=redis_server.url(), set_as_current=False)
    stock.send_task("sample.hold", ["gate"], ignore_result=True)
    wait_until(lambda: client.llen("gate:begun"), says="it runs")
    app = shop()
    found = wait_until(
        lambda: len(lines := said(app, "stock workers", wait_s=1)) == 2 and lines, says="it answers", within_s=20
    )  # fmt: skip
    assert [verdict for verdict, _ in found] == ["warn", "warn"]
    assert worker.hostname in found[0][1]
    assert found[1][1].startswith("stock Celery holds 1 messages unacknowledged")
    client.lpush("gate", "go")
    wait_until(lambda: not client.exists("unacked"), says="it has ended")
    client.delete("gate:begun")
    stock.close()


# -- the work -------------------------------------------------------------------------------------------------------------


def test_jobs_that_nobody_takes_and_tasks_that_nobody_has_are_bad(shop: Shop, start_worker: StartWorker) -> None:
    start_worker("tests.apps.plain_app", backend_url="", queues=["work"], pool="solo")
    app = shop(task_create_missing_queues=True)
    pause("work", app)
    app.send_task("plain.echo", queue="work")
    app.send_task("plain.removed", queue="work")
    app.send_task("shop.sell", queue="nobodys", countdown=1000)

    def says() -> dict[str, str]:
        found = [finding for finding in examine_app(app, wait_s=1) if finding.check in ("queues", "tasks", "paused")]
        return {finding.says: finding.verdict.value for finding in found}

    answered = wait_until(
        lambda: "plain.removed" in str(found := says()) and found, says="the worker answers", within_s=20
    )  # fmt: skip
    assert answered == {
        "queue work is paused: its 2 waiting jobs stay": "warn",
        "nobody consumes queue nobodys: 0 jobs wait, 1 are delayed": "bad",
        "nobody consumes these declared queues, which are empty: celery": "warn",
        "queue work: 1 jobs ask for plain.removed, which no worker of it knows": "bad",
    }


def test_a_worker_that_is_too_busy_to_answer_is_on_the_roster(shop: Shop, start_worker: StartWorker, tmp_path: Path) -> None:
    """In the solo pool a job that runs holds up remote control; what that worker knows is not guessed at."""
    worker = start_worker(
        "tests.apps.plain_app", backend_url="", queues=["work"], pool="solo", env={"TRAPS_FOLDER": str(tmp_path)}
    )
    app = shop()
    wait_until(open_census(app).workers, says="it is on the roster")
    app.send_task("plain.hold", kwargs={"gate": "gate"}, queue="work")
    wait_until((tmp_path / "book").exists, says="it runs")
    app.send_task("plain.unheard-of", queue="work")
    assert said(app, "workers", wait_s=0.3) == [("ok", f"1 of queue_kit: {worker.hostname}")]
    assert said(app, "tasks") == []
    (tmp_path / "gate").touch()
    wait_until(lambda: not open_census(app).jobs("work", State.ACTIVE), says="it has ended")


def test_without_any_worker_what_waits_is_consumed_by_nobody(shop: Shop) -> None:
    app = shop()
    app.send_task("shop.sell")
    assert said(app, "queues") == [("bad", "nobody consumes queue celery: 1 jobs wait, 0 are delayed")]


def test_without_a_worker_tasks_are_those_of_the_project(shop: Shop) -> None:
    app = shop()
    app.send_task("shop.sell")
    app.send_task("shop.gone")
    assert [says for _, says in said(app, "tasks")] == ["queue celery: 1 jobs ask for shop.gone, which no worker of it knows"]
    assert said(app, "workers")[0][0] == "warn"


@pytest.mark.parametrize(("age_s", "verdict"), [(10, "ok"), (400, "warn"), (4000, "bad")])
def test_a_job_that_has_waited_for_long_is_found(shop: Shop, client: redis.Redis, age_s: int, verdict: str) -> None:
    app = shop()
    job_id = app.send_task("shop.sell").id
    client.hincrby(KEYS.job(job_id), "added_at", -age_s * 1000)
    assert said(app, "backlog")[0][0] == verdict


def test_leases_that_nobody_has_given_back_are_found(shop: Shop) -> None:
    app = shop(SHORT)
    app.send_task("shop.sell")
    assert len(claim(app)) == 1
    assert [verdict for verdict, says in said(app, "leases") if "run out" in says] == []
    let_pass(0.8, because="the lease, two reap intervals and a renewal have to go by")
    assert [says for _, says in said(app, "leases")][-1] == "leases have run out and nobody has given the jobs back: celery 1"


def test_callers_that_nobody_has_told_are_found(shop: Shop, client: redis.Redis) -> None:
    app = shop()
    job_id = app.send_task("shop.sell", expires=0.001).id
    let_pass(0.05, because="the job has to expire")
    assert claim(app) == []
    assert said(app, "callers") == []
    client.zincrby(KEYS.notes, -61_000, job_id)
    assert said(app, "callers")[0][0] == "warn"


def test_dead_letters_are_counted_and_bad_when_the_next_are_lost(shop: Shop) -> None:
    fail(shop(), 3)
    assert said(shop(), "dead letters") == [("warn", "jobs that failed for good: celery 3")]
    assert said(shop({"DEAD_LETTER_MAX_ENTRIES": 3}), "dead letters")[0][0] == "bad"
    app = shop({"DEAD_LETTER_MAX_ENTRIES": 2})
    fail(app, 1)
    dead_letters(app).discard(dead_letters(app).page().letters[0].id)
    assert said(app, "dead letters")[0] == ("warn", "older ones were lost, more had failed than are kept: celery 2")


@pytest.mark.leaves("qwk:job:*", "qwk:dead:*")
def test_jobs_and_records_that_no_list_names_are_found(shop: Shop, client: redis.Redis) -> None:
    """An operator's DEL of one key, say. What is leased, delayed or ended stands in a list of its own."""
    app = shop()
    lost = app.send_task("shop.sell", queue="lost").id
    for countdown in (None, 100):
        app.send_task("shop.sell", queue="kept", countdown=countdown)
    fail(app, 1)
    assert said(app, "keys") == [("ok", "every job and record stands in a list (5 keys looked at)")]
    client.delete(KEYS.queue("lost", "wait"), KEYS.queue("celery", "dead"))
    verdicts = dict(said(app, "keys"))
    assert list(verdicts) == ["bad", "warn"]
    assert lost in verdicts["bad"]
    assert "dlq-celery-" in verdicts["warn"]
    assert "looked at, not all" in said(app, "keys", keys=2)[0][1]


# -- the commands ---------------------------------------------------------------------------------------------------------


def celery(url: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "celery", "-A", "tests.apps.plain_app", "queue-doctor", *args]
    env = environment_with_project({"CELERY_BROKER_URL": url})
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_celerys_own_command_line_has_it(redis_server: RedisServer) -> None:
    done = celery(redis_server.url(), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (2, 2)
    assert {finding["check"] for finding in document["findings"]} >= {"server", "eviction", "persistence", "clock", "keys"}
    lines = celery(redis_server.url()).stdout.splitlines()
    assert [line[:5].strip() for line in lines] == [finding["verdict"] for finding in document["findings"]]
    assert all(". Fix: " in line for line in lines if not line.startswith("ok "))
