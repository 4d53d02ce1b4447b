"""The jobs of ticketing. Each may run twice: what it finds in the database decides what is left to do."""

from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from pydantic import BaseModel

from queue_kit import ResourceGone, current_job, fixed, job
from ticketing.box_office import release_if_due, send_release, send_render, tidy
from ticketing.edge import purge_map
from ticketing.models import Event, Hold, SeatMap
from ticketing.seat_map import draw

Row = TypeVar("Row", bound=Model)


class RenderSeatMap(BaseModel):
    event_id: int


class ReleaseHold(BaseModel):
    hold_id: UUID


# Short waits: while one draw waits to tell the cache again, the changes after it are not drawn.
@job("render-seat-map", queue="seat-maps", payload=RenderSeatMap, backoff=fixed(1000))
def render_seat_map(payload: RenderSeatMap) -> None:
    """Draw the seats as they are now, store the drawing, have the cache drop the old one."""
    event = find(Event.objects.select_related("venue"), payload.event_id)
    plan = event.plan()
    SeatMap.store(event, draw(plan), plan.version)
    run = current_job()
    headers = {"X-Job-Id": run.id, "X-Job-Attempts-Made": str(run.attempts_made)}
    purge_map(event, {**headers, "X-Job-Stalled-Count": str(run.stalled_count)})


@job("release-hold", queue="holds", payload=ReleaseHold)
def release_hold(payload: ReleaseHold) -> None:
    """Give the seat back if the hold has run out; one that was prolonged is looked at again when it is due."""
    hold = find(Hold.objects.select_related("seat__event"), payload.hold_id)
    left_ms = release_if_due(hold)
    if left_ms:
        send_release(hold, left_ms)
    else:
        # Also when an earlier run has freed the seat: it may have died before this line.
        send_render(hold.seat.event_id)


@job("tidy-box-office", queue="holds")
def tidy_box_office() -> None:
    """Look after all events, in case a process died between a change and the job that should have followed."""
    for event in Event.objects.all():
        tidy(event)


def find(rows: "QuerySet[Row]", key: object) -> Row:
    """Return a row; one that has been deleted will not come back, so no retry."""
    row = rows.filter(pk=key).first()
    if row is None:
        raise ResourceGone(f"there is no {rows.model._meta.verbose_name} {key}")
    return row
