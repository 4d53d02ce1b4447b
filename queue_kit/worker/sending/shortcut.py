"""The short way of a declared job that is sent without options, outside of any run, as this thread has sent it before; Celery's
own way, through routes, options and headers that come out the same each time, takes longer than Redis and the network do.

It is learnt from two sends by the long way, and left as soon as anything differs that could make a difference: settings, the
task, routes, queues, listeners, a fork. What it sends is what the long way would have sent.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final
from weakref import WeakKeyDictionary

from celery import signals
from celery._state import _task_stack
from celery.app import task as stock
from celery.app.amqp import _callback_publish_retry
from celery.backends.base import Backend

from queue_kit.errors import UnsupportedOperation
from queue_kit.store import AT_ONCE
from queue_kit.worker.sending.mould import Mould, mould_of
from queue_kit.worker.sending.prepare import prepare_task
from queue_kit.worker.sending.publish import tell

#: Sends by the long way before the short one is learnt, which costs as much as two.
_LEARNT_AFTER: Final = 2

#: What the mixin is mixed into; Celery is untyped.
_Host: Any = object


class QuickTask(_Host):
    """Mixed over the app's task class."""

    def apply_async(self, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        """Send as Celery does, by the short way where that is the same."""
        if not (args or more or options) and getattr(self, "declared", None) is not None:
            way = _way_of(self)
            if way is not None and way.is_open_for(self, kwargs or {}):
                return way.send(self, kwargs or {})
        return super().apply_async(args, kwargs, *more, **options)


class _Way:
    """What one thread knows of sending one task."""

    def __init__(self) -> None:
        self._mould: Mould | None = None
        self._sent = 0
        self._facts: tuple[Any, ...] = ()
        self._settings: dict[str, Any] = {}
        self._task: dict[str, Any] = {}

    def is_open_for(self, task: Any, kwargs: dict[str, Any]) -> bool:
        """Whether this send may go here: all is as it was at the sends before. Learns the way if it is time to."""
        facts, settings = _facts(task)
        if self._facts != facts or self._settings != settings or self._task != vars(task):
            self._facts, self._settings, self._task = facts, dict(settings), dict(vars(task))
            self._mould, self._sent = None, 0
        self._sent += 1
        if self._sent == _LEARNT_AFTER + 1:
            self._mould = _learn(task, kwargs)
        return self._mould is not None

    def send(self, task: Any, kwargs: dict[str, Any]) -> Any:
        """Send one job; return Celery's result for it."""
        assert self._mould is not None
        if task.typing:
            task.__header__(**kwargs)
        posting = self._mould.cast(task.declared.check((), kwargs))
        added = task.app.queue_kit.sender.send(posting)
        result = task.AsyncResult(posting.id)
        result.ignored = task.ignore_result
        return tell(result, added)


_THREAD = threading.local()  # by task, so that each app has its own


def _way_of(task: Any) -> _Way | None:
    """The short way of this thread for this task; ``None`` where what is sent depends on the run that sends it."""
    if _task_stack.top is not None or _callback_publish_retry.get() or task.app._conf is None:
        return None
    ways: WeakKeyDictionary[Any, _Way] = _THREAD.__dict__.setdefault("ways", WeakKeyDictionary())
    way = ways.get(task)
    if way is None:
        way = ways[task] = _Way()
    return way


def _facts(task: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All that a message follows from beside its arguments and the task; and the settings that the project has changed."""
    app = task.app
    amqp, conf = app.amqp, app._conf
    facts = (
        os.getpid(), id(conf), len(conf.maps), id(amqp), id(amqp.queues), len(amqp.queues), id(amqp._rtable),
        id(vars(app).get("send_task")), id(stock.Task.apply_async), id(type(task).apply_async),
        bool(signals.before_task_publish.receivers), bool(signals.after_task_publish.receivers),
    )  # fmt: skip
    return facts, conf.maps[0]


def _learn(task: Any, kwargs: dict[str, Any]) -> Mould | None:
    """A mould of what the long way would send now; ``None`` where each send has to go there."""
    backend = task.app.backend
    listens = "on_task_call" not in vars(backend) and type(backend).on_task_call is not Backend.on_task_call
    if listens and not task.ignore_result:
        return None
    try:
        first = prepare_task(task, (), kwargs, {}).posting
    except UnsupportedOperation:
        return None
    if first is None or first.expires_at_ms is not None or first.when != AT_ONCE:
        return None
    return mould_of(task, first, task.declared.check((), kwargs))
