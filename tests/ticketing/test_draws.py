"""How often the map is drawn: while one drawing is made or waits no change adds another, and the last one shows the last."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from deploy.demo.edge import Edge
from tests.support.events import count
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.ticketing.conftest import StartSiteWorker
from ticketing.box_office import buy, place_hold
from ticketing.models import Event, Seat, SeatMap

pytestmark = [pytest.mark.crash, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def edge() -> Iterator[Edge]:
    """A cache that is told of new maps, and counts them: one a drawing."""
    cache = Edge().start()
    yield cache
    cache.stop()


def sell(seats: list[Seat]) -> None:
    with ThreadPoolExecutor(6) as customers:
        list(customers.map(sell_one, seats))


def sell_one(seat: Seat) -> None:
    buy(place_hold(seat, "Ada")[0])
    connection.close()


def up_to_date(event: Event) -> bool:
    return SeatMap.objects.get(event=event).version == Event.objects.get(pk=event.pk).seats_version


def test_many_sales_are_few_drawings_and_the_last_shows_them_all(
    queue: RedisServer, event: Event, edge: Edge, start_site_worker: StartSiteWorker
) -> None:
    """Given a drawing that is being made, its worker killed meanwhile: of all changes after it one drawing waits, never two;
    and one that is told of during the sales is drawn again, so that the last drawing has the last sale."""
    doomed = start_site_worker(TICKETING_EDGE_PURGE_URL=edge.url)
    seats = list(Seat.objects.select_related("event").filter(event=event))
    edge.answering.clear()
    sell(seats[:1])
    wait_until(lambda: len(edge.purges) == 1, says="the first drawing is stored, its run has not returned")
    sell(seats[1:30])
    assert queue.client().zcard("qwk:q:seat-maps:wait") == 0
    doomed.kill_all()
    edge.answering.set()
    start_site_worker(TICKETING_EDGE_PURGE_URL=edge.url)
    wait_until(lambda: up_to_date(event), says="the map is up to date", within_s=60)
    # The first one, its rerun, and one for the 59 changes that came while it ran.
    wait_until(lambda: count(queue.client(), "seat-maps", "completed") == 2, says="both drawings are done", within_s=60)
    assert len(edge.purges) == 3
    sell(seats[30:])
    wait_until(lambda: up_to_date(event), says="the map is up to date", within_s=60)
    assert len(edge.purges) < 3 + 2 * len(seats[30:])
    assert SeatMap.objects.get(event=event).svg.count('data-seat="') == len(seats)
    assert SeatMap.objects.get(event=event).svg.count('data-state="sold"') == len(seats) + 1  # and the legend
