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


def a_minute_ago() -> str:
    """Return the instant before which nobody hands in by hand any more: past the bell, its grace and a slow request."""
    return (datetime.now(UTC) - timedelta(minutes=1)).isoformat()


BEAT_SCHEDULE = {
    "maintenance-cleanup": {
        "task": "maintenance.cleanup",
        "schedule": crontab(minute="17", hour="3"),
        # Beat works it out when it sends the job; the job itself never looks at the clock.
        "kwargs": {"before": BeatLazyFunc(kept_since)},
        "options": {"queue": "maintenance"},
    },
    # For browsers that died before the bell, or were closed while the queue was away; one that waits is as good as two.
    "papers-collect": {
        "task": "papers.collect",
        "schedule": 30.0,
        "kwargs": {"rung_before": BeatLazyFunc(a_minute_ago)},
        "options": {"queue": "maintenance", "expires": 30},
    },
    # For holds and drawings whose job was never sent: their web process died between the commit and the send.
    "tidy-box-office": {"task": "tidy-box-office", "schedule": 60.0, "options": {"queue": "holds"}},
}
