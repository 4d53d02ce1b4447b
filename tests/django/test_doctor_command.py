"""`manage.py queue_doctor`: what it prints, and how it ends for a script."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from tests.support.redis_server import RedisServer

# It looks at the outbox, too.
pytestmark = pytest.mark.django_db


def run(*args: str) -> tuple[int, str]:
    """Run the command in this process; its exit status, and what it prints."""
    out = io.StringIO()
    try:
        call_command("queue_doctor", *args, stdout=out)
    except SystemExit as end:
        return int(str(end.code)), out.getvalue()
    return 0, out.getvalue()


def test_a_redis_that_forgets_is_said_with_the_fix_and_ends_with_2(queue: RedisServer) -> None:
    status, printed = run()
    assert status == 2
    lost = "no append-only file, no snapshots: a restart of Redis loses every job"
    assert f"bad   persistence: {lost}. Fix: set appendonly yes" in printed.splitlines()
    document = json.loads(run("--json", "--keys", "10")[1])
    assert document["status"] == 2
    assert {"verdict": "bad", "check": "persistence", "says": lost, "fix": "set appendonly yes"} in document["findings"]


def test_warnings_alone_end_with_1(queue: RedisServer) -> None:
    with queue.client() as client:
        client.config_set("appendonly", "yes")
    status, printed = run()
    assert status == 1
    assert "warn  workers: no worker of queue_kit runs" in printed


def test_a_redis_that_is_not_there_is_a_finding(queue_down: None) -> None:
    status, printed = run()
    assert (status, printed.startswith("bad   server: Redis cannot be read")) == (2, True)


@override_settings(QUEUE_KIT={"CELERY_APP": "examhall.no_such_thing"})
def test_a_project_that_is_not_set_up_ends_with_2_and_says_what_to_do() -> None:
    with pytest.raises(CommandError, match="CELERY_APP") as refused:
        run()
    assert refused.value.returncode == 2
