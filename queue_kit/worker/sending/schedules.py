"""Jobs that are sent again and again, by schedules that Redis keeps; without them each deployment would carry its own list, and
two beats would send everything twice. :mod:`queue_kit.worker.sending.beat` sends them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import RedisError

from queue_kit.errors import InvalidPayload, QueueUnavailable
from queue_kit.store.schedule_book import ScheduleBook
from queue_kit.worker.apps import app_with_queue_kit
from queue_kit.worker.sending.enqueue import declared_task
from queue_kit.worker.sending.timing import Timing, read_timing, timing_of

_ID: Final = re.compile(r"[\w.@/-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule. ``last_at_ms``: when it has fired last, or since when it counts; ``next_at_ms``: when it fires next.

    Both in milliseconds since the epoch. ``timing``: its interval or crontab, in words.
    """

    id: str
    name: str
    payload: dict[str, Any]
    timing: str
    last_at_ms: int
    next_at_ms: int


class Schedules:
    """The schedules of one app; see :func:`schedules`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    @property
    def book(self) -> ScheduleBook:
        """Where they are kept."""
        kit = self._app.queue_kit
        return ScheduleBook(kit.sender.client, kit.settings.queue_prefix)

    def upsert(
        self, id: str, name: str, payload: Any = None, *, every_ms: int | None = None, crontab: Any = None,  # noqa: A002
        timezone: str | None = None,
    ) -> bool:  # fmt: skip
        """Keep a schedule under ``id``, in the place of one that has it; return whether it is new.

        Each fire time becomes one job, with the id ``schedule:<id>:<fire time in ms>``, however many beats there are. Of fire
        times that no beat was there for only the latest is made up for.

        :param name: a declared job.
        :param every_ms: at each multiple of so many milliseconds since the epoch, 100 to a year.
        :param crontab: Celery's crontab, or its five fields as text: minute, hour, day of month, month, day of week.
        :param timezone: of the crontab; that of the app if left out.
        :raises ValueError: names what is wrong: the id, every_ms, the crontab, the time zone.
        :raises UnknownJob: no job of this name is declared in this process.
        :raises InvalidPayload: names each field at fault.
        :raises QueueUnavailable: Redis could not take it.
        """
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise ValueError("id: 1 to 100 letters, digits or any of _ . @ / - are needed")
        timing = timing_of(every_ms, crontab, timezone or str(self._app.timezone))
        definition = {"name": name, "payload": _fields(name, payload), "timing": timing.words}
        return bool(self._ask(lambda: self.book.put(id, definition)))

    def list(self) -> list[Schedule]:
        """All schedules, by id.

        :raises QueueUnavailable: Redis could not be asked.
        """
        book = self.book
        found, last, now_ms = self._ask(lambda: (book.all(), book.last(), book.now_ms()))
        return [
            _view(schedule_id, definition, last.get(schedule_id, now_ms)) for schedule_id, definition in sorted(found.items())
        ]

    def remove(self, id: str) -> bool:  # noqa: A002 - the caller's word for it
        """Take a schedule away; jobs that it has sent stay. Return whether it was there.

        :raises QueueUnavailable: Redis could not be asked.
        """
        return bool(self._ask(lambda: self.book.remove(id)))

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except RedisError as error:
            raise QueueUnavailable(f"the queue is not available ({error})", sent="no") from error


def schedules(app: Any = None) -> Schedules:
    """The schedules of an app that has queue_kit; without ``app`` of this thread's current one.

    :raises ConfigurationError: there is no such app, or there are several.
    """
    return Schedules(app_with_queue_kit(app))


def _fields(name: str, payload: Any) -> dict[str, Any]:
    task = declared_task(name)
    fields: dict[str, Any] = task.declared.fields(payload)
    try:
        task.__header__(**fields)
        fields = fields if task.declared.payload is None else task.declared.dump(payload)
        json.dumps(fields)
    except (TypeError, ValueError) as error:
        raise InvalidPayload(f"{name}: {error}") from None
    return fields


def _view(schedule_id: str, definition: dict[str, Any], last_at_ms: int) -> Schedule:
    timing: Timing = read_timing(definition["timing"])
    return Schedule(
        schedule_id, definition["name"], definition["payload"], timing.words, last_at_ms, timing.following(last_at_ms)
    )
