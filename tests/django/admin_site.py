"""What the tests of the admin pages share: people with permissions, and jobs in the site's own Redis."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

LETTERS = "/admin/queue_kit/deadletter/"
QUEUES = "/admin/queue_kit/queue/"
ALL = ("view_deadletter", "replay_deadletter", "discard_deadletter", "export_deadletter", "view_queue", "control_queue")
VIEWING = ("view_deadletter", "view_queue")


def person(name: str, *permissions: str, password: str = "", staff: bool = True) -> User:
    """A user with these permissions and no others."""
    user = User.objects.create_user(name, password=password or None, is_staff=staff)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions, content_type__app_label="queue_kit"))
    return user


def browser_of(user: User, **options: Any) -> Client:
    """A client that is logged in."""
    client = Client(**options)
    client.force_login(user)
    return client
