"""A shop that the doctor examines: its app on a Redis of choice, what is said of it, and a worker that takes jobs and dies.

Without it each half of the doctor's tests would make them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from celery import Celery

from queue_kit import install
from queue_kit.observe.doctor import Finding
from queue_kit.store import Keys, Room, Traits
from queue_kit.worker.operating.doctor import examine_app
from tests.support.redis_server import RedisServer

SHORT = {"WORKER_LOCK_DURATION_MS": 400, "WORKER_STALLED_INTERVAL_MS": 50, "REDIS_TIMEOUT_MS": 400}
KEYS = Keys("qwk")
Shop = Callable[..., Celery]


def sell() -> None:
    """What a task of the shop does."""


@pytest.fixture
def shop(redis_server: RedisServer) -> Iterator[Shop]:
    """Make an app of queue_kit on the shared Redis, or on another."""
    made: list[Celery] = []

    def make(options: dict[str, Any] | None = None, url: str = "", **conf: Any) -> Celery:
        app = Celery("shop", broker=url or redis_server.url(), set_as_current=False)
        app.conf.update(conf)
        install(app, options)
        app.task(name="shop.sell", shared=False)(sell)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


def findings(app: Celery, check: str, **options: Any) -> list[Finding]:
    """What is said of one check; no worker is waited for."""
    found = examine_app(app, **{"wait_s": 0.02, **options})
    return [finding for finding in found if finding.check == check]


def said(app: Celery, check: str, **options: Any) -> list[tuple[str, str]]:
    return [(finding.verdict.value, finding.says) for finding in findings(app, check, **options)]


def claim(app: Celery, queue: str = "celery", most: int = 10) -> list[Any]:
    """Take jobs as a worker would that is never heard of again."""
    kit = app.queue_kit  # type: ignore[attr-defined]
    call = kit.moves.claim("gone", "gone.1", Room(most, most, 10, frozenset()), Traits(), [queue])
    return kit.sender.run(call).jobs  # type: ignore[no-any-return]


def fail(app: Celery, number: int) -> None:
    for _ in range(number):
        app.send_task("shop.sell")
    kit = app.queue_kit  # type: ignore[attr-defined]
    for one in claim(app):
        kit.sender.run(kit.moves.fail(one.id, one.token, "exhausted", "broken", error_class="ValueError"))


def fills(client: redis.Redis) -> bool:
    """Put a little more in; answer whether Redis is full."""
    try:
        client.append("filler", "x" * 20_000)
    except redis.exceptions.OutOfMemoryError:
        return True
    return False
