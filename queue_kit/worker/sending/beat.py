"""Celery's beat for schedules in Redis: ``celery -A app beat -S queue_kit``, as many as one likes.

Stock beat keeps what it has sent in a file of its own, so that a second one sends everything twice, and none at all is sent
while the only one is down. Here each fire time is one job by its id, whoever sends it; the app's own ``beat_schedule`` too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from celery.beat import BeatLazyFunc
from celery.beat import Scheduler as StockScheduler
from celery.utils.log import get_logger
from redis.exceptions import RedisError

from queue_kit.errors import QueueUnavailable
from queue_kit.worker.apps import app_with_queue_kit
from queue_kit.worker.sending.schedules import Schedules
from queue_kit.worker.sending.timing import Timing, read_timing, timing_of_celery

logger = get_logger(__name__)

#: How often to look for schedules that others have written or removed, at the latest.
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """What to send, and when."""

    id: str
    timing: Timing
    send: Callable[[str], None]


class Scheduler(StockScheduler):
    """Sends what is due; of fire times that were missed, the latest only."""

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        self._book = Schedules(app_with_queue_kit(app)).book
        self._own: list[Planned] = []
        self._failing = False
        super().__init__(app, *args, **kwargs)

    def setup_schedule(self) -> None:
        """Read the app's own ``beat_schedule``; what Redis keeps is read at each tick."""
        super().setup_schedule()
        for name, entry in self.data.items():
            try:
                timing = timing_of_celery(entry.schedule, str(self.app.timezone))
            except ValueError as error:
                logger.warning("beat_schedule: %s is left out: %s", name, error)
                continue
            self._own.append(Planned(name, timing, self._sending(entry.task, entry.args, entry.kwargs, entry.options)))

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; answer after how many seconds to look again."""
        try:
            wait_s = self._look()
        except (RedisError, QueueUnavailable, OSError) as error:
            if not self._failing:
                logger.warning("schedules: Redis does not answer, going on trying: %s", error)
            self._failing = True
            return _LOOK_S
        self._failing = False
        return wait_s

    def _look(self) -> float:
        now_ms, last, due_ms = self._book.now_ms(), self._book.last(), []
        for planned in [*self._own, *self._kept()]:
            since_ms = last.get(planned.id)
            if since_ms is None:
                self._book.notice(planned.id, now_ms)
            elif (fire_at_ms := planned.timing.latest(since_ms, now_ms)) is not None:
                self._fire(planned, fire_at_ms)
            due_ms.append(planned.timing.following(now_ms))
        return max(0.001, min([_LOOK_S, *((at_ms - now_ms) / 1000 for at_ms in due_ms)]))

    def _kept(self) -> list[Planned]:
        return [
            Planned(schedule_id, read_timing(kept["timing"]), self._sending(kept["name"], (), kept["payload"], {}))
            for schedule_id, kept in self._book.all().items()
        ]

    def _fire(self, planned: Planned, fire_at_ms: int) -> None:
        """Send, then remember: a beat that dies between leaves it to another, whose send is of the same job."""
        try:
            planned.send(f"schedule:{planned.id}:{fire_at_ms}")
        except (RedisError, QueueUnavailable, OSError):
            raise
        except Exception:
            logger.exception("schedule %s could not send its job, and would not by trying again", planned.id)
        self._book.fired(planned.id, fire_at_ms)

    def _sending(self, name: str, args: Any, kwargs: Any, options: Any) -> Callable[[str], None]:
        def send(job_id: str) -> None:
            task = self.app.tasks.get(name)
            sent = {**(options or {}), "task_id": job_id}
            # As stock beat does: an argument may be worked out at the time of sending.
            now_args = [_worked_out(value) for value in args or ()]
            now_kwargs = {field: _worked_out(value) for field, value in (kwargs or {}).items()}
            if task is None:
                self.app.send_task(name, now_args, now_kwargs, **sent)
            else:
                task.apply_async(now_args, now_kwargs, **sent)
            logger.info("schedule: job %s[%s] is sent", name, job_id)

        return send


def _worked_out(value: Any) -> Any:
    return value() if isinstance(value, BeatLazyFunc) else value
