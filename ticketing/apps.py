"""Names the app to Django."""

from importlib import import_module

from django.apps import AppConfig


class TicketingConfig(AppConfig):
    name = "ticketing"
    verbose_name = "Ticketing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Declare the jobs: a web process sends them by name, and never imports them otherwise."""
        import_module("ticketing.tasks")
