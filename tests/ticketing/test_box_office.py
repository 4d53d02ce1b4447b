"""Holding, buying and giving back: what is in the database after each, and after each a second time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from queue_kit import QueueUnavailable
from tests.support.redis_server import RedisServer
from ticketing.box_office import MOST_HELD_BY_ONE, HoldOver, SeatTaken, TooMany, buy, place_hold, release_if_due
from ticketing.models import Event, Hold, Seat, SeatMap

pytestmark = pytest.mark.django_db(transaction=True)


def run_out(hold: Hold) -> Hold:
    hold.expires_at = timezone.now() - timedelta(seconds=1)
    hold.save(update_fields=["expires_at"])
    return hold


def statuses(seat: Seat) -> list[str]:
    return sorted(Hold.objects.filter(seat=seat).values_list("status", flat=True))


def test_a_hold_takes_the_seat_and_sends_both_jobs(queue: RedisServer, seat: Seat) -> None:
    before = Event.objects.get().seats_version
    hold, jobs = place_hold(seat, "Ada")
    assert (hold.status, bool(jobs.release), bool(jobs.render)) == ("held", True, True)
    assert Event.objects.get().seats_version == before + 1


def test_a_held_seat_is_taken(queue: RedisServer, seat: Seat) -> None:
    place_hold(seat, "Ada")
    with pytest.raises(SeatTaken, match="seat B4 is taken"):
        place_hold(seat, "Ben")
    assert statuses(seat) == ["held"]


def test_of_eight_customers_at_once_one_gets_the_seat(queue: RedisServer, seat: Seat) -> None:
    with ThreadPoolExecutor(8) as customers:
        won = list(customers.map(lambda number: try_to_hold(seat, f"customer {number}"), range(8)))
    assert won.count(True) == 1
    assert statuses(seat) == ["held"]


def try_to_hold(seat: Seat, holder: str) -> bool:
    try:
        place_hold(Seat.objects.select_related("event").get(pk=seat.pk), holder)
    except SeatTaken:
        return False
    finally:
        connection.close()
    return True


def test_one_visitor_who_asks_for_fifteen_seats_at_once_gets_eight(queue: RedisServer, event_on_either: Event) -> None:
    """On SQLite and on PostgreSQL: each request has seen fewer than eight before any has written."""
    seats, visitor, gate = list(Seat.objects.select_related("event").filter(event=event_on_either)[:15]), uuid4(), Barrier(15)

    def ask(seat: Seat) -> bool:
        gate.wait()
        try:
            place_hold(seat, "Ada", visitor)
        except TooMany:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(len(seats)) as clicks:
        got = list(clicks.map(ask, seats))
    assert (got.count(True), Hold.objects.filter(visitor=visitor).count()) == (MOST_HELD_BY_ONE, MOST_HELD_BY_ONE)


def test_a_seat_whose_hold_has_run_out_can_be_held_although_no_job_came(queue: RedisServer, seat: Seat) -> None:
    run_out(place_hold(seat, "Ada")[0])
    hold, _ = place_hold(seat, "Ben")
    assert (hold.holder, statuses(seat)) == ("Ben", ["held", "released"])


def test_with_the_queue_down_the_seat_is_free_again(queue_down: None, seat: Seat) -> None:
    with pytest.raises(QueueUnavailable):
        place_hold(seat, "Ada")
    assert statuses(seat) == ["released"]


def test_a_hold_that_has_run_out_is_given_back_once(queue: RedisServer, seat: Seat) -> None:
    hold = run_out(place_hold(seat, "Ada")[0])
    version = Event.objects.get().seats_version
    assert release_if_due(hold) == 0
    hold.refresh_from_db()
    assert (release_if_due(hold), hold.status) == (0, "released")
    assert Event.objects.get().seats_version == version + 1


def test_a_hold_still_in_force_is_kept_and_says_how_long(queue: RedisServer, seat: Seat) -> None:
    hold, _ = place_hold(seat, "Ada")
    assert 590_000 < release_if_due(hold) <= 600_000
    assert statuses(seat) == ["held"]


def test_a_job_that_looked_before_the_sale_does_not_undo_it(queue: RedisServer, seat: Seat) -> None:
    seen_by_job, _ = place_hold(seat, "Ada")
    buy(Hold.objects.select_related("seat__event").get(pk=seen_by_job.pk))
    run_out(seen_by_job)
    assert seen_by_job.status == "held"
    release_if_due(seen_by_job)
    assert statuses(seat) == ["sold"]


def test_buying_twice_is_one_sale(queue: RedisServer, seat: Seat) -> None:
    hold, _ = place_hold(seat, "Ada")
    buy(hold)
    buy(hold)
    assert statuses(seat) == ["sold"]


def test_a_hold_that_has_run_out_cannot_be_bought(queue: RedisServer, seat: Seat) -> None:
    hold = run_out(place_hold(seat, "Ada")[0])
    with pytest.raises(HoldOver, match="the hold on seat B4 is over"):
        buy(hold)


def test_an_older_drawing_does_not_replace_a_newer_one(event: Event) -> None:
    assert SeatMap.store(event, "<svg>new</svg>", 9)
    assert not SeatMap.store(event, "<svg>old</svg>", 8)
    assert SeatMap.store(event, "<svg>new</svg>", 9)
    assert SeatMap.objects.get().svg == "<svg>new</svg>"
