"""Between kombu's messages and jobs: what is read from a message when it is put, and what is added when it is claimed.

Headers are changed here, never in a script: Lua's JSON turns an empty list into an object.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import isnan
from typing import Any, Final

from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

from queue_kit.errors import UnsupportedOperation
from queue_kit.rules.packing import MARK, is_flat, opened, pack
from queue_kit.states import RESERVED_QUEUE
from queue_kit.store import Call, Claimed, Message, Moves, When
from queue_kit.store.moves import Added, Unique
from queue_kit.transport.kit import Run

logger = logging.getLogger(__name__)

#: Property of a message that carries what queue_kit adds to it, between sender and channel and between channel and task.
PROPERTY: Final = "queue_kit"
#: Beside the parts of a message: its body as plain JSON says it, where that has been read already.
CONTENT: Final = "content"
#: Headers that Celery takes as they are, and of what kind they must be; each may be missing.
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("task", "id", "shadow", "origin", "root_id", "parent_id", "group", "lang"), (type(None), str)),
    **dict.fromkeys(("retries", "group_index", "replaced_task_nesting"), (type(None), int)),
    **dict.fromkeys(("timelimit", "stamped_headers"), (type(None), list, tuple)),
    **dict.fromkeys(("stamps", PROPERTY), (type(None), dict)),
}
_to_json: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Posting:
    """One message on its way into Redis."""

    id: str
    message: Message
    when: When
    priority: int
    expires_at_ms: int | None
    correlation_id: str
    unique: Unique | None = None

    def add(self, moves: Moves, *, again: bool = False) -> Call[Added]:
        """The move that makes a new job of it. ``again``: it may have been made already, its answer lost."""
        return moves.add(
            self.id, self.message, priority=self.priority, when=self.when,
            expires_at_ms=self.expires_at_ms, correlation_id=self.correlation_id, unique=self.unique, again=again,
        )  # fmt: skip

    def move(self, moves: Moves, run: Run) -> Call[str]:
        """The move of the very job that publishes it: a retry, or, with a deeper nesting, its replacement."""
        retried = self.message.nesting <= run.nesting
        cause, reason = run.why
        return moves.retry(
            self.id, run.token, self.when, message=self.message, counted=retried, cause=cause, reason=reason
        )


def post(
    message: dict[str, Any], queue: str, priority: int, unique: Unique | None = None, arguments: tuple[Any, ...] | None = None
) -> Posting:
    """Read what the scripts need from a kombu message; the message itself stays opaque to them.

    :param arguments: what its body was made from, if that is JSON.

    :raises UnsupportedOperation: for the queue name that is reserved for dead letters.
    """
    if queue == RESERVED_QUEUE:
        raise UnsupportedOperation(f"queue {queue}: the name is reserved, nothing consumes dead letters; use another name")
    headers = message.get("headers") or {}
    properties = message["properties"]
    ours = properties.pop(PROPERTY, None) or {}
    tag = properties.pop("delivery_tag", None)
    nesting = headers.get("replaced_task_nesting") or 0
    return Posting(
        id=str(headers.get("id") or tag or uuid()),
        message=Message(_packed(message, queue, arguments), queue, str(headers.get("task") or ""), int(nesting)),
        when=When(ours.get("delay_ms"), None) if "delay_ms" in ours else When(None, _instant_ms(headers.get("eta"))),
        priority=priority,
        expires_at_ms=_instant_ms(headers.get("expires")),
        correlation_id=_unless_own(correlation_of(headers), headers),
        unique=unique,
    )


def _packed(message: dict[str, Any], queue: str, arguments: tuple[Any, ...] | None) -> str:
    text = pack(message, queue, arguments, brief_json) if message.get("headers") else None
    return text or dumps(message)


def brief_json(value: Any) -> str:
    """JSON without spaces; kombu's, which knows more types and takes longer, where there is no other way."""
    try:
        return _to_json(value)
    except TypeError:
        return str(dumps(value))


def correlation_of(headers: Mapping[str, Any]) -> str:
    """What the caller gave or the sending job had; else the id at the root of jobs that sent each other; else ''."""
    ours = headers.get(PROPERTY)
    given = ours.get("correlation_id") if isinstance(ours, dict) else None
    return str(given or headers.get("root_id") or "")


def _unless_own(correlation_id: str, headers: Mapping[str, Any]) -> str:
    """'' for a job's own id, which needs no place in its record."""
    return "" if correlation_id == headers.get("id") else correlation_id


def post_task(
    body: str | bytes, content_type: str, content_encoding: str, headers: dict[str, Any], properties: dict[str, Any],
    queue: str, unique: Unique | None = None, arguments: tuple[Any, ...] | None = None,
) -> Posting:  # fmt: skip
    """The posting of a task message whose body is serialized, without kombu's detour through a producer.

    :param arguments: what the body was made from.
    """
    properties["body_encoding"] = "utf-8" if isinstance(body, str) else "base64"
    properties["delivery_info"] = {"exchange": "", "routing_key": queue}
    priority = properties.setdefault("priority", 0)
    message = {
        "body": body if isinstance(body, str) else b64encode(body).decode(),
        "content-encoding": content_encoding,
        "content-type": content_type,
        "headers": headers,
        "properties": properties,
    }
    plain = isinstance(body, str) and content_type == "application/json"
    return post(message, queue, min(9, max(0, int(priority or 0))), unique, arguments if plain else None)


def _instant_ms(text: Any) -> int | None:
    """Milliseconds of an ISO 8601 instant; ``None`` for none, and for what is none: the worker refuses that by name."""
    if not isinstance(text, str):
        return None
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return int(instant.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def open_message(claimed: Claimed) -> dict[str, Any]:
    """Rebuild the kombu message of a claimed job, with the lease token as delivery tag and the job's counters.

    :raises ValueError: when it is no message of kombu's.
    """
    message = _unpacked(claimed) if claimed.message.startswith(MARK) else _whole(claimed.message)
    properties, headers = message["properties"], message.get("headers")
    info = properties.setdefault("delivery_info", {})
    # What it publishes again goes straight into the queue that it is in: another process need not know the exchange.
    info.update(exchange="", routing_key=claimed.queue, redelivered=claimed.stalled_count > 0)
    properties["delivery_tag"] = claimed.token
    properties[PROPERTY] = {
        "token": claimed.token,
        "queue": claimed.queue,
        "attempts_started": claimed.attempts_started,
        "attempts_made": claimed.attempts_made,
        "stalled_count": claimed.stalled_count,
        "replays": claimed.replays,
    }
    if isinstance(headers, dict):
        if headers.get("id") != claimed.id:
            take_over(claimed.id, headers, properties)
        if _instant_ms(headers.get("eta")) is not None:
            headers["eta"] = None  # it has passed: the job waited in Redis, and must not wait again in this worker
        if not claimed.expires and _instant_ms(headers.get("expires")) is not None:
            headers["expires"] = None  # replayed; one that is no instant stays, for the worker to refuse it by name
    return message


def _unpacked(claimed: Claimed) -> dict[str, Any]:
    message, content = opened(claimed.message, claimed.id, claimed.name, claimed.queue, _head)
    message[CONTENT] = content
    return message


def _head(text: str) -> Any:
    """What was packed beside a body: nearly always what a sender has packed with its last job too."""
    return _flat_head(text) if is_flat(text) else _checked_head(text)


def _checked_head(text: str) -> Any:
    head = read_message(text)
    _check_headers(head[0])
    return head


_flat_head: Final = lru_cache(maxsize=256)(_checked_head)


def _whole(text: str) -> dict[str, Any]:
    message = read_message(text)
    if not isinstance(message, dict) or not isinstance(message.get("properties"), dict):
        raise ValueError("it is not a kombu message")
    _check_headers(message.get("headers") or {})
    return message


def _check_headers(headers: Any) -> None:
    """Refuse what would go wrong in the middle of the worker's loop, and end it.

    :raises ValueError: names the header.
    """
    if not isinstance(headers, dict):
        raise ValueError("its headers are none")
    for name, kinds in _KINDS.items():
        if not isinstance(headers.get(name), kinds):
            raise ValueError(f"header {name}: it is no {' or '.join(kind.__name__ for kind in kinds[1:])}")
    limits = headers.get("timelimit") or (None, None)
    if len(limits) != 2 or not all(limit is None or _is_number(limit) for limit in limits):
        raise ValueError("header timelimit: two numbers are needed, each of them or none")


def _is_number(limit: Any) -> bool:
    return isinstance(limit, (int, float)) and not isnan(limit)


def read_message(message: str) -> Any:
    """Read JSON; by kombu's reader, which calls a function for each object in it, only where kombu has marked a type."""
    return loads(message) if '"__type__"' in message else json.loads(message)


def take_over(job_id: str, headers: dict[str, Any], properties: dict[str, Any]) -> None:
    """A message that replaced another's, while that was delayed, was made for an id of its own."""
    own = headers.get("id")
    headers["id"] = job_id
    if headers.get("root_id") == own:
        headers["root_id"] = job_id
    if properties.get("correlation_id") == own:
        properties["correlation_id"] = job_id


def log_duplicate(posting: Posting, added: Added | Exception) -> None:
    """One line for an id that was there already."""
    if isinstance(added, Added) and added.outcome == "duplicated":
        logger.info("job %s[%s] is there already: %s", posting.message.name, posting.id, added.state)


def ignore_answer(answer: Any) -> None:
    """For settles whose answer changes nothing; a refusal is still told."""
    if isinstance(answer, Exception):
        logger.error("a settle was refused by Redis: %s", answer)
