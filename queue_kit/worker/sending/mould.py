"""Makes the messages of many jobs from that of the first; Celery's way to a message, gone a thousand times, takes longer than
Redis needs for the jobs.

The first job of a batch goes the whole way: routes, options, headers. A mould is taken from it, and proves itself by casting that
first message again, letter for letter; where it cannot, and where somebody listens to each send, all jobs go the whole way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from os import urandom
from typing import Any

from celery import signals
from celery.app import task as stock
from celery.app.amqp import AMQP
from celery.utils.saferepr import saferepr

from queue_kit.errors import InvalidPayload
from queue_kit.rules.brief import brief_repr
from queue_kit.rules.packing import MARK, unpack
from queue_kit.store import Message
from queue_kit.transport.envelope import Posting, brief_json
from queue_kit.worker.sending.options import as_json, check_size


class Mould:
    """Casts postings that differ from the first in id and keyword arguments alone."""

    def __init__(self, task: Any, first: Posting) -> None:
        self._name, self._first = task.name, first
        self._most = task.app.queue_kit.settings.job_payload_size_limit_bytes
        self._amqp, self._levels = task.app.amqp, task.app.conf.task_repr_maxlevels
        head, _, self._sample = first.message.body.partition("\n")
        self._headers, *self._others = json.loads(head.removeprefix(MARK))
        self._end = f", {json.dumps(json.loads(_body_of(first))[2])}]"
        self._kept_end = self._end if self._sample.endswith(self._end) else ""
        self._brief = self._head(None)

    def cast(self, fields: Mapping[str, Any], job_id: str = "") -> Posting:
        """The posting of a job with these keyword arguments, which have been checked.

        :raises InvalidPayload: it is too large, or cannot be serialized.
        """
        first, body = self._first, f"[[], {self._as_json(fields)}"
        check_size(self._name, len(body) + len(self._end), self._most)
        brief = brief_repr(fields, "{}", self._amqp.kwargsrepr_maxsize)
        head = self._brief if brief else self._head(saferepr(fields, self._amqp.kwargsrepr_maxsize, maxlevels=self._levels))
        message = Message(f"{head}{body}{self._kept_end}", first.message.queue, first.message.name, first.message.nesting)
        return Posting(
            job_id or _new_id(), message, first.when, first.priority, first.expires_at_ms, first.correlation_id, first.unique
        )

    def _head(self, shown: str | None) -> str:
        """What stands before the body; with the arguments as they are shown, where the worker could not tell from the body."""
        headers = {}
        for name, value in self._headers.items():
            if name == "origin" and shown is not None:
                headers["kwargsrepr"] = shown
            if name != "kwargsrepr":
                headers[name] = value
        return f"{MARK}{brief_json([headers, *self._others])}\n"

    def _as_json(self, fields: Mapping[str, Any]) -> str:
        try:
            return json.dumps(fields)
        except TypeError:  # what only kombu can say, such as a date
            return as_json(self._name, fields)


def _new_id() -> str:
    """A random UUID as Celery gives one, in a third of the time."""
    h = urandom(16).hex()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"


def _body_of(posting: Posting) -> str:
    """The body of a message as its worker will have it."""
    message = posting.message
    if not message.body.startswith(MARK):
        raise ValueError("it is not packed")
    return str(unpack(message.body, posting.id, message.name, message.queue)["body"])


def mould_of(task: Any, first: Posting, fields: Mapping[str, Any]) -> Mould | None:
    """A mould of this first job, which was sent with these keyword arguments; ``None`` where each job must go the whole way."""
    if not _nobody_looks(task):
        return None
    try:
        mould = Mould(task, first)
        same = mould.cast(fields, first.id).message.body == first.message.body
    except (KeyError, TypeError, ValueError, InvalidPayload):
        return None
    return mould if same else None


def _nobody_looks(task: Any) -> bool:
    """Whether nothing in this process wants to see, or to change, each send by itself."""
    app = task.app
    listeners = (signals.before_task_publish, signals.after_task_publish)
    routes = app.conf.task_routes
    return not (
        any(signal.receivers for signal in listeners)
        or app.conf.task_send_sent_event
        or task._dump_pydantic_arguments is not None
        or (routes and not isinstance(routes, Mapping))
        or not all(_is_celerys(_found(task, name)) for name in ("apply_async", "shadow_name"))
        or _below(app.amqp, "as_task_v2") is not AMQP.as_task_v2
    )


def _found(task: Any, name: str) -> Any:
    """A method as the task has it beside ours."""
    kinds = (vars(kind) for kind in type(task).__mro__ if not kind.__module__.startswith("queue_kit.worker."))
    return next(members[name] for members in kinds if name in members)


def _is_celerys(function: Callable[..., Any]) -> bool:
    return getattr(getattr(function, "__code__", None), "co_filename", "") == stock.__file__


def _below(amqp: Any, name: str) -> Any:
    """A method as the app had it before ours was mixed in."""
    later = type(amqp).__mro__
    ours = next(index for index, kind in enumerate(later) if kind.__name__ == "_JobAMQP")
    return next(vars(kind)[name] for kind in later[ours + 1 :] if name in vars(kind))
