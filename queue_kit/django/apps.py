"""Names the app to Django."""

from django.apps import AppConfig


class QueueKitConfig(AppConfig):
    """The label is ``queue_kit``: tables and permissions are named by it."""

    name = "queue_kit.django"
    label = "queue_kit"
    verbose_name = "Queue kit"
    default_auto_field = "django.db.models.BigAutoField"
