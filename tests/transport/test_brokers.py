"""Every way to reach Redis, with real servers behind it: the broker URL alone says which, and the transport is always ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from queue_kit import QueueUnavailable
from queue_kit.observe.reading import open_census
from queue_kit.states import State
from queue_kit.store import Ledger
from queue_kit.transport.transport import JobTransport
from queue_kit.worker.operating import control
from queue_kit.worker.operating.letters import dead_letters
from tests.apps import traps_app
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.ports import LOOPBACK, free_port
from tests.support.redis_server import RedisServer
from tests.support.sentinel import NAME, Sentinel
from tests.support.services import service_missing
from tests.support.tls import Certificates, make_certificates
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

APP = "tests.apps.traps_app"


class Shop:
    """An app that sends, and a worker, both of them by the same broker URL and settings of Celery."""

    def __init__(self, start_worker: StartWorker, folder: Path, queue: str) -> None:
        self._start_worker, self.folder, self.queue = start_worker, folder, queue

    def open(self, url: str | list[str], pool: str = "solo", env: dict[str, str] | None = None, **conf: Any) -> Shop:
        self.app: Celery = traps_app.make(url, **conf)  # type: ignore[arg-type]
        self.worker: WorkerProcess = self._start_worker(
            APP,
            broker_url=url if isinstance(url, str) else ";".join(url),
            backend_url="cache+memory://",
            queues=[self.queue],
            pool=pool,
            env={"TRAPS_FOLDER": str(self.folder), "TRAPS_CONF": json.dumps(conf), **(env or {})},
        )
        return self

    def send(self, name: str, **kwargs: Any) -> str:
        return str(self.app.send_task(f"traps.{name}", kwargs=kwargs, queue=self.queue).id)

    def ends(self, job_id: str, within_s: float = 15.0) -> bool:
        census = open_census(self.app)
        job = wait_until(
            lambda: (found := census.job(job_id)) and found.state == State.COMPLETED and found,
            says=f"{job_id} is completed",
            within_s=within_s,
        )
        assert (job.attempts_made, job.stalled_count) == (1, 0)
        return True

    def works(self) -> bool:
        return self.ends(self.send("echo"))


@pytest.fixture
def shop(start_worker: StartWorker, tmp_path: Path, queue_name: str) -> Shop:
    """A shop that is not open yet."""
    return Shop(start_worker, tmp_path, queue_name)


# -- one server -----------------------------------------------------------------------------------------------------------


def test_a_database_number_keeps_jobs_apart(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis()
    assert shop.open(server.url(db=3)).works()
    with server.client(db=3) as used, server.client() as other:
        assert used.zcard(f"qwk:q:{shop.queue}:completed") == 1
        assert other.dbsize() == 0


def test_a_password_without_a_user(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis()
    with server.client() as client:
        client.config_set("requirepass", "s3cret/with:signs@")
        assert shop.open(f"redis://:s3cret%2Fwith%3Asigns%40@{LOOPBACK}:{server.port}/0").works()
        assert shop.worker.stop() == 0
        client.config_set("requirepass", "")
    assert "s3cret" not in shop.worker.logs()


def test_a_user_with_no_more_rights_than_are_needed(own_redis: OwnRedis, shop: Shop) -> None:
    """Its own prefix, and what kombu needs beside it: bindings, remote control, and a look at the plain lists at boot."""
    server = own_redis()
    keys = ["qwk:*", "_kombu.binding*", "*.celery.pidbox*"]
    with server.client() as client:
        client.acl_setuser(
            "shop", enabled=True, passwords=["+pass"], keys=keys, channels=["*"], commands=["+@all", "-@dangerous", "+info"]
        )
    assert shop.open(f"redis://shop:pass@{LOOPBACK}:{server.port}/0").works()
    assert shop.app.control.ping(timeout=5.0, limit=1)
    assert "NOPERM" not in shop.worker.logs()
    assert "no permissions" not in shop.worker.logs()


def test_a_unix_socket_and_its_database(own_redis: OwnRedis, shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "r.sock"
    server = own_redis(options={"unixsocket": str(path)})
    assert shop.open(f"redis+socket://{path}?virtual_host=2").works()
    with server.client(db=2) as client:
        assert client.zcard(f"qwk:q:{shop.queue}:completed") == 1


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and a server's certificate."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls_port(own_redis: OwnRedis, certificates: Certificates) -> int:
    """A port on which a server of the test's own speaks TLS alone."""
    port = free_port()
    files = {"cert-file": certificates.certificate, "key-file": certificates.key, "ca-cert-file": certificates.authority}
    options = {"tls-port": str(port), "tls-auth-clients": "no", **{f"tls-{name}": str(f) for name, f in files.items()}}
    try:
        own_redis(options=options)
    except AssertionError as failure:
        if "Bad directive" in str(failure) or "Failed finding TLS support" in str(failure):
            service_missing("the Redis engine is built without TLS")
        raise
    return port


def test_tls_by_url_with_a_verified_certificate(shop: Shop, tls_port: int, certificates: Certificates) -> None:
    url = f"rediss://{LOOPBACK}:{tls_port}/0?ssl_cert_reqs=required&ssl_ca_certs={certificates.authority}"
    assert shop.open(url).works()
    assert "insecure" not in shop.worker.logs()


def test_tls_by_setting_with_a_verified_certificate(shop: Shop, tls_port: int, certificates: Certificates) -> None:
    verified = {"ssl_cert_reqs": 2, "ssl_ca_certs": str(certificates.authority)}  # CERT_REQUIRED
    assert shop.open(f"rediss://localhost:{tls_port}/0", broker_use_ssl=verified).works()


def test_tls_with_another_authority_is_no_connection(
    tls_port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_certificates(tmp_path_factory.mktemp("other")).authority
    app = traps_app.make(f"rediss://{LOOPBACK}:{tls_port}/0?ssl_cert_reqs=required&ssl_ca_certs={other}")
    with pytest.raises(QueueUnavailable, match="CERTIFICATE_VERIFY_FAILED") as refusal:
        app.send_task("traps.echo", queue="q")
    assert refusal.value.sent == "no"


def test_a_worker_that_cannot_trust_the_server_says_so_and_ends(
    start_worker: StartWorker, tls_port: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_certificates(tmp_path_factory.mktemp("other")).authority
    url = f"rediss://{LOOPBACK}:{tls_port}/0?ssl_cert_reqs=required&ssl_ca_certs={other}"
    worker = start_worker(APP, broker_url=url, backend_url="cache+memory://", wait=False)
    assert worker.wait_exit(within_s=30) == 1
    assert "The worker cannot start: broker_url: TLS with this server fails, see ssl_ca_certs" in worker.logs()
    assert "Traceback" not in worker.logs()


# -- several --------------------------------------------------------------------------------------------------------------


def test_several_urls_fail_over_to_our_transport(own_redis: OwnRedis, shop: Shop) -> None:
    """K11: the first server dies; worker and sender meet at the second, and each connection still has our transport."""
    first, second = own_redis(), own_redis()
    assert shop.open([first.url(), second.url(db=1)], pool="prefork").works()
    first.kill()
    shop.worker.wait_for_log(f"Connected to redis://:**@{LOOPBACK}:{second.port}/1", within_s=20)
    job = wait_until(lambda: shop.send("echo"), says="a send reaches the second", ignoring=QueueUnavailable)
    with second.client(db=1) as client:
        wait_until(lambda: client.zscore(f"qwk:q:{shop.queue}:completed", job), says="the second's job has run")
        assert client.exists(shop.queue) == 0
    with second.client() as client:
        assert client.dbsize() == 0
    assert shop.worker.stop() == 0


def test_the_turn_comes_back_to_the_first_url_with_its_own_port_and_database(own_redis: OwnRedis) -> None:
    """K11: Kombu lets a URL have what the one before it had and it has not."""
    app = traps_app.make("redis://one/;redis+socket:///a/r.sock?virtual_host=2;rediss://u:p@three:99/3")
    seen = []
    with app.connection_for_read() as connection:
        for _ in range(4):
            seen.append((connection.transport_cls, connection.hostname, connection.port, connection.virtual_host))
            assert issubclass(connection.get_transport_cls(), JobTransport)
            connection.maybe_switch_next()
    assert seen[:3] == [
        ("redis", "one", None, "/"),
        ("redis", "socket:///a/r.sock?virtual_host=2", None, "/"),
        ("rediss", "three", 99, "3"),
    ]
    assert seen[3] == seen[0]


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_whoever_reads_goes_where_sends_go_and_stays_there(own_redis: OwnRedis, queue_name: str, fault: str) -> None:
    """K11: pages, limits and dead letters, opened before the first server is lost and after; also when that is back."""
    first, second = own_redis(), own_redis()
    app = traps_app.make(f"{first.url()};{second.url(db=1)}")
    opened = open_census(app)
    assert (opened.queues(), control.limits(queue_name, app).concurrency) == ([], None)
    with second.client(db=1) as client:
        Ledger(client).run(app.queue_kit.moves.limit(queue_name, concurrency=7))
    lose, bring_back = (first.kill, first.start) if fault == "killed" else (first.freeze, first.thaw)
    lose()
    job_id = wait_until(
        lambda: app.send_task("traps.echo", queue=queue_name).id, says="a send arrives", ignoring=QueueUnavailable
    )
    bring_back()
    for census in (opened, open_census(app)):
        assert [job.id for job in census.jobs(queue_name, State.WAITING)] == [job_id]
    assert control.limits(queue_name, app).concurrency == 7
    assert dead_letters(app).ids() == []
    control.remove(job_id, app)
    control.limit(queue_name, concurrency=None, app=app)


def test_a_page_alone_goes_on_to_the_next_url(own_redis: OwnRedis) -> None:
    """K11: nothing was sent in this process, so that the reader is the first to find out."""
    nobody = f"redis://{LOOPBACK}:{free_port()}"
    app = traps_app.make(f"{nobody};{own_redis().url()}")
    assert open_census(app).queues() == []
    assert control.limits("q", app).concurrency is None
    with pytest.raises(QueueUnavailable):
        control.limits("q", traps_app.make(f"{nobody};{nobody}/1"))


@pytest.fixture
def sentinels(own_redis: OwnRedis) -> Iterator[list[Sentinel]]:
    """Two Sentinels of one primary with one replica."""
    primary = own_redis(options={"repl-diskless-sync-delay": "0"})
    own_redis(options={"replicaof": f"{LOOPBACK} {primary.port}"})
    primary.wait_for_replica()
    watching = [Sentinel(primary).start() for _ in range(2)]
    for sentinel in watching:
        wait_until(sentinel.knows_replicas, says="the replica is known", within_s=20)
    yield watching
    for sentinel in watching:
        sentinel.close()


@pytest.mark.crash
def test_sentinels_lead_to_the_new_primary(sentinels: list[Sentinel], shop: Shop) -> None:
    """The primary is killed, with a job running that only then ends: worker and sender follow."""
    primary = sentinels[0].primary
    url = ";".join(f"{sentinel.url}/0" for sentinel in sentinels)
    conf = {"broker_transport_options": {"master_name": NAME}}
    shop.open(url, pool="prefork", env={"WORKER_LOCK_DURATION_MS": "30000"}, **conf)
    assert shop.works()
    held = shop.send("hold", gate="gate")
    wait_until(lambda: f"hold {held}" in (shop.folder / "book").read_text(), says="the job has begun")
    with primary.client() as client:
        assert client.wait(1, 5000) == 1  # the replica has it, too
    primary.kill()
    wait_until(lambda: sentinels[1].knows_primary() != primary.port, says="there is a new primary", within_s=30)
    (shop.folder / "gate").touch()
    wait_until(lambda: shop.send("echo"), says="a send reaches the new primary", ignoring=QueueUnavailable, within_s=20)
    assert shop.ends(held, within_s=20)
    assert shop.works()
    assert shop.worker.stop() == 0


def test_one_dead_sentinel_is_passed_over(sentinels: list[Sentinel], shop: Shop) -> None:
    sentinels[0].close()
    url = ";".join(f"{sentinel.url}/0" for sentinel in sentinels)
    shop.open(url, broker_transport_options={"master_name": NAME})
    assert shop.works()
    assert control.limits(shop.queue, shop.app).concurrency is None


# -- options --------------------------------------------------------------------------------------------------------------


@pytest.mark.leaves("shop:_kombu.binding*", "shop:*.pidbox")
def test_a_global_key_prefix_is_for_what_stock_kombu_keeps(own_redis: OwnRedis, shop: Shop) -> None:
    """Jobs have a prefix of their own; the transport's goes before all else."""
    server: RedisServer = own_redis()
    shop.open(server.url(), broker_transport_options={"global_keyprefix": "shop:"})
    assert shop.works()
    assert shop.app.control.ping(timeout=5.0, limit=1)
    with shop.app.connection_for_write() as connection:
        channel = connection.default_channel
        shop.app.amqp.queues.add(shop.queue)
        shop.worker.stop()
        assert [shop.send("echo"), shop.send("echo")]
        assert channel.queue_declare(shop.queue, passive=True).message_count == 2
        assert channel.queue_purge(shop.queue) == 2
    with server.client() as client:
        assert {key.partition(":")[0] for key in client.keys("*")} == {"qwk", "shop"}


@pytest.mark.leaves("other:*")
def test_a_prefix_of_ours_keeps_two_systems_apart_on_one_database(own_redis: OwnRedis, shop: Shop) -> None:
    server = own_redis()
    stranger = traps_app.make(server.url())
    shop.open(server.url(), env={"QUEUE_PREFIX": "other"})
    stranger.send_task("traps.echo", queue=shop.queue)
    with server.client() as client:
        shop.worker.stop()
        assert client.zcard(f"qwk:q:{shop.queue}:wait") == 1
        assert client.exists("other:reap")


def test_transport_options_of_the_project_win(own_redis: OwnRedis) -> None:
    options = {"socket_timeout": 7.5, "unacked_key": "mine", "client_name": "shop", "health_check_interval": 9}
    app = traps_app.make(own_redis().url(), broker_transport_options=options)
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        assert (channel.socket_timeout, channel.unacked_key, channel.health_check_interval) == (7.5, "mine", 9)
        assert channel.socket_connect_timeout == 1.0
        assert channel.client.client_getname() == "shop"
        own = connection.open_client(250)
        assert own.client_getname() == "shop"
        assert own.connection_pool.connection_kwargs["socket_timeout"] == 0.25
        own.close()
