"""The outbox in the admin: read by whoever may, changed by nobody, and without secrets."""

from __future__ import annotations

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from queue_kit.django import outbox
from queue_kit.django.models import OutboxJob
from tests.django.admin_site import browser_of, person
from tests.worker.sending import sending

pytestmark = pytest.mark.django_db

LIST = "/admin/queue_kit/outboxjob/"


@pytest.fixture
def viewer() -> Client:
    return browser_of(person("viewer", "view_outboxjob"))


@pytest.fixture
def row() -> OutboxJob:
    """One that holds a password, and markup. Nothing of Redis is needed."""
    with sending("redis://127.0.0.1:1/0"):
        payload = {"value": {"password": "hunter2", "note": "<script>alert(1)</script>"}}
        outbox.add("enq.free", payload, correlation_id="order:42")
    return OutboxJob.objects.get()


def test_the_list_shows_what_waits_what_was_sent_and_what_failed(viewer: Client, row: OutboxJob) -> None:
    OutboxJob.objects.update(state="failed", error="no job can be read from it: password=hunter2 <script>")
    page = viewer.get(LIST).content.decode()
    assert row.job_id in page
    assert "Failed" in page
    assert "&lt;script&gt;" in page
    assert "hunter2" not in page
    assert "<script>alert" not in page


@pytest.mark.parametrize("query", ["order:42", "{job_id}"])
def test_a_row_is_found_by_job_id_and_by_correlation_id(viewer: Client, row: OutboxJob, query: str) -> None:
    assert row.job_id in viewer.get(LIST, {"q": query.format(job_id=row.job_id)}).content.decode()
    assert row.job_id not in viewer.get(LIST, {"q": "nothing"}).content.decode()


def test_one_is_shown_whole_and_redacted(viewer: Client, row: OutboxJob) -> None:
    page = viewer.get(f"{LIST}{row.pk}/change/").content.decode()
    assert "[redacted]" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "hunter2" not in page


def test_a_row_that_holds_no_posting_is_shown_all_the_same(viewer: Client, row: OutboxJob) -> None:
    OutboxJob.objects.update(posting="<script>no posting")
    page = viewer.get(f"{LIST}{row.pk}/change/")
    assert page.status_code == 200
    assert "&lt;script&gt;no posting" in page.content.decode()


def test_one_that_was_sent_leads_to_its_job(viewer: Client, row: OutboxJob) -> None:
    address = f'href="{reverse("admin:queue_kit_queue_job", args=[quote(row.job_id)])}"'
    assert address not in viewer.get(f"{LIST}{row.pk}/change/").content.decode()
    OutboxJob.objects.update(state="sent")
    assert address in viewer.get(f"{LIST}{row.pk}/change/").content.decode()


def test_nobody_changes_a_row(row: OutboxJob) -> None:
    """A superuser neither: what a relay reads is what its transaction wrote."""
    browser = browser_of(User.objects.create_superuser("root"))
    assert browser.get(f"{LIST}add/").status_code == 403
    assert browser.post(f"{LIST}{row.pk}/change/", {"state": "sent"}).status_code == 403
    assert browser.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert browser.post(LIST, {"action": "delete_selected", "_selected_action": [row.pk]}).status_code in (200, 302, 403)
    assert OutboxJob.objects.get().state == "pending"


def test_who_has_no_permission_sees_nothing(row: OutboxJob) -> None:
    assert browser_of(person("other", "view_queue")).get(LIST).status_code == 403
    assert Client().get(LIST).status_code == 302
