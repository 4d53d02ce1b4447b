"""The harness itself: if it cannot see a kill, no crash test means anything."""

from __future__ import annotations

import signal

import pytest
import redis
from celery import Celery

from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.leaks import leaked_keys
from tests.support.processes import is_alive
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, stays_true, wait_until


def app_for(url: str) -> Celery:
    """A sending side of its own, so that no test inherits another's connections."""
    app = Celery("sender", broker=url, backend=url)
    app.conf.update(broker_connection_timeout=2, result_backend_always_retry=False)
    return app


def test_a_server_starts_within_half_a_second(own_redis: OwnRedis) -> None:
    watch = Stopwatch()
    server = own_redis()
    assert server.client().ping()
    assert watch.elapsed_ms < 500


def test_a_killed_server_with_its_append_only_file_comes_back_whole(own_redis: OwnRedis) -> None:
    server = own_redis(appendonly=True)
    server.client().set("kept", "yes", ex=60)
    server.restart()
    assert server.client().get("kept") == "yes"


def test_a_killed_server_without_a_file_comes_back_empty_on_the_same_port(own_redis: OwnRedis) -> None:
    server = own_redis()
    port = server.port
    server.client().set("lost", "yes", ex=60)
    server.restart()
    assert server.port == port
    assert server.client().get("lost") is None


def test_a_frozen_server_answers_nothing_until_it_is_thawed(own_redis: OwnRedis) -> None:
    server = own_redis()
    asker = server.client(socket_timeout=0.2, retry=None)
    asker.ping()
    server.freeze()
    with pytest.raises(redis.TimeoutError):
        asker.ping()
    server.thaw()
    assert wait_until(asker.ping, says="the thawed server answers", ignoring=redis.RedisError)


def test_a_full_server_says_so(own_redis: OwnRedis) -> None:
    writer = own_redis(maxmemory="2mb", policy="noeviction").client()

    def fill() -> None:
        for number in range(100):
            writer.set(f"k{number}", "x" * 100_000, ex=60)

    with pytest.raises(redis.OutOfMemoryError):
        fill()


def test_a_worker_runs_a_task_and_stops_in_order(
    redis_server: RedisServer, start_worker: StartWorker, queue_name: str
) -> None:
    worker = start_worker()
    result = app_for(redis_server.url()).send_task("sample.add", (2, 3), queue=queue_name)
    assert result.get(timeout=10) == 5
    assert len(worker.child_pids()) >= 2
    assert worker.stop() == 0
    assert not worker.running


@pytest.mark.leaves("unacked*")
@pytest.mark.crash
def test_the_kill_of_a_worker_is_seen_in_its_exit_code_and_takes_its_children(
    client: redis.Redis, redis_server: RedisServer, start_worker: StartWorker, queue_name: str
) -> None:
    worker = start_worker()
    app_for(redis_server.url()).send_task("sample.hold", ("gate",), queue=queue_name, expires=60)
    child = int(str(wait_until(lambda: client.lindex("gate:begun", 0), says="the task begins")))
    client.expire("gate:begun", 60)
    assert child in worker.child_pids()
    worker.sigkill()
    assert worker.wait_exit() == -signal.SIGKILL
    wait_until(lambda: not is_alive(child), says="the child dies with its parent")


@pytest.mark.crash
def test_a_stopped_worker_runs_nothing_until_it_is_continued(
    redis_server: RedisServer, start_worker: StartWorker, queue_name: str
) -> None:
    worker = start_worker(pool="solo")
    worker.sigstop()
    result = app_for(redis_server.url()).send_task("sample.add", (1, 1), queue=queue_name)
    stays_true(lambda: not result.ready(), says="the task does not run", for_s=0.5)
    worker.sigcont()
    assert result.get(timeout=10) == 2


@pytest.mark.crash
def test_a_killed_pool_child_is_replaced(start_worker: StartWorker) -> None:
    worker = start_worker(concurrency=1)
    first = worker.child_pids()
    worker.kill_child(first[-1])
    wait_until(lambda: set(worker.child_pids()) - set(first), says="the pool has a new child")


def test_a_cut_proxy_refuses_and_a_restored_one_serves_again(redis_server: RedisServer, own_proxy: OwnProxy) -> None:
    proxy = own_proxy()
    through = redis.Redis.from_url(proxy.url(), retry=None)
    assert through.ping()
    proxy.cut()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            through.ping()
    proxy.restore()
    assert through.ping()


def test_a_stalled_proxy_holds_back_without_closing(own_proxy: OwnProxy) -> None:
    proxy = own_proxy()
    through = redis.Redis.from_url(proxy.url(), retry=None, socket_timeout=0.2)
    assert through.ping()
    proxy.stall()
    with pytest.raises(redis.TimeoutError):
        through.ping()
    proxy.resume()
    assert through.ping()


def test_a_proxy_that_loses_answers_has_carried_the_request_out(own_proxy: OwnProxy, client: redis.Redis) -> None:
    proxy = own_proxy()
    through = redis.Redis.from_url(proxy.url(), retry=None)
    through.ping()
    proxy.lose_answers()
    with pytest.raises(redis.ConnectionError):
        through.incr("counter")
    assert client.get("counter") == "1"
    client.delete("counter")


def test_keys_that_nothing_cleans_up_are_named(own_redis: OwnRedis) -> None:
    server = own_redis()
    reader = server.client()
    reader.set("with-a-ttl", "1", ex=60)
    reader.set("stray", "1")
    reader.hset("qwk:job:listed", "state", "completed")
    reader.rpush("qwk:job:listed:runs", "{}")
    reader.zadd("qwk:q:mail:completed", {"listed": 1, "ghost": 2})
    reader.hset("qwk:job:unlisted", "state", "completed")
    expected = [
        "qwk:job:unlisted (hash)",
        "stray (string)",
        "qwk:q:mail:completed names ghost, which has no record",
    ]
    assert leaked_keys(reader) == expected
    assert leaked_keys(reader, allowed=["stray", "qwk:job:unl*", "*ghost*"]) == []
    reader.flushall()


def test_waiting_says_what_was_not_seen() -> None:
    with pytest.raises(AssertionError, match=r"the list is filled: not within 0\.05 s; last seen: \[\]"):
        wait_until(list, says="the list is filled", within_s=0.05)
