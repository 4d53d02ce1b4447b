"""Events, their seats, the holds on them, and the drawn map.

That a seat has one holder is a constraint of the database and not of the code around it; two customers who ask at once could
both win otherwise.
"""

import uuid
from datetime import datetime

from django.db import models, transaction
from django.db.models.functions import Now

from ticketing import seats
from ticketing.seat_map import Plan
from ticketing.seats import HoldStatus


class Venue(models.Model):
    name = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.name


class Event(models.Model):
    slug = models.SlugField(unique=True)
    venue = models.ForeignKey(Venue, on_delete=models.PROTECT, related_name="events")
    title = models.CharField(max_length=200)
    starts_at = models.DateTimeField()
    seats_version = models.PositiveIntegerField(default=0, help_text="Goes up with each change of a seat.")

    class Meta:
        ordering = ["starts_at", "pk"]

    def __str__(self) -> str:
        return self.title

    def touch_seats(self, changes: int = 1) -> None:
        """Count changes of holds, each once; the drawn map is then known to be behind."""
        if changes:
            Event.objects.filter(pk=self.pk).update(seats_version=models.F("seats_version") + changes)

    def plan(self) -> Plan:
        """Return the seats as they are. The version is read first: seats that change meanwhile make the map newer than
        it says, never older, and the job of that change draws it again."""
        version, now = Event.objects.values_list("seats_version", Now()).get(pk=self.pk)
        rows: dict[str, list[seats.Seat]] = {}
        for seat in self.seats.with_current_hold():
            rows.setdefault(seat.row, []).append(seat.as_shown(now))
        return Plan(title=f"{self.title}, {self.venue}", rows=list(rows.values()), version=version)


class SeatQuerySet(models.QuerySet["Seat"]):
    def with_current_hold(self) -> "SeatQuerySet":
        current = Hold.objects.filter(seat=models.OuterRef("pk")).exclude(status=HoldStatus.RELEASED)
        return self.annotate(
            hold_status=models.Subquery(current.values("status")[:1]),
            hold_expires_at=models.Subquery(current.values("expires_at")[:1]),
        )


class Seat(models.Model):
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="seats")
    row = models.CharField(max_length=1)
    number = models.PositiveSmallIntegerField()

    objects = SeatQuerySet.as_manager()

    class Meta:
        ordering = ["row", "number"]
        constraints = [models.UniqueConstraint(fields=["event", "row", "number"], name="ticketing_one_seat_a_place")]

    def __str__(self) -> str:
        return f"{self.row}{self.number}"

    def as_shown(self, now: datetime) -> seats.Seat:
        """Return the seat with its state; asks for `with_current_hold()`."""
        return seats.Seat(self.row, self.number, seats.state_of(self.hold_status, self.hold_expires_at, now))


class HoldQuerySet(models.QuerySet["Hold"]):
    """Asks after holds by the database's clock, the one that all web processes and workers share; their own may differ."""

    def in_force(self) -> "HoldQuerySet":
        return self.filter(status=HoldStatus.HELD, expires_at__gt=Now())

    def taking(self) -> "HoldQuerySet":
        """Those that keep a seat from everybody else."""
        return self.filter(status=HoldStatus.SOLD) | self.in_force()

    def overdue(self) -> "HoldQuerySet":
        return self.filter(status=HoldStatus.HELD, expires_at__lte=Now())

    def with_now(self) -> "HoldQuerySet":
        return self.annotate(now=Now())


class Hold(models.Model):
    STATUSES = [(status.value, status.value) for status in HoldStatus]

    # Whoever has the id may buy the seat, so it must not be guessed.
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    seat = models.ForeignKey(Seat, on_delete=models.CASCADE, related_name="holds")
    holder = models.CharField(max_length=100)
    visitor = models.UUIDField(null=True, editable=False, help_text="Whose page shows it; none for a program's.")
    status = models.CharField(max_length=10, choices=STATUSES, default=HoldStatus.HELD.value)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    objects = HoldQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["seat"],
                condition=~models.Q(status=HoldStatus.RELEASED.value),
                name="ticketing_one_holder_a_seat",
            )
        ]
        indexes = [
            models.Index(fields=["status", "expires_at"], name="ticketing_holds_by_end"),
            models.Index(fields=["visitor", "expires_at"], name="ticketing_holds_by_visitor"),
        ]

    def __str__(self) -> str:
        return f"{self.seat} for {self.holder}"

    @property
    def left_ms(self) -> int:
        """How long it still lasts, 0 once it has run out; asks for `with_now()`."""
        return seats.left_ms(self.expires_at, self.now)


class SeatMap(models.Model):
    event = models.OneToOneField(Event, on_delete=models.CASCADE, related_name="seat_map")
    svg = models.TextField()
    version = models.PositiveIntegerField(help_text="The version of the seats that it shows.")
    drawn_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.event}, version {self.version}"

    @classmethod
    def store(cls, event: Event, svg: str, version: int) -> bool:
        """Keep a drawing unless a newer one is there; returns whether it was kept. To store one twice changes nothing."""
        with transaction.atomic():
            drawn = {"svg": svg, "version": version, "drawn_at": Now()}
            _, created = cls.objects.get_or_create(event=event, defaults=drawn)
            return created or bool(cls.objects.filter(event=event, version__lte=version).update(**drawn))
