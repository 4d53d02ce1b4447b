"""What an open page of an event shows one visitor, as one value with a tag that changes whenever the page would.

Without it the whole page would be made and sent again each second to everybody who looks at it.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from uuid import UUID, uuid4

from django.core.cache import cache
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest

from queue_kit import QueueUnavailable, control
from ticketing.box_office import tidy
from ticketing.models import Event, Hold, SeatMap
from ticketing.seats import HoldStatus

VISITOR = "ticketing_visitor"
# However many look on, a process asks the queue once a second and looks for work left undone every five.
ASK_EVERY_S, TIDY_EVERY_S = 1, 5
# So long a hold that ran out is still told of.
REMEMBERED = timedelta(minutes=5)


@dataclass(frozen=True)
class Glance:
    """The drawing by its version, this visitor's holds, and whether anything can be held just now."""

    event: Event
    holds: list[Hold] = field(default_factory=list)
    drawn: int | None = None
    queue_answers: bool = True

    @property
    def held(self) -> list[Hold]:
        return [hold for hold in self.holds if hold.status == HoldStatus.HELD and hold.left_ms]

    @property
    def sold(self) -> list[Hold]:
        return [hold for hold in self.holds if hold.status == HoldStatus.SOLD]

    @property
    def ran_out(self) -> list[Hold]:
        """Holds that ended by themselves, of seats that this visitor has no other hold on."""
        kept = {hold.seat_id for hold in [*self.held, *self.sold]}
        over = {hold.seat_id: hold for hold in self.holds if hold.seat_id not in kept}
        return list(over.values())

    @property
    def behind(self) -> bool:
        """Whether a seat has changed since the map was drawn."""
        return self.drawn is None or self.drawn < self.event.seats_version

    @property
    def mine_tag(self) -> str:
        return tag_of([[hold.pk for hold in holds] for holds in (self.held, self.sold, self.ran_out)])

    @property
    def tag(self) -> str:
        return tag_of([self.mine_tag, self.drawn, self.behind, self.queue_answers])


def glance(event: Event, visitor: UUID | None) -> Glance:
    """Look at an event for one visitor."""
    cache.get_or_set(f"ticketing-tidy-{event.pk}", partial(try_to_tidy, event), TIDY_EVERY_S)
    drawn = SeatMap.objects.filter(event=event).values_list("version", flat=True).first()
    holds = Hold.objects.none() if visitor is None else Hold.objects.filter(visitor=visitor, seat__event=event)
    recent = holds.filter(Q(status=HoldStatus.SOLD) | Q(expires_at__gt=Now() - REMEMBERED))
    shown = list(recent.with_now().select_related("seat").order_by("seat__row", "seat__number", "created_at"))
    event.refresh_from_db(fields=["seats_version"])
    return Glance(event, shown, drawn, queue_answers())


def queue_answers() -> bool:
    return bool(cache.get_or_set("ticketing-queue-answers", ask_queue, ASK_EVERY_S))


def ask_queue() -> bool:
    try:
        control.limits("holds")
    except QueueUnavailable:
        return False
    return True


def try_to_tidy(event: Event) -> bool:
    """Tidy, unless the queue is away; the page says that by itself."""
    try:
        tidy(event)
    except QueueUnavailable:
        return False
    return True


def visitor_of(request: HttpRequest) -> UUID | None:
    known = request.session.get(VISITOR)
    return UUID(known) if known else None


def named_visitor(request: HttpRequest) -> UUID:
    """Return who holds seats on this page; someone who never did gets an id that no one else can guess."""
    return UUID(request.session.setdefault(VISITOR, str(uuid4())))


def tag_of(facts: object) -> str:
    return sha256(repr(facts).encode()).hexdigest()[:16]
