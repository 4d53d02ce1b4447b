"""The database of a chaos run: effects of jobs, rows that were committed with a job in the outbox, and the outbox itself.

Without it what Redis tells could only be compared with what Redis tells.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import django

from tests.support.postgres import PostgresMissing, PostgresServer

TABLES = ("effects", "orders")


@contextmanager
def database(folder: Path) -> Iterator[str]:
    """PostgreSQL, or SQLite where there is none; yields its URL. This process reads it too."""
    with ExitStack() as stack:
        try:
            url = stack.enter_context(PostgresServer()).create("chaos")
        except PostgresMissing:
            url = f"sqlite:///{folder / 'chaos.sqlite3'}"
        os.environ.update(DATABASE_URL=url, DJANGO_SETTINGS_MODULE="tests.apps.chaos_settings")
        django.setup()
        from django.core.management import call_command  # noqa: PLC0415 - settings first
        from django.db import connection  # noqa: PLC0415

        call_command("migrate", verbosity=0)
        with connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"CREATE TABLE {table} (key varchar(300))")
        connection.close()
        yield url


def effects() -> Counter[str]:
    """How often each job's effect is there."""
    return Counter(key for (key,) in _select("SELECT key FROM effects"))


def committed() -> frozenset[str]:
    """Ids of the jobs that were committed with a row."""
    return frozenset(key for (key,) in _select("SELECT key FROM orders"))


def rows_left() -> list[str]:
    """A line for each row of the outbox that was not sent."""
    rows = _select("SELECT job_id, state, error FROM queue_kit_outboxjob WHERE state <> 'sent'")
    return [f"left in the outbox: {job_id}, {state} {error}" for job_id, state, error in rows]


def rows_not_seen() -> list[str]:
    """Plant a row that nobody sends, and return "a row" if it is not seen; it is taken out again."""
    from django.apps import apps  # noqa: PLC0415 - settings first

    row = apps.get_model("queue_kit", "OutboxJob").objects.create(job_id="planted")
    seen = any("planted" in line for line in rows_left())
    row.delete()
    return [] if seen else ["a row"]


def _select(query: str) -> list[tuple[str, ...]]:
    from django.db import connection  # noqa: PLC0415 - settings first

    with connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchall()
    connection.close()
    return list(found)
