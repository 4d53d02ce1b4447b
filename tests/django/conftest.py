"""Fixtures of what queue_kit gives to Django projects."""

from __future__ import annotations

from tests.support.databases import database, database_url, postgres
from tests.support.site import django_db_modify_db_settings, queue, queue_down, site, unused_port

__all__ = [
    "database", "database_url", "django_db_modify_db_settings", "postgres", "queue", "queue_down", "site", "unused_port",
]  # fmt: skip
