"""Names the app to Django."""

from django.apps import AppConfig


class ExamHallConfig(AppConfig):
    name = "examhall"
    verbose_name = "ExamHall"
    default_auto_field = "django.db.models.BigAutoField"
