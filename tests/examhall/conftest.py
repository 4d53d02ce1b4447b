"""Fixtures of ExamHall's tests: the site, and a scoring service that runs in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.core.management import call_command

from examhall.models import Attempt
from examhall.scoring_service import ScoringServer
from tests.support.site import queue, queue_down, site, unused_port  # noqa: F401


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
