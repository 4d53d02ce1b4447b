"""The cleanup: what it deletes depends on the instant it is given, not on when or how often it runs; beat gives the instant."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from queue_kit import InvalidPayload


@pytest.fixture
def cleanup(db: None) -> Any:
    from deploy.maintenance import cleanup  # noqa: PLC0415 - it knows models, so Django first

    return cleanup


def run(cleanup: Any, before: datetime) -> dict[str, int]:
    found: dict[str, int] = cleanup.apply(kwargs={"before": before.isoformat()}, throw=True).get()
    return found


def days_ago(days: float) -> datetime:
    return timezone.now() - timedelta(days=days)


@pytest.fixture
def leftovers(db: None, settings: Any, tmp_path: Path) -> Path:
    """Of each kind one that is 40 days old and one of today."""
    settings.EXAMHALL_REPORTS_DIR = str(tmp_path)
    sessions, claims = apps.get_model("sessions", "Session"), apps.get_model("queue_kit", "Claim")
    for name, at in (("old", days_ago(40)), ("new", days_ago(0))):
        sessions.objects.create(session_key=name, session_data="", expire_date=at)
        claims.objects.create(job_name="j", key=name, job_id="j")
        claims.objects.filter(key=name).update(claimed_at=at)
        for file in (f".exam.csv.{name}", f"{name}.csv"):
            (tmp_path / file).touch()
            os.utime(tmp_path / file, (at.timestamp(), at.timestamp()))
    return tmp_path


def test_what_is_older_goes_and_a_second_run_finds_nothing(cleanup: Any, leftovers: Path) -> None:
    """SPEC 6: naturally idempotent."""
    before = days_ago(30)
    assert run(cleanup, before) == {"claims": 1, "sessions": 1, "unfinished_reports": 1}
    assert run(cleanup, before) == {"claims": 0, "sessions": 0, "unfinished_reports": 0}
    assert sorted(path.name for path in leftovers.iterdir()) == [".exam.csv.new", "new.csv", "old.csv"]


def test_without_a_folder_of_reports_there_is_none_to_remove(cleanup: Any, settings: Any, tmp_path: Path) -> None:
    settings.EXAMHALL_REPORTS_DIR = str(tmp_path / "nowhere")
    assert run(cleanup, days_ago(1))["unfinished_reports"] == 0


@pytest.mark.parametrize("before", ["2026-01-01T00:00:00", "tomorrow", "2999-01-01T00:00:00+00:00"])
def test_an_instant_that_is_none_or_not_past_is_refused(cleanup: Any, before: str) -> None:
    """What is in use now must stay."""
    with pytest.raises(InvalidPayload, match="before"):
        cleanup.declared.dump({"before": before})


def test_every_beat_of_one_day_gives_the_same_instant() -> None:
    from deploy.schedule import kept_since  # noqa: PLC0415

    early, late = datetime(2026, 11, 30, 0, 0, 1, tzinfo=UTC), datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
    assert kept_since(early) == kept_since(late) == "2026-10-31T00:00:00+00:00"


def test_the_schedule_names_a_job_that_takes_what_beat_works_out(cleanup: Any) -> None:
    """What beat itself would send, at the time of sending."""
    from celery.beat import _evaluate_entry_kwargs  # noqa: PLC0415 - private, and the only way to send as beat does

    from deploy import celery_app  # noqa: PLC0415

    entry = celery_app.conf.beat_schedule["maintenance-cleanup"]
    assert entry["task"] == cleanup.name
    assert entry["options"]["queue"] in celery_app.amqp.queues
    sent = cleanup.declared.dump(_evaluate_entry_kwargs(entry["kwargs"]))
    assert timezone.now() - datetime.fromisoformat(sent["before"]) >= timedelta(days=30)
