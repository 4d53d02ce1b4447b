"""Fixtures of ExamHall's tests: the site, and a scoring service that runs in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command

from examhall.models import Attempt
from examhall.scoring_service import ScoringServer
from examhall.watching import away_until
from tests.conftest import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.site import BROKER_URL, queue, queue_down, site, unused_port  # noqa: F401


@pytest.fixture(autouse=True)
def each_test_has_a_redis_of_its_own() -> None:
    """So that one was away a moment ago says nothing of the next."""
    away_until.clear()


@pytest.fixture
def scoring(settings) -> Iterator[ScoringServer]:
    """The real scoring service, in a thread."""
    server = ScoringServer(port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings.EXAMHALL_SCORING_URL = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.rehearsal.tell(hold=False)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def attempt(db) -> Attempt:
    """Attempt a-5521 of the demo exam, not handed in."""
    call_command("load_demo_exam", verbosity=0)
    return Attempt.objects.get(public_id="a-5521")


@pytest.fixture
def examiner(db) -> User:
    """Somebody who may watch exams, and nothing else."""
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="watch_exam"))
    return user


@pytest.fixture
def site_worker(
    queue: RedisServer, scoring: ScoringServer, start_worker: StartWorker, settings: Any, tmp_path: Path  # noqa: F811
) -> Callable[..., Any]:
    """Start workers of the site: on its Redis, and on the tests' own database, scoring service and mail server."""
    settings.EXAMHALL_REPORTS_DIR = str(tmp_path)

    def start(app: str = "deploy", **env: str) -> Any:
        given = {
            "DJANGO_SETTINGS_MODULE": "deploy.settings", "REDIS_URL": BROKER_URL, "EXAMHALL_REPORTS_DIR": str(tmp_path),
            "DATABASE_URL": f"sqlite:///{settings.DATABASES['default']['TEST']['NAME']}",
            "EXAMHALL_SCORING_URL": settings.EXAMHALL_SCORING_URL, **env,
        }  # fmt: skip
        queues = ["grading", "reports", "email"]
        return start_worker(app, broker_url=BROKER_URL, backend_url="", env=given, pool="solo", queues=queues, wait=not env)

    return start
