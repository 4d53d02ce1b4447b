"""A relay in a real process: SIGKILL at each of its named points, SIGTERM, and a database that ends its connection."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from django.apps import apps
from django.db import connections, transaction

from queue_kit.django import outbox
from queue_kit.django.conf import project_settings
from queue_kit.django.relay import Relay
from queue_kit.states import State
from queue_kit.transport import points
from tests.support.processes import environment_with_project, kill_session, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for_exit, wait_until
from tests.worker.sending import census_of

pytestmark = pytest.mark.crash

#: What a relay killed there leaves behind: jobs in Redis, and the state of the rows on SQLite and on PostgreSQL.
LEFT = {
    "rows read": (0, "pending", "pending"),
    "rows sent": (3, "pending", "pending"),
    # On PostgreSQL the mark is part of the transaction that holds the rows.
    "rows marked": (3, "sent", "pending"),
    "rows committed": (3, "sent", "sent"),
}

StartRelay = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_relay(database: str, database_url: str, redis_server: RedisServer, tmp_path: Path) -> Iterator[StartRelay]:
    """Start relays of the site on that database; all end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    urls = {"DATABASE_URL": database_url, "REDIS_URL": redis_server.url(), "DJANGO_SETTINGS_MODULE": "deploy.settings"}

    def start(*words: str, die_at: str = "") -> subprocess.Popen[bytes]:
        env = environment_with_project({**urls, "DIE_AT": die_at})
        command = [sys.executable, "-m", "tests.apps.relay_process", *words]
        started.append(spawn(command, log=tmp_path / "relay.log", cwd=tmp_path, env=env))
        return started[-1]

    yield start
    for process in started:
        kill_session(process)


def add(alias: str, many: int = 3) -> list[str]:
    with transaction.atomic(using=alias):
        return [outbox.add("enq.free", {"value": n}, using=alias).id for n in range(many)]


def states(alias: str) -> set[str]:
    return set(apps.get_model("queue_kit", "OutboxJob").objects.using(alias).values_list("state", flat=True))


def jobs(app: Celery) -> list[str]:
    return [job.id for job in census_of(app).jobs("celery", State.WAITING)]


def test_every_point_has_its_case() -> None:
    """B13: a point that is added gets its line here."""
    assert tuple(LEFT) == points.RELAY


@pytest.mark.parametrize("point", LEFT)
def test_a_relay_killed_at_any_point_neither_loses_a_row_nor_doubles_a_job(
    app: Celery, database: str, start_relay: StartRelay, point: str
) -> None:
    """E9. Given three rows, killed: the relay at one of its points; then the next relay sends what is left, under the ids that
    the rows had, and there are three jobs."""
    ids = add(database)
    assert wait_for_exit(start_relay(die_at=point), within_s=40) == -signal.SIGKILL
    sent, on_sqlite, on_postgres = LEFT[point]
    left = on_postgres if connections[database].vendor == "postgresql" else on_sqlite
    assert (len(jobs(app)), states(database)) == (sent, {left})
    assert Relay(app, database, project_settings()).drain() is None
    assert (jobs(app), states(database)) == (ids, {"sent"})


def test_a_relay_that_is_asked_to_end_does_so_in_order(
    app: Celery, database: str, start_relay: StartRelay, tmp_path: Path
) -> None:
    """G1: by SIGTERM, with status 0, and what it has sent is marked."""
    add(database)
    process = start_relay()
    wait_until(lambda: states(database) == {"sent"}, says="the rows are sent", within_s=40)
    os.kill(process.pid, signal.SIGTERM)
    assert wait_for_exit(process, within_s=10) == 0
    assert "3 sent, 0 failed" in (tmp_path / "relay.log").read_text()


def test_a_relay_outlives_its_connection_to_the_database(app: Celery, database: str, start_relay: StartRelay) -> None:
    """As when PostgreSQL is restarted; a file has no connection that could end."""
    if connections[database].vendor != "postgresql":
        return
    add(database)
    process = start_relay()
    wait_until(lambda: states(database) == {"sent"}, says="the rows are sent", within_s=40)
    with connections[database].cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database() AND backend_type = 'client backend'"
        )
        assert cursor.fetchone() == (1,)
    ids = add(database)
    wait_until(lambda: set(ids) <= set(jobs(app)), says="it goes on", within_s=20)
    assert process.poll() is None
