"""What a worker holds of connections, files, timers and jobs, and that none of it grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.apps import traps_app
from tests.support.fixtures import OwnRedis, StartWorker
from tests.support.redis_server import RedisServer
from tests.support.sentinel import NAME, Sentinel
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

APP = "tests.apps.traps_app"

#: Of the transport's own timers: what is cancelled leaves memory when it would have been due.
SOON = {"health_check_interval": 1, "unacked_restore_interval": 1, "reauth_check_interval": 1}


class Watched:
    """A worker on a server of its own, and what it says that it holds."""

    def __init__(
        self, server: RedisServer, start_worker: StartWorker, folder: Path, queue: str, pool: str, url: str = "", **conf: Any
    ) -> None:
        self.url, self.queue, self.client = url or server.url(), queue, server.client()
        self.app = traps_app.make(server.url())
        options = {"broker_transport_options": {**SOON, **conf}}
        env = {"TRAPS_FOLDER": str(folder), "TRAPS_CONF": json.dumps(options)}
        self.worker: WorkerProcess = start_worker(
            APP, broker_url=self.url, backend_url="cache+memory://", queues=[queue], pool=pool, env=env
        )

    def holdings(self) -> dict[str, int]:
        """Ask by an app of its own: its connections were cut with all others."""
        wait_until(lambda: self.client.pubsub_numpat() > 0, says="it listens to remote control")
        app = traps_app.make(self.url)
        try:
            [answer] = app.control.broadcast("holdings", reply=True, timeout=10, limit=1)
        finally:
            app.pool.force_close_all()
        return dict(answer[self.worker.hostname])

    def connections(self) -> int:
        """Connections that are the worker's own: all but this client's, when nobody else is there."""
        return len(self.client.client_list()) - 1

    def cut(self) -> None:
        """Have the server close every connection of the worker, and wait until it is back."""
        before = self.worker.logs().count("Connected to")
        self.client.client_kill_filter(_type="normal", skipme=True)
        self.client.client_kill_filter(_type="pubsub", skipme=True)
        wait_until(lambda: self.worker.logs().count("Connected to") > before, says="the worker has connected again")
        wait_until(lambda: self.client.pubsub_numpat() > 0, says="it listens to remote control again")


@pytest.fixture
def watch(own_redis: OwnRedis, start_worker: StartWorker, tmp_path: Path, queue_name: str) -> Callable[[str], Watched]:
    """Start a watched worker with this pool."""
    return lambda pool: Watched(own_redis(), start_worker, tmp_path, queue_name, pool)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_an_idle_worker_has_a_dozen_connections_at_most(watch: Callable[[str], Watched], pool: str) -> None:
    """Stock Celery has six: the claims', remote control's, and four of the client's pools. Ours add one for each role."""
    watched = watch(pool)
    assert watched.holdings()["jobs"] == 0
    wait_until(lambda: watched.connections() <= 13, says="no more than that", within_s=5)
    assert watched.connections() >= 5


@pytest.mark.crash
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_twenty_reconnects_leave_nothing_behind(watch: Callable[[str], Watched], pool: str) -> None:
    watched = watch(pool)
    for _ in range(2):  # what is opened at first use
        watched.cut()
    watched.holdings()
    first, connections = watched.holdings(), watched.connections()
    for _ in range(20):
        watched.cut()

    def settled() -> bool:
        watched.cut()
        now = watched.holdings()
        grown = {name: (first[name], count) for name, count in now.items() if count > first[name] + 8}  # of 20
        assert not grown, grown
        return watched.connections() <= connections + 1

    wait_until(settled, says="as much is held as before", ignoring=AssertionError, within_s=15, every_s=1.0)
    job = watched.app.send_task("traps.echo", queue=watched.queue)
    wait_until(lambda: watched.client.zscore(f"qwk:q:{watched.queue}:completed", job.id), says="it works on")
    assert watched.worker.stop() == 0


@pytest.mark.crash
def test_reconnects_leave_no_connections_at_the_sentinels(
    own_redis: OwnRedis, start_worker: StartWorker, tmp_path: Path, queue_name: str
) -> None:
    primary = own_redis()
    sentinel = Sentinel(primary).start()
    try:
        way = {"url": f"{sentinel.url}/0", "master_name": NAME}
        watched = Watched(primary, start_worker, tmp_path, queue_name, "threads", **way)
        with sentinel.client() as asker:
            counts = []
            for _ in range(12):
                watched.cut()
                counts.append(len(asker.client_list()))
        assert max(counts[6:]) <= max(counts[:6]) + 4, counts
        assert watched.worker.stop() == 0
    finally:
        sentinel.close()


def test_jobs_of_every_ending_are_forgotten(watch: Callable[[str], Watched]) -> None:
    """Completed, failed, retried, unknown, malformed, without a body that can be read, expired."""
    watched = watch("prefork")
    watched.app.amqp.queues.add(watched.queue)
    sends: list[dict[str, Any]] = [
        {"name": "traps.echo"}, {"name": "traps.echo", "expires": -1}, {"name": "traps.out_of_memory"},
        {"name": "traps.exit"}, {"name": "traps.nobody_knows"},
    ]  # fmt: skip
    for number in range(60):
        options = sends[number % len(sends)]
        watched.app.send_task(queue=watched.queue, **options)
    with watched.app.connection_for_write() as connection:
        producer = connection.Producer()
        for body, headers in [("{", {"task": "traps.echo"}), ("[]", {}), ("[]", {"task": "traps.echo", "id": None})]:
            options = {"content_type": "application/json", "content_encoding": "utf-8", "headers": headers}
            producer.publish(body, routing_key=watched.queue, serializer=None, **options)
    of_queue = f"qwk:q:{watched.queue}:"

    def over() -> bool:
        parts = ("wait", "active", "reserved", "delayed")
        ended = sum(watched.client.zcard(of_queue + part) for part in ("completed", "failed", "cancelled"))
        return ended == 63 and not any(watched.client.zcard(of_queue + part) for part in parts)

    wait_until(over, says="all have ended", within_s=30)
    held = wait_until(
        lambda: (now := watched.holdings()) and not (now["jobs"] or now["settles"] or now["running"]) and now,
        says="nothing is held",
    )
    assert held["jobs"] == 0


def test_a_channel_that_only_lends_its_way_to_connect_registers_nothing(own_redis: OwnRedis) -> None:
    """The clients of the roles are made by such a channel: nothing of it may stay in hooks for forks, or in the poller."""
    server = own_redis()
    app = traps_app.make(server.url())
    with app.connection_for_read() as connection:
        clients: list[redis.Redis] = [connection.open_client(500) for _ in range(50)]
        for client in clients:
            client.ping()
        assert connection.transport.channels == []
        assert not connection.transport.cycle._channels
        for client in clients:
            client.close()
    with server.client() as client:
        wait_until(lambda: len(client.client_list()) <= 2, says="their connections are closed")
