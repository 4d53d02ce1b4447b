"""Takes away what is no longer needed; safe to run twice, since what is deleted depends on `before` alone, not on when it runs.

Here and not in an app: it knows what all of them leave behind.
"""

from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone
from pydantic import AwareDatetime, BaseModel, field_validator

from queue_kit import job
from queue_kit.django import forget_claims


class Cleanup(BaseModel):
    before: AwareDatetime

    @field_validator("before")
    @classmethod
    def is_past(cls, before: datetime) -> datetime:
        if before > timezone.now():
            raise ValueError("a time in the past is needed: what is in use now must stay")
        return before


@job("maintenance.cleanup", queue="maintenance", payload=Cleanup)
def cleanup(payload: Cleanup) -> dict[str, int]:
    """Delete what was left before an instant, and return how much of each."""
    return {
        "claims": forget_claims(payload.before),
        "sessions": Session.objects.filter(expire_date__lt=payload.before).delete()[0],
        "unfinished_reports": remove_unfinished(Path(settings.EXAMHALL_REPORTS_DIR), payload.before),
    }


def remove_unfinished(folder: Path, before: datetime) -> int:
    """Delete the halves of reports whose writers were killed, and return how many there were."""
    removed = 0
    for path in folder.glob(".*.csv.*"):
        try:
            if path.stat().st_mtime < before.timestamp():
                path.unlink()
                removed += 1
        except FileNotFoundError:  # its writer has finished it, or another run of this was quicker
            pass
    return removed
