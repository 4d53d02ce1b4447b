"""Databases beside the site's own, on SQLite and PostgreSQL, with real transactions; conftests take these fixtures by import.

Without them what commits and what rolls back would be tried inside the one transaction that a test of Django runs in.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dj_database_url
import pytest
from django.core.management import call_command
from django.db import connections

from tests.support.postgres import PostgresMissing, PostgresServer
from tests.support.services import service_missing

ALIAS = "tried"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; without its programs the test skips, and fails in CI."""
    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        service_missing(str(missing))
    with server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tried.sqlite3'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create(f"tried_{uuid.uuid4().hex[:8]}")


@pytest.fixture
def database(database_url: str, django_db_blocker: Any) -> Iterator[str]:
    """The alias of that database, with the tables of queue_kit and one for effects; transactions there are real ones."""
    own = {**connections.databases["default"], **dj_database_url.parse(database_url), "CONN_MAX_AGE": 0}
    if "sqlite" not in own["ENGINE"]:
        own["OPTIONS"] = {}
    connections.databases[ALIAS] = own
    with django_db_blocker.unblock():
        call_command("migrate", "queue_kit", database=ALIAS, verbosity=0)
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("CREATE TABLE effects (key varchar(300))")
        yield ALIAS
        connections[ALIAS].close()
    del connections.databases[ALIAS], connections[ALIAS]


__all__ = ["database", "database_url", "postgres"]
