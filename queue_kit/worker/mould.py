"""Makes the messages of many jobs from that of the first; Celery's way to a message, gone a thousand times, takes longer than
Redis needs for the jobs.

The first job of a batch goes the whole way: routes, options, headers. A mould is taken from it, and proves itself by casting that
first message again, letter for letter; where it cannot, and where somebody listens to each send, all jobs go the whole way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from celery import signals
from celery.app import task as stock
from celery.app.amqp import AMQP
from celery.utils.saferepr import saferepr
from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

from queue_kit.errors import InvalidPayload
from queue_kit.store import Message
from queue_kit.transport.envelope import Posting
from queue_kit.worker.brief import brief_repr
from queue_kit.worker.options import as_json, check_size


class Mould:
    """Casts postings that differ from the first in id and keyword arguments alone."""

    def __init__(self, task: Any, first: Posting) -> None:
        self._name, self._first = task.name, first
        self._most = task.app.queue_kit.settings.job_payload_size_limit_bytes
        self._amqp, self._levels = task.app.amqp, task.app.conf.task_repr_maxlevels
        message = json.loads(first.message.body)
        self._embed = json.dumps(json.loads(message["body"])[2])
        slots = {name: uuid() for name in ("id", "shown", "body")}
        headers, properties = message["headers"], message["properties"]
        headers["kwargsrepr"], message["body"] = slots["shown"], slots["body"]
        for holder, field in ((headers, "id"), (headers, "root_id"), (properties, "correlation_id")):
            if holder[field] == first.id:
                holder[field] = slots["id"]
        names = {slot: name for name, slot in slots.items()}
        parts = re.split(f'"({"|".join(names)})"', dumps(message))
        self._parts = [names.get(part, part) for part in parts]
        self._open = [index for index, part in enumerate(parts) if part in names]

    def cast(self, fields: Mapping[str, Any], job_id: str = "") -> Posting:
        """The posting of a job with these keyword arguments, which have been checked.

        :raises InvalidPayload: it is too large, or cannot be serialized.
        """
        job_id, first = job_id or uuid(), self._first
        body = f"[[], {self._as_json(fields)}, {self._embed}]"
        check_size(self._name, body, self._most)
        values = {"id": quoted(job_id), "shown": quoted(self._shown(fields)), "body": quoted(body)}
        parts = list(self._parts)
        for index in self._open:
            parts[index] = values[parts[index]]
        message = Message("".join(parts), first.message.queue, first.message.name, first.message.nesting)
        return Posting(job_id, message, first.when, first.priority, first.expires_at_ms, first.correlation_id, first.unique)

    def _as_json(self, fields: Mapping[str, Any]) -> str:
        try:
            return json.dumps(fields)
        except TypeError:  # what only kombu can say, such as a date
            return as_json(self._name, fields)

    def _shown(self, fields: Mapping[str, Any]) -> str:
        most = self._amqp.kwargsrepr_maxsize
        return brief_repr(fields, "{}", most) or saferepr(fields, most, maxlevels=self._levels)


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
        or not all(_is_celerys(getattr(type(task), name)) for name in ("apply_async", "shadow_name"))
        or _below(app.amqp, "as_task_v2") is not AMQP.as_task_v2
    )


def _is_celerys(function: Callable[..., Any]) -> bool:
    return getattr(getattr(function, "__code__", None), "co_filename", "") == stock.__file__


def _below(amqp: Any, name: str) -> Any:
    """A method as the app had it before ours was mixed in."""
    later = type(amqp).__mro__
    ours = next(index for index, kind in enumerate(later) if kind.__name__ == "_JobAMQP")
    return next(vars(kind)[name] for kind in later[ours + 1 :] if name in vars(kind))
