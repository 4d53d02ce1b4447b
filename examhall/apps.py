"""Names the app to Django."""

from importlib import import_module

from django.apps import AppConfig


class ExamHallConfig(AppConfig):
    name = "examhall"
    verbose_name = "ExamHall"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Declare the jobs: a web process sends them by name, and never imports them otherwise."""
        for module in ("tasks", "mail", "report"):
            import_module(f"examhall.{module}")
