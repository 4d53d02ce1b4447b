"""What the doctor finds in Redis and in the settings: each way to lose or double work, brought about; and a sound set-up."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kombu import Queue

from queue_kit.observe.doctor import exit_status
from queue_kit.worker.operating import doctor
from queue_kit.worker.operating.doctor import examine_app
from queue_kit.worker.running.task import Declared
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, wait_until
from tests.worker.doctor_shop import Shop, fills, findings, said, sell, shop

pytestmark = pytest.mark.usefixtures("own_tasks_alone")

__all__ = ["shop"]

# -- a set-up without fault -----------------------------------------------------------------------------------------------


def test_a_sound_set_up_has_no_finding_but_ok(own_redis: OwnRedis, shop: Shop, start_worker: StartWorker) -> None:
    server = own_redis(appendonly=True)
    start_worker("tests.apps.plain_app", broker_url=server.url(), backend_url="", queues=["celery"], pool="solo")
    app = shop({"JOB_TIMEOUT_MS": 20_000}, server.url())
    app.send_task("plain.echo")
    found = examine_app(app, wait_s=3)
    assert [finding for finding in found if finding.verdict != "ok"] == []
    assert exit_status(found) == 0
    assert ("ok", "append-only file; a lost machine loses nothing that was answered") in said(app, "persistence")


# -- the server -----------------------------------------------------------------------------------------------------------


def test_a_policy_that_evicts_is_bad_and_one_that_was_accepted_is_a_warning(own_redis: OwnRedis, shop: Shop) -> None:
    url = own_redis(policy="allkeys-lru").url()
    assert said(shop(url=url), "eviction") == [("bad", "allkeys-lru: Redis deletes jobs when memory is full")]
    assert said(shop({"ALLOW_EVICTION": True}, url), "eviction")[0][0] == "warn"
    assert said(shop({"PRODUCTION": True}, url), "server")[0][0] == "ok"


@pytest.mark.parametrize(
    ("options", "verdict", "words"),
    [
        ({}, "bad", "no append-only file, no snapshots: a restart of Redis loses every job"),
        ({"save": "60 1"}, "warn", "snapshots alone: a restart loses every job since the last snapshot"),
        ({"appendonly": True, "options": {"appendfsync": "no"}}, "warn", "the kernel decides when jobs reach the disk"),
        ({"appendonly": True, "options": {"appendfsync": "everysec"}}, "ok", "up to a second of jobs"),
    ],
)
def test_what_a_restart_loses_is_said(
    own_redis: OwnRedis, shop: Shop, options: dict[str, Any], verdict: str, words: str
) -> None:
    [(found, says)] = said(shop(url=own_redis(**options).url()), "persistence")
    assert (found, words in says) == (verdict, True), says


def test_a_disk_that_takes_no_more_is_bad(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis(appendonly=True)
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    with server.client() as client:
        client.bgsave()
        wait_until(lambda: client.info()["rdb_last_bgsave_status"] == "err", says="the snapshot has failed")
    assert said(shop(url=server.url()), "persistence")[0] == ("bad", "the last write to disk failed: rdb_last_bgsave_status")


def test_a_primary_that_would_go_on_without_its_replica_is_a_warning(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis()
    replica = own_redis(options={"replicaof": f"127.0.0.1 {server.port}"})
    server.wait_for_replica()
    assert said(shop(url=server.url()), "replicas")[0][0] == "warn"
    with server.client() as client:
        client.config_set("min-replicas-to-write", 1)
    assert said(shop(url=server.url()), "replicas") == [("ok", "1 replicas; a primary without one refuses jobs")]
    [(verdict, says)] = said(shop(url=replica.url()), "server")
    assert (verdict, "this Redis is a replica" in says) == ("bad", True)
    with server.client() as client:
        client.config_set("min-replicas-to-write", 0)


def test_a_cluster_is_bad_and_no_more_is_asked_of_it(own_redis: OwnRedis, shop: Shop) -> None:
    options = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    [(verdict, says)] = said(shop(url=own_redis(options=options).url()), "server")
    assert (verdict, "a Redis Cluster is not supported" in says) == ("bad", True)


@pytest.mark.leaves("filler*")
def test_a_full_redis_is_examined_all_the_same_and_is_bad(own_redis: OwnRedis, shop: Shop) -> None:
    """H6: what waits there is counted; nothing that the doctor asks needs memory."""
    server = own_redis(maxmemory="4mb")
    app = shop(url=server.url())
    app.send_task("shop.sell")
    with server.client() as client:
        wait_until(lambda: fills(client), says="Redis is full", every_s=0)
    assert said(app, "memory")[0][0] == "bad"
    assert said(app, "backlog") == [("ok", "nothing has waited for 5 minutes; 1 jobs wait in all")]
    assert "could not be asked" in said(app, "workers")[-1][1]


@pytest.mark.leaves("filler")
def test_a_redis_that_is_nearly_full_or_has_few_connections_left_is_a_warning(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis()
    app = shop(url=server.url())
    with server.client() as client:
        client.append("filler", "x" * 20_000_000)  # beside which what connections take is little
        client.config_set("maxmemory", int(client.info()["used_memory"] / 0.87))
        assert said(app, "memory")[0][0] == "warn"
        client.config_set("maxmemory", 0)
        client.config_set("maxclients", 40)
        assert said(app, "connections")[0][0] == "ok"
        idle = [server.client() for _ in range(33 - client.info()["connected_clients"])]
        assert all(each.ping() for each in idle)
        assert said(app, "connections")[0][0] == "warn"
        for each in idle:
            each.close()
    assert said(shop({"PRODUCTION": True}, server.url()), "memory")[0][0] == "warn"


@pytest.mark.parametrize(("skew_s", "verdict"), [(0.0, "ok"), (5.0, "warn"), (-5.0, "warn"), (3600.0, "bad")])
def test_a_clock_that_differs_from_redis_is_found(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, skew_s: float, verdict: str
) -> None:
    class Clock:
        time_ns = staticmethod(lambda: int((time.time() + skew_s) * 1e9))

    monkeypatch.setattr(doctor, "time", Clock)
    [(found, says)] = said(shop(), "clock")
    assert found == verdict
    assert not skew_s or ("behind" in says) == (skew_s < 0)


def test_a_redis_that_is_down_frozen_or_refuses_us_is_bad_and_said_in_time(own_redis: OwnRedis, shop: Shop) -> None:
    """The password is not echoed."""
    server = own_redis()
    with server.client() as client:
        client.config_set("requirepass", "sesame")
        app = shop({"REDIS_TIMEOUT_MS": 300}, server.url().replace("//", "//:hunter2@"))
        [refused] = findings(app, "server")
        client.config_set("requirepass", "")
    assert (refused.verdict, "cannot be read" in refused.says, "hunter2" in refused.says) == ("bad", True, False)
    app = shop({"REDIS_TIMEOUT_MS": 300}, server.url())
    server.freeze()
    watch = Stopwatch()
    assert said(app, "server")[0][0] == "bad"
    assert watch.elapsed_s < 5
    server.kill()
    found = examine_app(app, wait_s=0.02)
    assert (found[0].check, exit_status(found)) == ("server", 2)
    assert {finding.check for finding in found} == {"server", "settings", "leases", "deadlines"}


def test_a_user_that_may_not_ask_for_info_is_told_what_is_unchecked(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", ">pass", "~*", "&*", "+@all", "-info", "-config")
    app = shop(url=server.url().replace("//", "//shop:pass@"))
    app.send_task("shop.sell")
    assert said(app, "server") == [
        ("warn", "this user may not ask for INFO: version, policy, persistence and memory are unchecked")
    ]
    assert said(app, "persistence") == []
    assert said(app, "backlog")[0][0] == "ok"


def test_a_job_that_may_run_for_longer_than_a_shutdown_waits_is_named(shop: Shop) -> None:
    app = shop()
    app.task(name="a.report", declared=Declared("a.report", None, None, None, None, 90_000), shared=False)(sell)
    [(verdict, says)] = said(app, "deadlines")
    assert (verdict, says.startswith("SHUTDOWN_TIMEOUT_MS: a run may last 90000 ms")) == ("warn", True)
    assert says.endswith("(a.report)")


# -- the project's settings -----------------------------------------------------------------------------------------------


def test_what_workers_refuse_to_boot_with_is_bad_line_by_line(shop: Shop) -> None:
    app = shop(task_protocol=1, worker_consumer="celery.worker.consumer:Consumer")
    assert [says for verdict, says in said(app, "settings") if verdict == "bad"] == [
        "workers refuse to start: task_protocol: leave it out; jobs need task protocol 2",
        "workers refuse to start: worker_consumer: leave it out, or derive it from queue_kit.worker.consumer.Consumer",
    ]


@pytest.mark.parametrize(
    ("setting", "value", "verdict"),
    [
        ("task_always_eager", True, "bad"),
        ("task_acks_late", False, "warn"),
        ("worker_prefetch_multiplier", 0, "warn"),
        ("broker_connection_max_retries", 5, "warn"),
        ("broker_connection_retry_on_startup", False, "warn"),
        ("accept_content", ["json", "pickle"], "warn"),
        ("task_serializer", "pickle", "warn"),
        ("result_serializer", "pickle", "warn"),
    ],
)
def test_a_setting_that_costs_something_is_named(shop: Shop, setting: str, value: Any, verdict: str) -> None:
    found = [finding for finding in findings(shop(**{setting: value}), "settings") if finding.says.startswith(setting)]
    assert [finding.verdict for finding in found] == [verdict]
    assert found[0].fix


def test_results_that_never_expire_are_found(shop: Shop, redis_server: RedisServer) -> None:
    assert said(shop(result_backend=redis_server.url(), result_expires=None), "results")[0][0] == "warn"
    assert said(shop(result_backend=redis_server.url()), "results") == []


def test_a_task_that_asks_to_run_at_most_once_is_named(shop: Shop) -> None:
    app = shop()
    app.task(name="shop.charge", acks_late=False, shared=False)(sell)
    [(verdict, says)] = said(app, "tasks")
    assert (verdict, says.endswith(": shop.charge")) == ("warn", True)


def test_a_plain_task_that_is_retried_without_end_is_named(shop: Shop) -> None:
    app = shop()
    app.task(name="shop.forever", autoretry_for=(Exception,), max_retries=None, shared=False)(sell)
    app.task(name="shop.thrice", autoretry_for=(Exception,), shared=False)(sell)
    [(verdict, says)] = said(app, "tasks")
    assert (verdict, says.endswith(": shop.forever")) == ("warn", True)


def test_a_soft_limit_that_never_comes_is_found(shop: Shop) -> None:
    found = said(shop(task_soft_time_limit=30, task_time_limit=20), "deadlines")
    assert [says for verdict, says in found if verdict == "warn" and "task_soft_time_limit 30: at task_time_limit 20" in says]


@pytest.mark.parametrize(
    ("creates", "verdict", "setting"),
    [(True, "warn", "task_queues"), (False, "bad", "task_create_missing_queues")],
)
def test_a_job_whose_queue_is_not_among_those_of_workers_is_named(
    shop: Shop, creates: bool, verdict: str, setting: str
) -> None:
    app = shop(task_queues=[Queue("celery")], task_create_missing_queues=creates)
    app.task(name="a.pack", declared=Declared("a.pack", "parcels", None, None, None), shared=False)(sell)
    [(found, says)] = [(how, says) for how, says in said(app, "tasks") if "a.pack (parcels)" in says]
    assert (found, says.startswith(setting)) == (verdict, True)


def test_an_entry_of_the_schedule_without_a_task_is_named(shop: Shop) -> None:
    schedule = {"nightly": {"task": "shop.gone", "schedule": 60}, "hourly": {"task": "shop.sell", "schedule": 60}}
    [(verdict, says)] = said(shop(beat_schedule=schedule), "tasks")
    assert (verdict, says.endswith(": nightly (shop.gone)")) == ("warn", True)


@pytest.mark.parametrize(
    ("options", "check", "words"),
    [
        ({"WORKER_LOCK_DURATION_MS": 2000, "WORKER_STALLED_INTERVAL_MS": 500}, "leases", "a pause of 1.5 s makes"),
        ({"WORKER_STALLED_INTERVAL_MS": 60_000}, "leases", "WORKER_STALLED_INTERVAL_MS is above the lease"),
        ({"WORKER_INFERRED_DEATH_MS": 1250}, "leases", "a false alarm counts as a stall, and WORKER_MAX_STALLED_COUNT allows 1"),
        ({"JOB_TIMEOUT_MS": 90_000}, "deadlines", "a run may last 90000 ms, a shutdown waits 30000"),
        ({"ENQUEUE_TIMEOUT_MS": 20_000}, "deadlines", "ENQUEUE_TIMEOUT_MS 20000"),
        ({"JOB_KNOWN_AFTER_REMOVAL_MS": 1000}, "ids", "JOB_KNOWN_AFTER_REMOVAL_MS 1000"),
    ],
)
def test_times_that_do_not_fit_each_other_are_found(shop: Shop, options: dict[str, Any], check: str, words: str) -> None:
    warned = [says for verdict, says in said(shop(options), check) if verdict == "warn"]
    assert [words in says for says in warned] == [True], warned
