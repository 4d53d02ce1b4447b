"""Names the app to Django."""

from django.apps import AppConfig


class TicketingConfig(AppConfig):
    name = "ticketing"
    verbose_name = "Ticketing"
    default_auto_field = "django.db.models.BigAutoField"
