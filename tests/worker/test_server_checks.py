"""What a worker makes of the server that it finds: too old, a cluster, evicting, a replica, or one that will not have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from queue_kit import QueueUnavailable
from queue_kit.settings import Settings
from queue_kit.worker.server import Verdict, check_server, judge
from tests.apps import traps_app
from tests.support.events import traced
from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.waiting import stays_true, wait_until
from tests.support.worker_process import WorkerProcess

APP = "tests.apps.traps_app"
PRODUCTION = {"PRODUCTION": "true"}

Boot = Callable[..., WorkerProcess]


@pytest.fixture
def boot(start_worker: StartWorker, tmp_path: Path) -> Boot:
    """Start a worker of the traps app with nothing but a URL and settings of ours."""

    def start(url: str, env: dict[str, str] | None = None, **options: Any) -> WorkerProcess:
        env = {"TRAPS_FOLDER": str(tmp_path), **(env or {})}
        return start_worker(APP, broker_url=url, backend_url="cache+memory://", env=env, **options)

    return start


def refusal(worker: WorkerProcess) -> str:
    """Wait for a worker that cannot start, and return the one message that says why."""
    assert worker.wait_exit(within_s=30) == 1
    assert "Traceback" not in worker.logs()
    [line] = [line for line in worker.logs().splitlines() if "ERROR" in line or "CRITICAL" in line]
    return line.partition("The worker cannot start: ")[2]


# -- the judgement --------------------------------------------------------------------------------------------------------


@pytest.fixture
def info(client: redis.Redis) -> dict[str, Any]:
    """What a real server says of itself."""
    return dict(client.info())


@pytest.mark.parametrize("version", ["6.2.0", "6.2.14", "7.0.15", "8.10.1", "10.0", "255.255.255"])
def test_a_server_that_is_new_enough_is_fit(info: dict[str, Any], version: str) -> None:
    assert judge({**info, "redis_version": version}, Settings()) == Verdict()


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.20", "6.1.240", "0", ""])
def test_a_server_that_is_too_old_is_not(info: dict[str, Any], version: str) -> None:
    verdict = judge({**info, "redis_version": version}, Settings())
    assert verdict.refusal == f"broker_url: Redis {version} is too old; 6.2 or newer, or Valkey, is needed"
    assert not verdict.may_pass


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl"])
def test_an_evicting_policy_is_advised_against_and_refused_in_production(info: dict[str, Any], policy: str) -> None:
    """H7."""
    evicting = {**info, "maxmemory_policy": policy}
    advice = f"maxmemory-policy: {policy} lets Redis delete jobs when memory is full; set it to noeviction"
    assert judge(evicting, Settings()) == Verdict(advice=advice)
    assert judge(evicting, Settings(production=True)).refusal == f"{advice}, or accept the loss with ALLOW_EVICTION"
    assert judge(evicting, Settings(production=True, allow_eviction=True)) == Verdict(advice=advice)


def test_a_cluster_is_refused_and_a_replica_may_become_a_primary(info: dict[str, Any]) -> None:
    assert judge({**info, "redis_mode": "cluster"}, Settings()).refusal.startswith("broker_url: a Redis Cluster")
    replica = judge({**info, "role": "slave"}, Settings())
    assert (replica.refusal.partition(";")[0], replica.may_pass) == ("broker_url: this Redis is a replica", True)


def test_a_user_who_may_not_ask_gets_advice(client: redis.Redis, redis_server: RedisServer) -> None:
    client.acl_setuser("blind", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all", "-info"])
    with redis_server.client(username="blind", password="") as blind:
        assert "allow +info" in check_server(blind, Settings(production=True)).advice
    client.acl_deluser("blind")


# -- at boot --------------------------------------------------------------------------------------------------------------


def test_a_worker_refuses_a_cluster_by_name(own_redis: OwnRedis, boot: Boot) -> None:
    server = own_redis(options={"cluster-enabled": "yes", "cluster-port": str(free_port())})
    said = refusal(boot(server.url(), wait=False))
    assert said == "broker_url: a Redis Cluster is not supported; use one server, or Sentinel"


def test_a_worker_refuses_a_server_that_is_too_old(own_redis: OwnRedis, own_proxy: OwnProxy, boot: Boot) -> None:
    server = own_redis()
    proxy = own_proxy(server)
    proxy.alter_answers(older(server))
    said = refusal(boot(proxy.url(), wait=False))
    assert said.startswith("broker_url: Redis 5.")
    assert said.endswith("is too old; 6.2 or newer, or Valkey, is needed")


def older(server: RedisServer) -> dict[bytes, bytes]:
    """The words that make a server say that it is a Redis 5."""
    with server.client() as client:
        said = f"redis_version:{client.info()['redis_version']}".encode()
    return {said: b"redis_version:5" + said[len(b"redis_version:7") :]}


def test_a_worker_refuses_an_evicting_server_in_production(own_redis: OwnRedis, boot: Boot) -> None:
    """H7."""
    server = own_redis(policy="allkeys-lru")
    said = refusal(boot(server.url(), PRODUCTION, wait=False))
    assert said.startswith("maxmemory-policy: allkeys-lru lets Redis delete jobs when memory is full; set it to noevict")


def test_a_worker_warns_of_an_evicting_server_elsewhere_once(own_redis: OwnRedis, boot: Boot) -> None:
    """H7."""
    server = own_redis(policy="volatile-lru")
    worker = boot(server.url())
    with server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)
        worker.wait_for_log("Connection to broker lost")
        wait_until(lambda: worker.logs().count("Connected to") == 2, says="the worker has connected again")
    warned = [line for line in worker.logs().splitlines() if "maxmemory-policy: volatile-lru" in line]
    assert len(warned) == 1
    assert "WARNING" in warned[0]


@pytest.mark.parametrize("way", ["app:wrong@", "nobody:right@", "nopower:right@"])
def test_a_worker_whom_the_server_will_not_have_says_so_and_ends(own_redis: OwnRedis, boot: Boot, way: str) -> None:
    server = own_redis()
    with server.client() as client:
        client.acl_setuser("app", enabled=True, passwords=["+right"], keys="*", channels="*", commands=["+@all"])
        client.acl_setuser("nopower", enabled=True, passwords=["+right"], keys="*", commands=["-@all"])
    worker = boot(server.url().replace("redis://", f"redis://{way}"), wait=False)
    said = refusal(worker)
    assert said.startswith("broker_url: the server refuses its user, password or database: ")
    assert "wrong@" not in worker.logs()
    assert "right@" not in worker.logs()


def test_a_worker_without_the_password_that_is_asked_for_says_so_and_ends(own_redis: OwnRedis, boot: Boot) -> None:
    server = own_redis()
    with server.client() as client:
        client.config_set("requirepass", "secret")
        said = refusal(boot(server.url(), wait=False))
        client.config_set("requirepass", "")
    assert said.startswith("broker_url: the server refuses its user, password or database: Authentication required")


def test_a_worker_with_a_database_that_is_not_there_says_so_and_ends(own_redis: OwnRedis, boot: Boot) -> None:
    server = own_redis(options={"databases": "4"})
    said = refusal(boot(server.url(db=4), wait=False))
    assert said == "broker_url: the server refuses its user, password or database: DB index is out of range"


def test_a_worker_says_at_boot_what_waits_where_only_stock_workers_look(
    redis_server: RedisServer, client: redis.Redis, start_worker: StartWorker, queue_name: str
) -> None:
    """K22: five priorities of one producer without `install`, in the four lists of the stock transport."""
    stock = traps_app.Celery("shop", broker=redis_server.url(), set_as_current=False)
    for priority in (0, 3, 5, 6, 9):
        stock.send_task("traps.echo", queue=queue_name, priority=priority)
    client.hset("odd", "field", "a key of another kind under a queue's name")
    worker = start_worker(APP, queues=[queue_name, f"{queue_name}-quiet", "odd"])
    told = [line.partition("WARNING/MainProcess] ")[2] for line in worker.logs().splitlines() if "plain Redis list" in line]
    assert len(told) == 1
    assert told[0].startswith(f"queue {queue_name}: 5 messages wait in its plain Redis list, where a producer without ")
    assert client.llen(queue_name) == 1
    client.delete("odd", *client.keys(f"{queue_name}*"))


# -- later ----------------------------------------------------------------------------------------------------------------


class Later:
    """A worker of two slots in production, with one job running, on a server that turns unfit behind its back."""

    def __init__(self, server: RedisServer, url: str, boot: Boot, folder: Path, queue: str, env: dict[str, str]) -> None:
        self.client, self.queue, self.folder = server.client(), queue, folder
        self.app = traps_app.make(server.url())
        self.worker = boot(url, env, queues=[queue], concurrency=2)
        self.running = self.send("hold", gate="gate")
        wait_until((folder / "book").exists, says="the job has begun")

    def send(self, name: str, **kwargs: Any) -> str:
        return str(self.app.send_task(f"traps.{name}", kwargs=kwargs, queue=self.queue).id)

    def told(self, text: str) -> int:
        return sum(text in line for line in self.worker.logs().splitlines() if "ERROR" in line)

    def assert_taking_nothing(self, text: str) -> str:
        """The worker has said once why; what waits is not taken, what runs ends. Returns the job that waits."""
        wait_until(lambda: self.told(text), says=f"the worker says {text!r}")
        waiting = self.send("echo")
        stays_true(lambda: traced(self.client, self.queue, waiting, "waiting"), says="the job waits", for_s=1.5)
        (self.folder / "gate").touch()
        wait_until(
            lambda: traced(self.client, self.queue, self.running, "active", "completed"), says="the running job ends"
        )
        assert self.told(text) == 1
        assert self.worker.running
        return waiting

    def assert_taking_again(self, waiting: str) -> None:
        wait_until(lambda: traced(self.client, self.queue, waiting, "completed"), says="the job that waited has run")
        assert "jobs are taken again" in self.worker.logs()
        assert self.worker.stop() == 0


def test_a_policy_that_turns_evicting_stops_the_claiming_until_it_is_put_right(
    own_redis: OwnRedis, boot: Boot, tmp_path: Path, queue_name: str
) -> None:
    server = own_redis()
    later = Later(server, server.url(), boot, tmp_path, queue_name, PRODUCTION)
    later.client.config_set("maxmemory-policy", "allkeys-lru")
    waiting = later.assert_taking_nothing("no more jobs are taken: maxmemory-policy: allkeys-lru")
    later.client.config_set("maxmemory-policy", "noeviction")
    later.assert_taking_again(waiting)


def test_a_server_that_comes_back_older_stops_the_claiming(
    own_redis: OwnRedis, own_proxy: OwnProxy, boot: Boot, tmp_path: Path, queue_name: str
) -> None:
    server = own_redis()
    proxy = own_proxy(server)
    later = Later(server, proxy.url(), boot, tmp_path, queue_name, {})
    proxy.alter_answers(older(server))
    proxy.reset()
    waiting = later.assert_taking_nothing("no more jobs are taken: broker_url: Redis 5.")
    proxy.restore()
    later.assert_taking_again(waiting)


def test_a_primary_that_turns_into_a_replica_stops_the_claiming_until_it_is_one_again(
    own_redis: OwnRedis, boot: Boot, tmp_path: Path, queue_name: str
) -> None:
    server, other = own_redis(), own_redis()
    worker = boot(server.url(), queues=[queue_name])
    with server.client() as client:
        client.replicaof("127.0.0.1", str(other.port))
        worker.wait_for_log("no more jobs are taken: broker_url: this Redis is a replica; name the primary")
        wait_until(lambda: worker.logs().count("Connected to") == 2, says="it has connected once more")
        stays_true(lambda: worker.logs().count("Connected to") == 2, says="it does not connect again", for_s=1.5)
        client.replicaof("no", "one")
        worker.wait_for_log("jobs are taken again")
        app = traps_app.make(server.url())
        job = app.send_task("traps.echo", queue=queue_name)
        wait_until(lambda: traced(client, queue_name, job.id, "completed"), says="the worker works again")
    assert worker.logs().count("no more jobs are taken") == 1
    assert worker.stop() == 0


def test_a_user_who_loses_his_rights_is_let_in_again_without_a_crash(
    own_redis: OwnRedis, boot: Boot, queue_name: str
) -> None:
    server = own_redis()
    with server.client() as client:
        client.acl_setuser("app", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all"])
        worker = boot(server.url().replace("redis://", "redis://app:any@"), queues=[queue_name])
        client.acl_setuser("app", enabled=True, commands=["-@all"])
        client.client_kill_filter(_type="normal", skipme=True)
        worker.wait_for_log("no permissions")
        stays_true(lambda: worker.running, says="the worker goes on", for_s=1.5)
        client.acl_setuser("app", enabled=True, commands=["+@all"])
        wait_until(lambda: worker.logs().count("Connected to") == 2, says="the worker has connected again")
        job = traps_app.make(server.url()).send_task("traps.echo", queue=queue_name)
        wait_until(lambda: traced(client, queue_name, job.id, "completed"), says="the worker works again")
    assert worker.logs().count("cannot connect") < 10
    assert worker.stop() == 0


def test_a_worker_that_boots_on_a_full_server_works_off_what_waits(
    own_redis: OwnRedis, boot: Boot, queue_name: str
) -> None:
    """H6: not even the binding of its queue fits in; the jobs that wait are what fills the memory."""
    server = own_redis(maxmemory="4mb")
    app, jobs = traps_app.make(server.url()), []

    def fill() -> None:
        while True:
            jobs.append(app.send_task("traps.echo", kwargs={"value": "x" * 4000}, queue=queue_name).id)

    with pytest.raises(QueueUnavailable):
        fill()
    worker = boot(server.url(), queues=[queue_name])
    with server.client() as client:
        wait_until(lambda: client.zcard(f"qwk:q:{queue_name}:wait") == 0, says="all jobs are taken", within_s=30)
        wait_until(lambda: traced(client, queue_name, jobs[-1], "completed"), says="the last job has run")
    assert "could not be bound" in worker.logs()
    assert worker.stop() == 0
