"""Fixtures of what queue_kit gives to Django projects."""

from __future__ import annotations

from collections.abc import Iterator

import django
import pytest
from celery import Celery

from tests.support.databases import database, database_url, postgres
from tests.support.redis_server import RedisServer
from tests.support.site import queue, queue_down, site, unused_port
from tests.worker.sending import sending

__all__ = [
    "database", "database_url", "postgres", "queue", "queue_down", "site", "unused_port",
]  # fmt: skip

#: Django's own tasks came with Django 6.
collect_ignore = [] if django.VERSION >= (6,) else ["test_tasks_backend.py"]


@pytest.fixture
def app(redis_server: RedisServer) -> Iterator[Celery]:
    """An app that sends to the shared Redis, and on a busy machine waits for it."""
    with sending(redis_server.url(), ENQUEUE_TIMEOUT_MS=30_000) as app:
        yield app
