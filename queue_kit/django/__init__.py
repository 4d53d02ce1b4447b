"""For Django projects: add ``queue_kit.django`` to INSTALLED_APPS. Nothing below this package knows Django."""

from queue_kit.django import outbox
from queue_kit.django.conf import install
from queue_kit.django.on_commit import OnCommit, enqueue_on_commit
from queue_kit.django.once import forget_claims, once

__all__ = ["OnCommit", "enqueue_on_commit", "forget_claims", "install", "once", "outbox"]
