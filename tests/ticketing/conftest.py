"""Fixtures of ticketing's tests: the site, the demo event, and a worker that shares the site's database and queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dj_database_url
import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection, connections

from tests.conftest import StartWorker
from tests.support.databases import database_url, postgres  # noqa: F401
from tests.support.redis_server import RedisServer
from tests.support.site import BROKER_URL, queue, queue_down, site, unused_port  # noqa: F401
from tests.support.worker_process import WorkerProcess
from ticketing.models import Event, Seat

StartSiteWorker = Callable[..., WorkerProcess]


@pytest.fixture(autouse=True)
def fresh_cache() -> None:
    """What one test saw of the queue is nothing to the next."""
    cache.clear()


@pytest.fixture
def event(db: None) -> Event:
    """The demo event, all seats free."""
    call_command("load_demo_event", verbosity=0)
    return Event.objects.select_related("venue").get()


@pytest.fixture
def seat(event: Event) -> Seat:
    return Seat.objects.select_related("event").get(event=event, row="B", number=4)


@pytest.fixture
def event_on_either(database_url: str, django_db_blocker: Any) -> Iterator[Event]:  # noqa: F811
    """The demo event on SQLite, and again on PostgreSQL, which is the site's database for as long as the test lasts."""
    usual, opened = connections.databases["default"], connections["default"]
    own = {**usual, **dj_database_url.parse(database_url), "CONN_MAX_AGE": 0}
    connections.databases["default"] = own if "sqlite" in own["ENGINE"] else {**own, "OPTIONS": {}}
    del connections["default"]
    with django_db_blocker.unblock():
        call_command("migrate", "ticketing", verbosity=0)
        call_command("load_demo_event", verbosity=0)
        yield Event.objects.select_related("venue").get()
        connections["default"].close()
    connections.databases["default"] = usual
    connections["default"] = opened


@pytest.fixture
def start_site_worker(queue: RedisServer, start_worker: StartWorker) -> Iterator[StartSiteWorker]:  # noqa: F811
    """Start `celery -A deploy worker` on this process's own test database."""
    usual = {
        "DJANGO_SETTINGS_MODULE": "deploy.settings", "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "REDIS_URL": BROKER_URL, "TICKETING_EDGE_PURGE_URL": "",
    }  # fmt: skip
    started: list[WorkerProcess] = []

    def start(**env: str) -> WorkerProcess:
        queues = ["holds", "seat-maps"]
        worker = start_worker("deploy", broker_url=BROKER_URL, backend_url="", env={**usual, **env}, queues=queues)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill_all()
