"""The addresses of ticketing: pages end in a slash, what programs use does not."""

from django.urls import path

from ticketing import api, views

app_name = "ticketing"

urlpatterns = [
    path("", views.index, name="index"),
    path("events/<int:event_id>/", views.event, name="event"),
    path("events/<int:event_id>/live/", views.live, name="live"),
    path("events/<int:event_id>/hold/", views.hold, name="hold"),
    path("events/<int:event_id>/purchase/", views.purchase, name="purchase"),
    path("events/<int:event_id>/release/", views.release, name="release"),
    path("events/<int:event_id>/seat-map.svg", views.seat_map, name="seat-map"),
    path("events/<int:event_id>/holds", api.hold, name="api-hold"),
    path("holds/<uuid:hold_id>", api.hold_status, name="api-hold-status"),
    path("holds/<uuid:hold_id>/purchase", api.purchase, name="api-purchase"),
]
