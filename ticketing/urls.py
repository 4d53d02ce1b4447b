"""The addresses of ticketing: pages end in a slash, what programs use does not."""

from django.urls import path

from ticketing import views

app_name = "ticketing"

urlpatterns = [
    path("", views.index, name="index"),
    path("events/<int:event_id>/", views.event, name="event"),
    path("events/<int:event_id>/hold/", views.hold_by_form, name="hold-by-form"),
    path("events/<int:event_id>/seat-map.svg", views.seat_map, name="seat-map"),
    path("events/<int:event_id>/holds", views.hold, name="hold"),
    path("holds/<uuid:hold_id>", views.hold_status, name="hold-status"),
    path("holds/<uuid:hold_id>/purchase", views.purchase, name="purchase"),
]
