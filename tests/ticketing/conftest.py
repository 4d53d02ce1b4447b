"""Fixtures of ticketing's tests: the site, the demo event, and a worker that shares the site's database and queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection

from tests.conftest import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.site import BROKER_URL, queue, queue_down, site, unused_port  # noqa: F401
from tests.support.worker_process import WorkerProcess
from ticketing.models import Event, Seat

StartSiteWorker = Callable[[], WorkerProcess]


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
def start_site_worker(queue: RedisServer, start_worker: StartWorker) -> Iterator[StartSiteWorker]:  # noqa: F811
    """Start `celery -A deploy worker` on this process's own test database."""
    env = {
        "DJANGO_SETTINGS_MODULE": "deploy.settings", "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "REDIS_URL": BROKER_URL, "TICKETING_EDGE_PURGE_URL": "",
    }  # fmt: skip
    started: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        queues = ["holds", "seat-maps"]
        worker = start_worker("deploy", broker_url=BROKER_URL, backend_url="", env=env, queues=queues)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill_all()
