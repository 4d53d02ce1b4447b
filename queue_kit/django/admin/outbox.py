"""The outbox in the admin: what waits to be sent, what was, and what never can be; without it a relay that does not run would be
noticed by its jobs not coming.
"""

from __future__ import annotations

import json

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html

from queue_kit.django.admin.pages import ReadOnlyAdmin
from queue_kit.django.conf import project_settings
from queue_kit.django.models import OutboxJob
from queue_kit.django.quoting import quoted
from queue_kit.django.templatetags.queue_kit_admin import printable
from queue_kit.rules.redaction import Redactor
from queue_kit.store.letters import VERSION, open_letter


@admin.register(OutboxJob)
class OutboxAdmin(ReadOnlyAdmin):
    """Read only: a row is made by its transaction, and marked by a relay."""

    list_display = ("job_id", "name", "queue", "state", "added_at", "sent_at", "shown_error")
    list_filter = ("state",)
    search_fields = ("=job_id", "=correlation_id")
    search_help_text = "Job id or correlation id."
    ordering = ("-id",)
    # A count of a table that grows with every job would take longer than the page.
    show_full_result_count = False
    fields = (
        "job", "name", "queue", "correlation_id", "state", "added_at", "sent_at", "sent_as", "shown_error", "payload",
    )  # fmt: skip
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        rows = super().get_queryset(request)
        return rows if _is_one(request) else rows.defer("posting")

    @admin.display(description="job id")
    def job(self, row: OutboxJob) -> str:
        """Its id, which leads to what became of it once it is sent."""
        if row.state != OutboxJob.State.SENT:
            return row.job_id
        sent_as = row.sent_as or row.job_id
        address = reverse(f"{self.admin_site.name}:queue_kit_queue_job", args=[quoted(sent_as)])
        return format_html('<a href="{}">{}</a>', address, row.job_id)

    @admin.display(description="error")
    def shown_error(self, row: OutboxJob) -> str:
        return str(printable(_redactor().text(row.error)))

    @admin.display(description="payload")
    def payload(self, row: OutboxJob) -> str:
        """As the pages of dead letters show it: without secrets."""
        return render_to_string("queue_kit/payload.html", {"payload": open_letter("", _record(row), _redactor()).payload})


def _is_one(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and "object_id" in match.kwargs


def _redactor() -> Redactor:
    return Redactor.of(project_settings().dead_letter_redact)


def _record(row: OutboxJob) -> dict[str, str]:
    """The row in the words of a dead letter. What is no posting is shown as what it is."""
    try:
        message = str(json.loads(row.posting)["message"]["body"])
    except (ValueError, LookupError, TypeError):
        message = row.posting
    return {"version": str(VERSION), "message": message}
