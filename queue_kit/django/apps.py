"""Names the app to Django, and has its checks run."""

from django.apps import AppConfig
from django.core import checks


class QueueKitConfig(AppConfig):
    """The label is ``queue_kit``: tables and permissions are named by it."""

    name = "queue_kit.django"
    label = "queue_kit"
    verbose_name = "Queue kit"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Checks see what the settings say when they run, and no app is needed before."""
        from queue_kit.django.checks import TAG, check_deployment, check_project  # noqa: PLC0415 - they know the models

        checks.register(check_project, TAG)
        checks.register(check_deployment, TAG, deploy=True)
