"""What a send may say about a job, beside Celery's own options; without one list of them a misspelt one would be carried as
a property that nobody reads.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from celery import current_task
from kombu.compression import compress
from kombu.exceptions import EncodeError
from kombu.serialization import dumps

from queue_kit.errors import InvalidPayload, UnsupportedOperation
from queue_kit.observe.correlation import accepted, correlation_id
from queue_kit.policy import Backoff, DedupPolicy, RetryPolicy, check_timeout, is_text
from queue_kit.store.moves import Unique
from queue_kit.transport.envelope import PROPERTY

_OURS: Final = ("attempts", "backoff", "correlation_id", "dedup", "idempotency_key", "idempotency_ttl_ms", "timeout_ms")
_FOR_DECLARED: Final = ("attempts", "backoff", "timeout_ms")
#: What Celery and kombu take, by their documentation of ``apply_async`` and ``Producer.publish``.
_CELERYS: Final = frozenset({
    "app_id", "compression", "confirm_timeout", "content_encoding", "content_type", "correlation_id", "declare",
    "delivery_mode", "event_dispatcher", "exchange", "exchange_type", "expiration", "headers", "immediate", "mandatory",
    "message_id", "origin", "priority", "queue", "reply_to", "retry", "retry_policy", "routing_key", "serializer", "timeout",
    "timestamp", "type", "user_id", "redelivered", "periodic_task_name", "time_limit", "soft_time_limit", "ignore_result",
})  # fmt: skip


def take(options: dict[str, Any], headers: dict[str, Any], task: Any, name: str, embed: Mapping[str, Any]) -> Unique | None:
    """Take our options out of ``options``; what travels with the job goes into ``headers``. Return its deduplication key.

    :param task: the task of this name, if it is known here. What a job means that is not is left to its worker.
    :raises ValueError: for a value out of range, naming the option.
    :raises UnsupportedOperation: a member of a group, chord or chain with a key: others would wait for it for ever.
    :raises TypeError: an option that the job does not know; says which is close.
    """
    ours = {option: options.pop(option) for option in _OURS if options.get(option) is not None}
    if task is not None:
        declared = getattr(task, "declared", None) is not None
        _refuse(options if declared else {}, {} if declared else ours, name)
    unique = _unique(ours)
    if unique is not None:
        _refuse_in_canvas(name, headers, embed)
    carried = {**_carried(ours), **_correlation(ours, headers)}
    if carried:
        headers[PROPERTY] = {**(headers.get(PROPERTY) or {}), **carried}
    return unique


def check_job_id(job_id: Any) -> str:
    """An id as it was given, unless no record could have it.

    :raises ValueError: says what an id may be.
    """
    if not isinstance(job_id, str) or not 1 <= len(job_id) <= 500 or not is_text(job_id):
        raise ValueError("job_id: a text of 1 to 500 characters is needed")
    if job_id.rpartition(":")[2] in ("runs", "log"):
        raise ValueError("job_id: it may not end in :runs or :log, which are names of parts of a job")
    return job_id


def pack(
    name: str, body: Any, headers: dict[str, Any], how: tuple[str, str | None], most: int | None
) -> tuple[str | bytes, str, str]:
    """Serialize a message's body; answer its data, content type and encoding.

    :param how: serializer and compression.
    :param most: bytes that the payload of a declared job may have; ``None`` for a plain task.
    :raises InvalidPayload: it has more, or cannot be serialized; says why.
    """
    serializer, compression = how
    try:
        content_type, encoding, data = dumps(body, serializer=serializer)
    except EncodeError as error:
        if most is None:
            raise
        raise InvalidPayload(f"{name}: the payload cannot be sent as {serializer}: {error}") from error
    if most is not None:
        check_size(name, len(data.encode()) if isinstance(data, str) else len(data), most)
    if compression:
        data, headers["compression"] = compress(data, compression)
    return data, content_type, encoding


def as_json(name: str, fields: Mapping[str, Any]) -> str:
    """Keyword arguments as the serializer ``json`` writes them.

    :raises InvalidPayload: it cannot; says why.
    """
    try:
        return str(dumps(fields, serializer="json")[2])
    except EncodeError as error:
        raise InvalidPayload(f"{name}: the payload cannot be sent as json: {error}") from error


def check_size(name: str, size: int, most: int) -> None:
    """Refuse a payload of so many bytes, if that is too large for a record.

    :raises InvalidPayload: says how many bytes it has and how many there may be.
    """
    if size > most:
        raise InvalidPayload(
            f"{name}: the payload has {size} bytes, at most {most} are allowed (JOB_PAYLOAD_SIZE_LIMIT_BYTES); "
            "store it elsewhere and send where it is"
        )


def _refuse(options: Mapping[str, Any], ours: Mapping[str, Any], name: str) -> None:
    for option in options:
        if option not in _CELERYS:
            close = difflib.get_close_matches(option, [*_OURS, *_CELERYS, "countdown", "eta", "expires"], n=1)
            raise TypeError(f"{name}: unknown option {option}" + (f"; did you mean {close[0]}?" if close else ""))
    for option in _FOR_DECLARED:
        if option in ours:
            raise TypeError(f"{name}: {option}: only a job that is declared with @job has it; this is a plain Celery task")


def _refuse_in_canvas(name: str, headers: Mapping[str, Any], embed: Mapping[str, Any]) -> None:
    if headers.get("group"):
        raise UnsupportedOperation(f"{name}: idempotency_key: a member of a group or chord cannot be deduplicated")
    if embed.get("chord"):
        raise UnsupportedOperation(f"{name}: idempotency_key: a chord that waits for this job would wait for ever")
    if embed.get("chain"):
        raise UnsupportedOperation(f"{name}: idempotency_key: the rest of the chain would never run; key its last step")


def _unique(ours: Mapping[str, Any]) -> Unique | None:
    if "idempotency_key" not in ours:
        loose = [option for option in ("dedup", "idempotency_ttl_ms") if option in ours]
        if loose:
            raise ValueError(f"{loose[0]}: it needs an idempotency_key beside it")
        return None
    given = {"mode": ours.get("dedup"), "ttl_ms": ours.get("idempotency_ttl_ms")}
    policy = DedupPolicy(ours["idempotency_key"], **{key: value for key, value in given.items() if value is not None})
    return Unique(policy.key, policy.mode, policy.ttl_ms if policy.has_ttl else None)


def _carried(ours: Mapping[str, Any]) -> dict[str, Any]:
    carried: dict[str, Any] = {}
    if "attempts" in ours:
        carried["attempts"] = RetryPolicy(ours["attempts"], Backoff("fixed", 0)).attempts
    if "backoff" in ours:
        carried["backoff"] = _backoff(ours["backoff"]).as_dict()
    if "timeout_ms" in ours:
        carried["timeout_ms"] = check_timeout(ours["timeout_ms"])
    if "idempotency_key" in ours:
        carried["idempotency_key"] = ours["idempotency_key"]
    return carried


def _backoff(given: Any) -> Backoff:
    """A backoff, also of a chain's later step, which has travelled as plain data."""
    if isinstance(given, Mapping) and given.keys() == Backoff("fixed", 0).as_dict().keys():
        return Backoff(**given)
    if not isinstance(given, Backoff):
        raise ValueError("backoff: use fixed(delay_ms) or exponential(delay_ms); a function can only be declared, with @job")
    return given


def _correlation(ours: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, str]:
    """The id that a caller gives; else that of the job, or the request, that this is sent from."""
    if "correlation_id" in ours:
        return {"correlation_id": accepted(str(ours["correlation_id"]))}
    if "correlation_id" in (headers.get(PROPERTY) or {}):
        return {}
    sender: Any = current_task
    inherited = (sender.request.headers or {}).get(PROPERTY, {}).get("correlation_id") if sender else None
    inherited = inherited or correlation_id.get()
    return {"correlation_id": inherited} if inherited else {}
