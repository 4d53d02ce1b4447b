"""The two jobs of ticketing in this process: what a first and a second run leave behind. Real workers run them in tests/seeds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from deploy.demo.edge import Edge, Purge
from queue_kit import ResourceGone, TransientError
from tests.support.events import events
from tests.support.redis_server import RedisServer
from ticketing.box_office import buy, place_hold
from ticketing.edge import purge_map
from ticketing.models import Event, Hold, Seat, SeatMap
from ticketing.tasks import release_hold, render_seat_map

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def edge(settings) -> Iterator[Edge]:
    """A cache that is told of new maps."""
    cache = Edge().start()
    settings.TICKETING_EDGE_PURGE_URL = cache.url
    yield cache
    cache.stop()


def release(hold: Hold) -> str:
    release_hold.apply(kwargs={"hold_id": str(hold.pk)}, throw=True)
    hold.refresh_from_db()
    return hold.status


def run_out(hold: Hold) -> None:
    Hold.objects.filter(pk=hold.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def added(queue: RedisServer, name: str) -> int:
    return sum(event.kind == "added" for event in events(queue.client(), name))


def test_a_map_drawn_twice_is_the_same_map_and_the_cache_hears_of_both(event: Event, edge: Edge) -> None:
    event.touch_seats()
    maps = []
    for _ in range(2):
        render_seat_map.apply(kwargs={"event_id": event.pk}, task_id="j1", throw=True)
        maps.append(SeatMap.objects.values_list("svg", "version").get())
    assert maps[0] == maps[1]
    assert maps[0][1] == 2
    assert edge.purges == [Purge(job="j1", attempts_made=0, stalled_count=0)] * 2


def test_a_cache_that_does_not_answer_is_a_passing_fault(event: Event, settings, unused_port: int) -> None:
    settings.TICKETING_EDGE_PURGE_URL = f"http://127.0.0.1:{unused_port}"
    with pytest.raises(TransientError, match="did not purge"):
        purge_map(event, {})


def test_without_a_cache_there_is_nobody_to_tell(event: Event, settings) -> None:
    settings.TICKETING_EDGE_PURGE_URL = ""
    render_seat_map.apply(kwargs={"event_id": event.pk}, throw=True)


def test_an_event_that_is_gone_is_not_tried_again(event: Event) -> None:
    gone = event.pk
    event.delete()
    with pytest.raises(ResourceGone, match=f"there is no event {gone}"):
        render_seat_map.apply(kwargs={"event_id": gone}, throw=True)


def test_a_hold_that_has_run_out_is_released_and_the_map_drawn_anew(queue: RedisServer, seat: Seat) -> None:
    hold, _ = place_hold(seat, "Ada")
    run_out(hold)
    queue.client().flushall()
    assert release(hold) == "released"
    assert added(queue, "seat-maps") == 1


def test_a_second_run_has_the_map_drawn_in_case_the_first_died_before_that(queue: RedisServer, seat: Seat) -> None:
    hold, _ = place_hold(seat, "Ada")
    run_out(hold)
    release(hold)
    version = Event.objects.get().seats_version
    queue.client().flushall()
    assert release(hold) == "released"
    assert Event.objects.get().seats_version == version
    assert added(queue, "seat-maps") == 1


def test_a_hold_still_in_force_is_looked_at_again_when_it_is_due(queue: RedisServer, seat: Seat) -> None:
    hold, _ = place_hold(seat, "Ada")
    assert release(hold) == "held"
    assert added(queue, "holds") == 2


def test_a_sold_seat_stays_sold(queue: RedisServer, seat: Seat) -> None:
    hold, _ = place_hold(seat, "Ada")
    buy(hold)
    run_out(hold)
    assert release(hold) == "sold"


def test_the_next_customers_hold_is_not_released_by_the_job_of_the_last(queue: RedisServer, seat: Seat) -> None:
    late, _ = place_hold(seat, "Ada")
    run_out(late)
    current, _ = place_hold(seat, "Ben")
    release(late)
    current.refresh_from_db()
    assert current.status == "held"
