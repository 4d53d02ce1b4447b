"""When a schedule fires. Fire times follow from the schedule alone, not from who asks or when a beat began: any number of beats
come to the same ones, and with them to the same ids of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from celery.schedules import ParseException, crontab, schedule

_LEAST_MS, _MOST_MS = 100, 31_536_000_000
_MINUTE_MS: Final = 60_000
#: How far to look back for the latest fire time, in steps: close first, since most schedules fire often.
_BACK_MS: Final = tuple(days * 86_400_000 for days in (1 / 24, 1, 32, 367, 8 * 366))


class Timing(Protocol):
    """The fire times of a schedule, in milliseconds since the epoch."""

    @property
    def words(self) -> str:
        """The schedule as it is kept and shown."""

    def following(self, after_ms: int) -> int:
        """The first fire time after an instant."""

    def latest(self, after_ms: int, now_ms: int) -> int | None:
        """The last fire time after one instant and not after another; ``None``: there is none. Those between are passed over."""


@dataclass(frozen=True)
class Every:
    """At each multiple of a duration, counted from the epoch."""

    every_ms: int

    @property
    def words(self) -> str:
        return f"every {self.every_ms}"

    def following(self, after_ms: int) -> int:
        return (after_ms // self.every_ms + 1) * self.every_ms

    def latest(self, after_ms: int, now_ms: int) -> int | None:
        fire_ms = now_ms // self.every_ms * self.every_ms
        return fire_ms if fire_ms > after_ms else None


@dataclass(frozen=True)
class Cron:
    """By five fields, in a time zone: minute, hour, day of month, month, day of week."""

    fields: str
    zone: str = "UTC"

    @property
    def words(self) -> str:
        return f"cron {self.fields} {self.zone}"

    @cached_property
    def _crontab(self) -> Any:
        minute, hour, day_of_month, month_of_year, day_of_week = self.fields.split()
        return crontab(minute, hour, day_of_week, day_of_month, month_of_year, nowfun=lambda: datetime.now(UTC))

    def following(self, after_ms: int) -> int:
        last, ahead, _ = self._crontab.remaining_delta(_instant(after_ms, self.zone), tz=ZoneInfo(self.zone))
        found_ms = int((last + ahead).timestamp() * 1000)
        # Where the clock is put back, the same minute comes again.
        return found_ms if found_ms > after_ms else self.following(after_ms + _MINUTE_MS)

    def latest(self, after_ms: int, now_ms: int) -> int | None:
        for back_ms in _BACK_MS:
            start_ms, found = max(after_ms, now_ms - int(back_ms)), None
            while (fire_ms := self.following(start_ms if found is None else found)) <= now_ms:
                found = fire_ms
            if found is not None or start_ms == after_ms:
                return found
        return None


def timing_of(every_ms: int | None, cron: Any, zone: str) -> Timing:
    """Check what a caller has asked for.

    :raises ValueError: for both or neither, a duration out of range, a crontab or time zone that is none.
    """
    if (every_ms is None) == (cron is None):
        raise ValueError("schedule: either every_ms or crontab is needed")
    if every_ms is not None:
        if isinstance(every_ms, bool) or not isinstance(every_ms, int) or not _LEAST_MS <= every_ms <= _MOST_MS:
            raise ValueError(f"every_ms: a whole number from {_LEAST_MS} to {_MOST_MS} is needed")
        return Every(every_ms)
    timing = Cron(cron if isinstance(cron, str) else _fields_of(cron), zone)
    try:
        ZoneInfo(zone)
        timing.following(0)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"timezone: {zone!r} is not known here") from error
    except (ValueError, TypeError, ParseException, RuntimeError) as error:
        raise ValueError(f"crontab: five fields are needed, such as '*/5 3 * * mon-fri' ({error})") from error
    return timing


def read_timing(words: str) -> Timing:
    """The timing that was kept as these words."""
    kind, _, rest = words.partition(" ")
    if kind == "every":
        return Every(int(rest))
    fields, _, zone = rest.rpartition(" ")
    return Cron(fields, zone)


def timing_of_celery(planned: Any, zone: str) -> Timing:
    """The timing of an entry of Celery's ``beat_schedule``.

    :raises ValueError: it is of a kind that fires at other times for each beat.
    """
    if isinstance(planned, crontab):
        return timing_of(None, planned, zone)
    if type(planned) is schedule:
        return timing_of(round(planned.run_every.total_seconds() * 1000), None, zone)
    raise ValueError(f"{type(planned).__name__}: give it in seconds or as a crontab")


def _fields_of(cron: Any) -> str:
    if not isinstance(cron, crontab):
        raise ValueError("crontab: five fields, or Celery's crontab, are needed")
    parts = (cron._orig_minute, cron._orig_hour, cron._orig_day_of_month, cron._orig_month_of_year, cron._orig_day_of_week)
    return " ".join("".join(str(part).split()) for part in parts)


def _instant(at_ms: int, zone: str) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(zone))
