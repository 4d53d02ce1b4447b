"""Makes a job's message now and sends it later; without it what a transaction wants sent would be checked only after the commit,
when nobody can take it back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kombu.utils.uuid import uuid

from queue_kit.errors import UnsupportedOperation
from queue_kit.transport.envelope import Posting
from queue_kit.worker.sending.enqueue import Enqueued, declared_task, fields_of, handle_of, options_of
from queue_kit.worker.sending.producer import Collector


class _Keeper(Collector):
    """Keeps one job until it is let go."""

    def __init__(self, app: Any, name: str) -> None:
        super().__init__(app)
        self._name = name
        self.keeping = True

    @property
    def real(self) -> Any:
        """A producer of kombu's. What needs one to be sent would be sent at once.

        :raises UnsupportedOperation: the job is to be kept.
        """
        if self.keeping:
            raise UnsupportedOperation(f"{self._name}: it goes through an exchange of its own and cannot be kept; use enqueue")
        return super().real


@dataclass(slots=True)
class Prepared:
    """A job that is checked and has its id, and is not sent. ``posting`` is ``None`` where Celery runs tasks eagerly."""

    id: str
    app: Any = field(repr=False)
    posting: Posting | None = field(default=None, repr=False)
    _keeper: _Keeper | None = field(default=None, repr=False)
    _eager: Callable[[], Any] | None = field(default=None, repr=False)

    def send(self) -> Enqueued:
        """Send it; that Redis did not take it shows in ``error`` of the answer."""
        if self._keeper is None:
            assert self._eager is not None
            return Enqueued(self._eager().id)
        self._keeper.keeping = False
        with self._keeper:
            return handle_of(self.id, self._keeper.send()[0])

    def hand_over(self) -> None:
        """Tell Celery's signal that it is sent, though it is somebody else who sends it: listeners wait for the end of what they
        heard begin. Monitors hear nothing, since they are told through Redis.
        """
        if self._keeper is not None and not self.app.conf.task_send_sent_event:
            self._keeper.announce(self.id)


def prepare(name: str, payload: Any = None, **options: Any) -> Prepared:
    """Check a job and make its message, as :func:`queue_kit.enqueue` does; its id and its payload are fixed from here on.

    A delay counts from when it is sent.

    :raises: what ``enqueue`` raises, but for ``QueueUnavailable``: Redis is not asked.
    :raises UnsupportedOperation: it goes through an exchange of its own.
    """
    task = declared_task(name)
    return prepare_task(task, (), fields_of(task, payload), options_of(options))


def prepare_task(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Prepared:
    """The same for arguments and options as ``apply_async`` takes them."""
    job_id: str = options.setdefault("task_id", uuid())
    if task.app.conf.task_always_eager:
        task.declared.check(args, kwargs)
        return Prepared(job_id, task.app, _eager=partial(task.apply_async, args, kwargs, **options))
    keeper = _Keeper(task.app, task.name)
    task.apply_async(args, kwargs, **{**options, "producer": keeper})
    return Prepared(job_id, task.app, keeper.postings[0], keeper)
