"""A primary dies under load, and real Sentinels make its replica the next one: what replication had not carried is lost, and
nothing else; with ENQUEUE_WAIT_REPLICAS nothing that was accepted is."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from queue_kit import QueueUnavailable
from queue_kit.observe.reading import open_census
from queue_kit.states import State
from tests.apps import crash_app
from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.leaks import assert_nothing_leaked
from tests.support.ports import LOOPBACK
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.sentinel import NAME, Sentinel
from tests.support.waiting import wait_until
from tests.worker.stage import Stage

pytestmark = pytest.mark.crash


@dataclass
class Pair:
    """A primary, its replica behind `link`, and Sentinels. `url` is what an app is told."""

    primary: RedisServer
    replica: RedisServer
    link: TcpProxy
    sentinels: list[Sentinel] = field(default_factory=list)

    @property
    def url(self) -> str:
        return ";".join(f"{sentinel.url}/0" for sentinel in self.sentinels)

    def fail_over(self) -> None:
        """Kill the primary, and whatever replication is still under way; wait until the replica is the primary."""
        self.primary.kill()
        self.link.cut()
        wait_until(
            lambda: {sentinel.knows_primary() for sentinel in self.sentinels} == {self.replica.port},
            says="the replica is the primary", within_s=30,
        )  # fmt: skip


@pytest.fixture
def pair(own_redis: OwnRedis, own_proxy: OwnProxy) -> Iterator[Pair]:
    primary = own_redis(options={"repl-diskless-sync-delay": "0"})
    link = own_proxy(primary)
    pair = Pair(primary, own_redis(options={"replicaof": f"{LOOPBACK} {link.port}"}), link)
    primary.wait_for_replica()
    with ExitStack() as stack:
        for _ in range(2):
            pair.sentinels.append(Sentinel(primary).start())
            stack.callback(pair.sentinels[-1].close)
        for sentinel in pair.sentinels:
            wait_until(sentinel.knows_replicas, says="the replica is known", within_s=20)
        yield pair


class Load:
    """Sends jobs one after the other, on a thread; `accepted` are those that were."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.accepted: list[str] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.is_set():
            send(self._stage, self.accepted)

    def await_more(self, number: int) -> None:
        """Return once so many more were accepted."""
        most = len(self.accepted) + number
        wait_until(lambda: len(self.accepted) >= most, says=f"{number} more are accepted", within_s=30)


def send(stage: Stage, accepted: list[str]) -> None:
    """Send one job; note it if that was accepted."""
    job_id = uuid.uuid4().hex
    try:
        stage.app.send_task("crash.quick", queue=stage.queue, task_id=job_id)
    except QueueUnavailable:
        return
    accepted.append(job_id)


@pytest.fixture
def load_stage(pair: Pair, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> Stage:
    """A stage on the primary whose app and workers find it by way of the Sentinels."""
    stage = Stage(pair.primary.url(), queue_name, tmp_path, start_worker, {"CRASH_PRIMARY": NAME})
    stage.app = _app(pair)
    stage.census = open_census(stage.app)
    return stage


def _app(pair: Pair, **settings: int) -> crash_app.Celery:
    app = crash_app.make(pair.url, **settings)
    app.conf.broker_transport_options = {"master_name": NAME}
    return app


def _settled(stage: Stage, job_ids: list[str]) -> set[State]:
    return {job.state for job in stage.await_ends(job_ids, within_s=40)}


def test_a_failover_loses_what_replication_had_not_carried_and_nothing_else(load_stage: Stage, pair: Pair) -> None:
    """SPEC 12: given jobs that run, and a stream of sends; replication hangs, and what is accepted from then on is with the
    primary alone. Killed: the primary. Then the jobs of before all end, and those of between are gone, every one."""
    stage = load_stage
    stage.workers({"broker_url": pair.url, "concurrency": 2}, {"broker_url": pair.url, "pool": "threads"})
    held = stage.send("hold", gate="go")
    stage.await_starts(held)
    with Load(stage) as load:
        load.await_more(100)
    carried = list(load.accepted)
    with pair.primary.client() as client:
        assert client.wait(1, 5000) == 1
    pair.link.stall()
    uncarried: list[str] = []
    while len(uncarried) < 30:
        send(stage, uncarried)
    pair.fail_over()
    stage.open("go")
    with Load(stage) as load:
        load.await_more(30)
    assert _settled(stage, [held, *carried, *load.accepted]) == {State.COMPLETED}
    assert [stage.census.job(job_id) for job_id in uncarried] == [None] * len(uncarried)
    for job_id in (held, *carried, *load.accepted):
        stage.assert_explained(job_id)
    assert_nothing_leaked(pair.replica)


def test_who_waits_for_a_replica_loses_nothing_that_was_accepted(load_stage: Stage, pair: Pair) -> None:
    """SPEC 13: the same, sent with ENQUEUE_WAIT_REPLICAS=1: what replication does not carry is not accepted; and the primary
    is killed in the middle of a stream of sends, too."""
    stage = load_stage
    stage.app = _app(pair, ENQUEUE_WAIT_REPLICAS=1, ENQUEUE_TIMEOUT_MS=500)
    stage.workers({"broker_url": pair.url, "concurrency": 2}, {"broker_url": pair.url, "pool": "gevent"})
    with Load(stage) as load:
        load.await_more(50)
        pair.link.stall()
        refused: list[str] = []
        for _ in range(3):
            send(stage, refused)
        assert refused == []
        pair.link.resume()
        load.await_more(50)
        pair.fail_over()
    stage.app = _app(pair)
    after: list[str] = []
    wait_until(lambda: send(stage, after) or after, says="the new primary takes jobs", within_s=20)
    assert _settled(stage, load.accepted + after) == {State.COMPLETED}
    for job_id in load.accepted:
        stage.assert_explained(job_id)
