"""The commands for schedules: what they list and remove, and how each ends for a script."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from deploy import celery_app
from queue_kit import schedules
from tests.support.redis_server import RedisServer


@pytest.fixture
def two(queue: RedisServer) -> None:
    """Two schedules on the site's own Redis."""
    book = schedules(celery_app).book
    book.put("nightly", {"name": "maintenance.cleanup", "payload": {}, "timing": "cron 0 3 * * * UTC"})
    book.put("often", {"name": "maintenance.cleanup", "payload": {"a": 1}, "timing": "every 60000"})


def run(name: str, *args: str) -> str:
    """Run a command in this process; return what it prints."""
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_schedules_are_listed_with_when_they_fire_next(two: None) -> None:
    heading, nightly, often = run("schedule_list").splitlines()
    assert heading.split() == ["ID", "JOB", "FIRES", "COUNTS", "FROM", "NEXT"]
    assert nightly.startswith("nightly  maintenance.cleanup  cron 0 3 * * * UTC")
    assert often.startswith("often    maintenance.cleanup  every 60000")
    document = json.loads(run("schedule_list", "--json"))
    assert [(one["id"], one["payload"]) for one in document] == [("nightly", {}), ("often", {"a": 1})]


def test_schedules_are_removed_by_id_and_one_that_is_not_there_is_named(two: None) -> None:
    assert run("schedule_remove", "nightly") == "1 removed\n"
    with pytest.raises(CommandError, match="no schedule nightly") as refused:
        run("schedule_remove", "often", "nightly")
    assert refused.value.returncode == 3
    assert schedules(celery_app).list() == []
