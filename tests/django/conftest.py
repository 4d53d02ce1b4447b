"""Fixtures of what queue_kit gives to Django projects."""

from __future__ import annotations

import django

from tests.support.databases import database, database_url, postgres
from tests.support.site import queue, queue_down, site, unused_port

__all__ = [
    "database", "database_url", "postgres", "queue", "queue_down", "site", "unused_port",
]  # fmt: skip

#: Django's own tasks came with Django 6.
collect_ignore = [] if django.VERSION >= (6,) else ["test_tasks_backend.py"]
