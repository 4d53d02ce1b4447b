"""Loads the demo event with its seats; run again, it frees all of them."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction
from django.utils import timezone

from ticketing.models import Event, Hold, Seat, SeatMap, Venue
from ticketing.seat_map import draw

ROWS = {"A": 10, "B": 11, "C": 12, "D": 13, "E": 14, "F": 14}


class Command(BaseCommand):
    help = __doc__

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        venue, _ = Venue.objects.get_or_create(name="Old Mill")
        now = timezone.now()
        values = {"venue": venue, "title": "Chamber evening", "starts_at": now + timedelta(days=30)}
        event, _ = Event.objects.update_or_create(slug="chamber-evening", defaults=values)
        places = [Seat(event=event, row=row, number=n) for row, size in ROWS.items() for n in range(1, size + 1)]
        Seat.objects.bulk_create(places, ignore_conflicts=True)
        Hold.objects.filter(seat__event=event).delete()
        event.touch_seats()
        plan = event.plan()
        SeatMap.store(event, draw(plan), plan.version)
        if options["verbosity"]:
            self.stdout.write(f"{event}: {event.seats.count()} seats, event {event.pk}")
