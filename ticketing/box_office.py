"""Holding, buying and giving back seats: each a transaction on the rows, then the jobs that follow from it.

Jobs are sent after the commit. One sent inside could run before its rows can be seen, or for rows that were rolled back.
What a process that dies between the two leaves undone is done by `tidy`.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from queue_kit import QueueUnavailable, enqueue
from ticketing.models import Event, Hold, Seat
from ticketing.seats import HoldStatus

logger = logging.getLogger(__name__)

# As box offices have it; a program that holds for many names itself a visitor each time.
MOST_HELD_BY_ONE = 8


class SeatTaken(Exception):
    """Someone else holds this seat or has bought it."""


class TooMany(Exception):
    """This visitor holds as many seats as one may."""


class HoldOver(Exception):
    """This hold has run out; the seat may be someone else's by now."""


@dataclass
class Jobs:
    """The ids of the jobs that a step sent."""

    release: str = ""
    render: str = ""


def place_hold(seat: Seat, holder: str, visitor: UUID | None = None) -> tuple[Hold, Jobs]:
    """Hold a seat for a customer, for TICKETING_HOLD_MS; of several who ask at once one gets it.

    Raises SeatTaken for the others, TooMany, and QueueUnavailable, with the seat free again, when the job that would end the
    hold could not be sent.
    """
    jobs = Jobs()
    # Most who come to an on-sale are too late: they hear of it without a turn at writing. The constraint decides the rest.
    if Hold.objects.taking().filter(seat=seat).exists():
        raise SeatTaken(f"seat {seat} is taken")
    try:
        with transaction.atomic():
            if visitor:
                check_limit(visitor)
            freed = Hold.objects.overdue().filter(seat=seat).update(status=HoldStatus.RELEASED)
            expires_at = Now() + timedelta(milliseconds=settings.TICKETING_HOLD_MS)
            hold = Hold.objects.create(seat=seat, holder=holder, visitor=visitor, expires_at=expires_at)
            hold.refresh_from_db(fields=["expires_at"])
            seat.event.touch_seats(1 + freed)
            transaction.on_commit(partial(send_jobs_of_hold, hold, jobs))
    except IntegrityError as taken:
        raise SeatTaken(f"seat {seat} is taken") from taken
    return hold, jobs


def check_limit(visitor: UUID) -> None:
    """Raise TooMany if this visitor holds enough; from here to the commit nobody else holds a seat for the same visitor.

    The lock comes before any on a row, so whoever waits for it keeps nobody waiting. SQLite has one writer at a time anyway.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [visitor.int % 2**63])
    if Hold.objects.in_force().filter(visitor=visitor).count() >= MOST_HELD_BY_ONE:
        raise TooMany(f"one person may hold {MOST_HELD_BY_ONE} seats at a time: buy these, or give one back")


def send_jobs_of_hold(hold: Hold, jobs: Jobs) -> None:
    try:
        jobs.release = send_release(hold, settings.TICKETING_HOLD_MS)
        jobs.render = send_render(hold.seat.event_id)
    except QueueUnavailable:
        # The customer is told to try again, and must not find the seat taken by this very try.
        give_back(hold)
        raise


def buy(*holds: Hold) -> str:
    """Turn holds on seats of one event into sales, all or none; buying them twice is one sale.

    Returns the id of the job that redraws the map; empty when it could not be sent, for the seats are sold all the same.
    Raises HoldOver when one of the holds has run out.
    """
    with transaction.atomic():
        # In one order for everybody: two purchases that wait for each other's rows would both fail.
        sold = sum(sell(hold) for hold in sorted(holds, key=lambda hold: hold.pk))
        holds[0].seat.event.touch_seats(sold)
    return redraw(holds[0].seat.event_id)


def sell(hold: Hold) -> int:
    """Turn one hold into a sale; returns how many it changed, 0 for one that was sold before."""
    row = Hold.objects.filter(pk=hold.pk)
    # Locked before it is judged: of two clicks in the last moment the second must not say "over" while the first one sells.
    if row.select_for_update().values_list("status", flat=True).first() == HoldStatus.SOLD:
        return 0
    if not row.in_force().update(status=HoldStatus.SOLD):
        raise HoldOver(f"the hold on seat {hold.seat} is over")
    return 1


def release_if_due(hold: Hold) -> int:
    """Give back the seat of a hold that has run out; return the milliseconds that one still in force has left, else 0.

    A hold that was bought, given back or dropped before is left as it is, so a second run does nothing.
    """
    with transaction.atomic():
        if Hold.objects.overdue().filter(pk=hold.pk).update(status=HoldStatus.RELEASED):
            hold.seat.event.touch_seats()
    still = Hold.objects.in_force().with_now().filter(pk=hold.pk).first()
    return still.left_ms if still else 0


def give_back(hold: Hold) -> bool:
    """Free the seat of a hold before its time, unless it was bought or freed meanwhile; returns whether it was freed."""
    with transaction.atomic():
        # No longer anybody's: what has run out is shown to its visitor, what was given back is not.
        freed = Hold.objects.filter(pk=hold.pk, status=HoldStatus.HELD).update(status=HoldStatus.RELEASED, visitor=None)
        if freed:
            hold.seat.event.touch_seats()
    return bool(freed)


def tidy(event: Event) -> None:
    """Do what is left undone where a process died, or Redis was away, between a commit and the job that follows from it."""
    for hold in Hold.objects.overdue().filter(seat__event=event).select_related("seat__event"):
        release_if_due(hold)
    if Event.objects.filter(pk=event.pk).exclude(seat_map__version__gte=F("seats_version")).exists():
        send_render(event.pk)


def send_release(hold: Hold, delay_ms: int) -> str:
    return enqueue("release-hold", {"hold_id": str(hold.pk)}, delay_ms=delay_ms).id


def send_render(event_id: int) -> str:
    """Have the map drawn: at most one draw waits, and of changes that come while one is made the last is drawn after it."""
    return enqueue("render-seat-map", {"event_id": event_id}, idempotency_key=str(event_id), dedup="keep_last").id


def redraw(event_id: int) -> str:
    """Have the map drawn if the queue answers; otherwise it stays behind until `tidy` looks."""
    try:
        return send_render(event_id)
    except QueueUnavailable as away:
        logger.warning("the seat map of event %s stays as it is for now: %s", event_id, away)
        return ""
