"""Events and holds in the admin, so that the box office needs no shell to see who holds a seat, and to free one."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from ticketing.box_office import give_back, redraw
from ticketing.models import Event, Hold, Venue

admin.site.register(Venue)


@admin.register(Event)
class EventAdmin(admin.ModelAdmin):
    list_display = ["title", "venue", "starts_at", "seats_version"]
    readonly_fields = ["seats_version"]


@admin.register(Hold)
class HoldAdmin(admin.ModelAdmin):
    """A hold is made by a customer and stays on record; what the box office may do is prolong it or free its seat."""

    list_display = ["seat", "event", "holder", "status", "expires_at"]
    list_filter = ["status", "seat__event"]
    list_select_related = ["seat__event"]
    search_fields = ["id", "holder"]
    readonly_fields = ["seat", "status", "created_at"]
    actions = ["free_seats"]

    @admin.display(ordering="seat__event")
    def event(self, hold: Hold) -> Event:
        return hold.seat.event

    @admin.action(description="Free the seats that are held", permissions=["change"])
    def free_seats(self, request: HttpRequest, holds: QuerySet[Hold]) -> None:
        freed = [hold for hold in holds.select_related("seat__event") if give_back(hold)]
        for event_id in {hold.seat.event_id for hold in freed}:
            redraw(event_id)
        messages.success(request, f"{len(freed)} freed; what was sold or free before is left as it was.")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Hold | None = None) -> bool:
        """Deleted, it would free a seat that the map goes on showing as taken."""
        return False
