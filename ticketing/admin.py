"""Events and holds in the admin, so that the box office needs no shell to see who holds a seat."""

from django.contrib import admin

from ticketing.models import Event, Hold, Venue

admin.site.register(Venue)


@admin.register(Event)
class EventAdmin(admin.ModelAdmin):
    list_display = ["title", "venue", "starts_at", "seats_version"]
    readonly_fields = ["seats_version"]


@admin.register(Hold)
class HoldAdmin(admin.ModelAdmin):
    list_display = ["seat", "holder", "status", "expires_at"]
    list_filter = ["status", "seat__event"]
    readonly_fields = ["seat", "status", "created_at"]
