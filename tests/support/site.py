"""What the tests of the two Django apps share: the settings, a database of their own, a queue of their own.

Without it those tests would write to the developer's database and send jobs to whatever Redis answers on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import django
import pytest

from .ports import LOOPBACK, free_port
from .redis_server import RedisServer

# The site knows one broker for as long as it runs; whether anything listens there is up to each test.
PORT = free_port()
BROKER_URL = f"redis://{LOOPBACK}:{PORT}/0"

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "deploy.settings")
django.setup()

from django.test import Client  # noqa: E402

from deploy import celery_app  # noqa: E402

celery_app.conf.broker_url = BROKER_URL


@pytest.fixture
def queue(engine: object) -> Iterator[RedisServer]:
    """The site's Redis, running and empty; the site's app is the current one, as in a process of its own."""
    celery_app.set_current()
    with RedisServer(port=PORT) as server:
        yield server


@pytest.fixture
def queue_down() -> None:
    """The site's Redis, not running; `queue` asked for later starts it."""


@pytest.fixture
def site() -> Client:
    """A browser's view of the site, without a server between."""
    return Client()


@pytest.fixture
def unused_port() -> int:
    """A port where nobody listens."""
    return free_port()


__all__ = ["queue", "queue_down", "site", "unused_port"]
