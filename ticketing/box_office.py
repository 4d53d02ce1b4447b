"""Holding, buying and giving back seats: each a transaction on the rows, then the jobs that follow from it.

Jobs are sent after the commit. One sent inside could run before its rows can be seen, or for rows that were rolled back.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from queue_kit import QueueUnavailable, enqueue
from ticketing.models import Hold, Seat
from ticketing.seats import HoldStatus, left_ms


class SeatTaken(Exception):
    """Someone else holds this seat or has bought it."""


class HoldOver(Exception):
    """This hold has run out; the seat may be someone else's by now."""


@dataclass
class Jobs:
    """The ids of the jobs that a step sent."""

    release: str = ""
    render: str = ""


def place_hold(seat: Seat, holder: str) -> tuple[Hold, Jobs]:
    """Hold a seat for a customer, for TICKETING_HOLD_MS; of several who ask at once one gets it.

    Raises SeatTaken for the others, and QueueUnavailable, with the seat free again, when the job that would end the hold
    could not be sent.
    """
    jobs = Jobs()
    now = timezone.now()
    try:
        with transaction.atomic():
            drop_overdue(seat, now)
            expires_at = now + timedelta(milliseconds=settings.TICKETING_HOLD_MS)
            hold = Hold.objects.create(seat=seat, holder=holder, expires_at=expires_at)
            seat.event.touch_seats()
            transaction.on_commit(partial(send_jobs_of_hold, hold, jobs))
    except IntegrityError as taken:
        raise SeatTaken(f"seat {seat} is taken") from taken
    return hold, jobs


def drop_overdue(seat: Seat, now: datetime) -> None:
    """Free a seat whose hold has run out although its job has not come yet."""
    Hold.objects.filter(seat=seat, status=HoldStatus.HELD, expires_at__lte=now).update(status=HoldStatus.RELEASED)


def send_jobs_of_hold(hold: Hold, jobs: Jobs) -> None:
    try:
        jobs.release = send_release(hold, settings.TICKETING_HOLD_MS)
        jobs.render = send_render(hold.seat.event_id)
    except QueueUnavailable:
        # The customer is told to try again, and must not find the seat taken by this very try.
        give_back(hold)
        raise


def buy(hold: Hold) -> str:
    """Turn a hold into a sale and return the id of the job that redraws the map; buying it twice is one sale.

    Raises HoldOver when the hold has run out.
    """
    in_force = Q(status=HoldStatus.HELD, expires_at__gt=timezone.now()) | Q(status=HoldStatus.SOLD)
    with transaction.atomic():
        if not Hold.objects.filter(in_force, pk=hold.pk).update(status=HoldStatus.SOLD):
            raise HoldOver(f"the hold on seat {hold.seat} is over")
        hold.seat.event.touch_seats()
    return send_render(hold.seat.event_id)


def release_if_due(hold: Hold) -> int:
    """Give back the seat of a hold that has run out; return the milliseconds that one still in force has left, else 0.

    A hold that was bought, given back or dropped before is left as it is, so a second run does nothing.
    """
    if hold.status != HoldStatus.HELD:
        return 0
    left = left_ms(hold.expires_at, timezone.now())
    if not left:
        give_back(hold)
    return left


def give_back(hold: Hold) -> None:
    """Free the seat of a hold, unless it was bought or freed meanwhile."""
    with transaction.atomic():
        if Hold.objects.filter(pk=hold.pk, status=HoldStatus.HELD).update(status=HoldStatus.RELEASED):
            hold.seat.event.touch_seats()


def send_release(hold: Hold, delay_ms: int) -> str:
    return enqueue("release-hold", {"hold_id": str(hold.pk)}, delay_ms=delay_ms).id


def send_render(event_id: int) -> str:
    return enqueue("render-seat-map", {"event_id": event_id}).id
