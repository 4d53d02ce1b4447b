"""What beat sends, and when. Free of models, since the settings import it."""

from datetime import UTC, datetime, timedelta

from celery.beat import BeatLazyFunc
from celery.schedules import crontab

# Longer than anybody replays a job that has failed: a mark forgotten earlier would let its effect happen twice.
KEPT = timedelta(days=30)


def kept_since(now: datetime | None = None) -> str:
    """Return the start of the day, 30 days ago: the same for every beat and every run of one day."""
    day = (now or datetime.now(UTC)) - KEPT
    return day.replace(hour=0, minute=0, second=0, microsecond=0).isoformat()


BEAT_SCHEDULE = {
    "maintenance-cleanup": {
        "task": "maintenance.cleanup",
        "schedule": crontab(minute="17", hour="3"),
        # Beat works it out when it sends the job; the job itself never looks at the clock.
        "kwargs": {"before": BeatLazyFunc(kept_since)},
        "options": {"queue": "maintenance"},
    },
    # For holds and drawings whose job was never sent: their web process died between the commit and the send.
    "tidy-box-office": {"task": "tidy-box-office", "schedule": 60.0, "options": {"queue": "holds"}},
}
