"""Fixtures of ticketing's tests: the site and the demo event."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from tests.support.site import queue, queue_down, site, unused_port  # noqa: F401
from ticketing.models import Event, Seat


@pytest.fixture
def event(db: None) -> Event:
    """The demo event, all seats free."""
    call_command("load_demo_event", verbosity=0)
    return Event.objects.select_related("venue").get()


@pytest.fixture
def seat(event: Event) -> Seat:
    return Seat.objects.select_related("event").get(event=event, row="B", number=4)
