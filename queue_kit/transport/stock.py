"""Between stock Celery's messages and jobs, both ways; without it a project that moves, or moves back, would leave behind what
waits.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from kombu.utils.json import dumps
from kombu.utils.uuid import uuid

from queue_kit.errors import UnsupportedOperation
from queue_kit.store.stock import Parting, Raw
from queue_kit.transport import envelope
from queue_kit.transport.envelope import PROPERTY, Posting

#: What reading comes to for anything but a task message; the last one for the queue name that is reserved.
_NO_TASK: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError, UnsupportedOperation)


def read_waiting(raw: Raw, queue: str) -> Posting | None:
    """The posting of a message in a list; ``None`` for what is no task: a letter of the project's own, say."""
    try:
        return _posting(_read(raw), queue)
    except _NO_TASK:
        return None


def read_held(raw: Raw, queues: Mapping[str, Any]) -> Posting | None:
    """The posting of what a stock worker holds: the message, and the exchange and key that it came by. ``None``: no task, or
    none for these queues."""
    try:
        message, exchange, routing_key = _read(raw)
        queue = _queue_of(exchange, routing_key, queues)
        return None if queue is None else _posting(message, queue)
    except _NO_TASK:
        return None


def _read(raw: Raw) -> Any:
    return envelope.read_message(raw.decode(errors="replace") if isinstance(raw, bytes) else raw)


def _posting(message: Any, queue: str) -> Posting | None:
    if not message["headers"].get("task") or not isinstance(message["properties"], dict):
        return None
    _write_out(message)
    priority = message["properties"].get("priority")
    return envelope.post(message, queue, min(9, max(0, int(priority or 0))))


def _write_out(message: dict[str, Any]) -> None:
    """Stock kombu writes every body in base64; a text takes less as it is."""
    properties = message["properties"]
    if properties.get("body_encoding") == "base64" and message.get("content-encoding") == "utf-8":
        with suppress(ValueError):
            message["body"], properties["body_encoding"] = b64decode(message["body"], validate=True).decode(), "utf-8"


def _queue_of(exchange: str, routing_key: str, queues: Mapping[str, Any]) -> str | None:
    if not exchange:
        return routing_key if routing_key in queues else None
    known = ((name, q) for name, q in queues.items() if q is not None and q.exchange is not None)
    return next((name for name, q in known if (q.exchange.name, q.routing_key) == (exchange, routing_key)), None)


def write_waiting(job: Parting, queue: str) -> tuple[str, int]:
    """What stock Celery reads of a job, and the priority that it has there. One that is not due waits in the stock worker that
    takes it.

    :raises ValueError: it is no message of kombu's.
    """
    message = envelope.read_message(job.full)
    if not isinstance(message, dict) or not isinstance(message.get("properties"), dict):
        raise ValueError("it is not a kombu message")
    headers, properties = message.get("headers") or {}, message["properties"]
    if headers.get("id") != job.id:
        envelope.take_over(job.id, headers, properties)
    due = None if job.due_at_ms is None else datetime.fromtimestamp(job.due_at_ms / 1000, UTC).isoformat()
    message["headers"] = headers | {"eta": due} | ({} if job.expires else {"expires": None})
    properties.pop(PROPERTY, None)
    properties |= {"delivery_tag": uuid(), "delivery_info": {"exchange": "", "routing_key": queue}}
    if properties.get("body_encoding") == "utf-8":  # which kombu before 5.6 cannot read
        message["body"] = b64encode(message["body"].encode()).decode()
        properties["body_encoding"] = "base64"
    return dumps(message), int(properties.get("priority") or 0)
