"""The teller, whose Redis or whose result backend does not answer: those who wait are told as soon as it does again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from redis.exceptions import RedisError

from queue_kit.worker.operating import control
from queue_kit.worker.roles.teller import Teller
from queue_kit.worker.settling.counts import Counts
from queue_kit.worker.settling.dead_letter import DeadLetterHandler
from tests.apps import crash_app
from tests.support.fixtures import OwnProxy, OwnRedis
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash
NOTES = "qwk:notes"


@contextmanager
def teller_of(app: Celery, url: str) -> Iterator[Teller]:
    """A teller of this process, on real connections, which ticks when the test says so."""
    connection: Any = crash_app.make(url).connection_for_write()

    def open_client() -> Any:
        return connection.open_client(300)

    teller = Teller(open_client, app.queue_kit, app, DeadLetterHandler(open_client, app.queue_kit, Counts()))
    teller.tick()
    yield teller
    teller.leave()


def untold(app: Celery) -> str:
    """A job that is cancelled as it waits: a teller has to tell so."""
    job_id = str(app.send_task("crash.plain", queue="celery").id)
    control.cancel(job_id, app)
    return job_id


def lost_answer(server: RedisServer, proxy: TcpProxy) -> Callable[[], None]:
    proxy.lose_answers(1)
    return proxy.restore


def frozen(server: RedisServer, proxy: TcpProxy) -> Callable[[], None]:
    """What was sent meanwhile is carried out at the thaw, after its sender has given up."""
    server.freeze()
    return server.thaw


@pytest.mark.parametrize("fault", [lost_answer, frozen])
def test_what_redis_gave_and_nobody_got_is_told_at_the_next_tick(
    own_redis: OwnRedis, own_proxy: OwnProxy, fault: Callable[..., Callable[[], None]]
) -> None:
    """Given a note that its teller asks for; Redis gives it and the answer is lost; then it is told once Redis answers, and
    not a minute later."""
    server = own_redis()
    proxy = own_proxy(server)
    app = crash_app.make(server.url())
    app.conf.result_backend = server.url(db=1)
    with teller_of(app, proxy.url()) as teller, server.client() as client:
        job_id = untold(app)
        (_, due_at_ms), = client.zrange(NOTES, 0, -1, withscores=True)
        restored = fault(server, proxy)
        with pytest.raises(RedisError):
            teller.tick()
        restored()
        wait_until(lambda: client.zscore(NOTES, job_id) > due_at_ms + 50_000, says="Redis has given it")
        wait_until(lambda: teller.tick() or not client.exists(NOTES), says="it is struck out")
    assert app.AsyncResult(job_id).state == "REVOKED"


def test_what_could_not_be_told_is_tried_again_soon_and_then_less_and_less_often(
    own_redis: OwnRedis, own_proxy: OwnProxy
) -> None:
    """Given a result backend that is away for a moment; then after a second, not a minute."""
    server, results = own_redis(), own_redis()
    proxy = own_proxy(results)
    app = crash_app.make(server.url())
    app.conf.result_backend = proxy.url()
    app.conf.result_backend_transport_options = {"retry_policy": {"max_retries": 0}}
    with teller_of(app, server.url()) as teller, server.client() as client:
        job_id = untold(app)
        proxy.cut()
        waits = []
        for _ in range(8):
            client.zadd(NOTES, {job_id: 0})  # its time has come
            teller.tick()
            waits.append(round(client.zscore(NOTES, job_id) / 1000 - client.time()[0]))
        assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60], abs=1)
        proxy.restore()
        client.zadd(NOTES, {job_id: 0})
        teller.tick()
        assert not client.exists(NOTES)
    assert app.AsyncResult(job_id).state == "REVOKED"
