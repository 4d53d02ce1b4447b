"""What the doctor says of the outbox; without it a relay that does not run would be noticed by jobs that do not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.apps import apps
from django.db import Error as DatabaseError
from django.db import connections
from django.db.models import Count, Min
from django.utils import timezone

from queue_kit.observe.doctor import Finding, Verdict

#: A relay looks ten times a second; what has waited for longer than this has none, or one that cannot send.
_LONG_S: Final = 60


def examine_outbox() -> list[Finding]:
    """Look at the outbox of each database that has one."""
    return [finding for alias in connections for finding in _of(alias)]


def _of(alias: str) -> Iterator[Finding]:
    model: Any = apps.get_model("queue_kit", "OutboxJob")
    try:
        if model._meta.db_table not in connections[alias].introspection.table_names():
            return
        rows = model._base_manager.using(alias)
        waiting = rows.filter(state="pending").aggregate(many=Count("pk"), since=Min("added_at"))
        failed = rows.filter(state="failed").count()
    except DatabaseError as error:
        yield Finding(Verdict.BAD, "outbox", f"that of database {alias} cannot be read: {error}", "see DATABASES")
        return
    waits_s = (timezone.now() - waiting["since"]).total_seconds() if waiting["many"] else 0
    if waits_s > _LONG_S:
        says = f"{waiting['many']} rows wait in database {alias}, the oldest for {waits_s:.0f} s"
        yield Finding(Verdict.BAD, "outbox", says, f"run manage.py outbox_relay --database {alias}, or read its log")
    if failed:
        says = f"{failed} rows in database {alias} can never be sent as they are"
        yield Finding(Verdict.WARN, "outbox", says, "read their errors in the admin; then outbox_relay --retry-failed")
    if waits_s <= _LONG_S and not failed:
        yield Finding(Verdict.OK, "outbox", f"nothing is stuck in that of database {alias}")
