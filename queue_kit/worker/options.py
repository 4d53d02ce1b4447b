"""What a send may say about a job, beside Celery's own options; without one list of them a misspelt one would be carried as
a property that nobody reads.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from queue_kit.errors import InvalidPayload, UnsupportedOperation
from queue_kit.policy import Backoff, DedupPolicy, RetryPolicy, check_timeout
from queue_kit.store.moves import Unique
from queue_kit.transport.envelope import PROPERTY

_OURS: Final = ("attempts", "backoff", "correlation_id", "dedup", "idempotency_key", "idempotency_ttl_ms", "timeout_ms")
#: What Celery and kombu take, by their documentation of ``apply_async`` and ``Producer.publish``.
_CELERYS: Final = frozenset({
    "app_id", "compression", "confirm_timeout", "content_encoding", "content_type", "correlation_id", "declare",
    "delivery_mode", "event_dispatcher", "exchange", "exchange_type", "expiration", "headers", "immediate", "mandatory",
    "message_id", "origin", "priority", "queue", "reply_to", "retry", "retry_policy", "routing_key", "serializer", "timeout",
    "timestamp", "type", "user_id", "periodic_task_name", "time_limit", "soft_time_limit", "ignore_result",
})  # fmt: skip


def take(options: dict[str, Any], headers: dict[str, Any], declared: bool, name: str) -> Unique | None:
    """Take our options out of ``options``; what travels with the job goes into ``headers``. Return its deduplication key.

    :raises ValueError: for a value out of range, naming the option.
    :raises UnsupportedOperation: a member of a group or chord with a key: the chord would wait for it for ever.
    :raises TypeError: an option that a declared job does not know; says which is close.
    """
    ours = {option: options.pop(option) for option in _OURS if options.get(option) is not None}
    if declared:
        _refuse_unknown(options, name)
    elif "correlation_id" in ours:
        options["correlation_id"] = ours.pop("correlation_id")
    if not ours:
        return None
    unique = _unique(ours)
    if unique is not None and headers.get("group"):
        raise UnsupportedOperation(f"{name}: idempotency_key: a member of a group or chord cannot be deduplicated")
    carried = _carried(ours)
    if carried:
        headers[PROPERTY] = {**(headers.get(PROPERTY) or {}), **carried}
    return unique


def check_size(name: str, body: str | bytes, most: int) -> None:
    """Refuse a payload that is too large for a record.

    :raises InvalidPayload: says how many bytes it has and how many there may be.
    """
    size = len(body.encode()) if isinstance(body, str) else len(body)
    if size > most:
        raise InvalidPayload(
            f"{name}: the payload has {size} bytes, at most {most} are allowed (JOB_PAYLOAD_SIZE_LIMIT_BYTES); "
            "store it elsewhere and send where it is"
        )


def _refuse_unknown(options: Mapping[str, Any], name: str) -> None:
    for option in options:
        if option not in _CELERYS:
            close = difflib.get_close_matches(option, [*_OURS, *_CELERYS, "countdown", "eta", "expires"], n=1)
            raise TypeError(f"{name}: unknown option {option}" + (f"; did you mean {close[0]}?" if close else ""))


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
        if not isinstance(ours["backoff"], Backoff):
            raise ValueError("backoff: use fixed(delay_ms) or exponential(delay_ms); a function can only be declared, with @job")
        carried["backoff"] = ours["backoff"].as_dict()
    if "timeout_ms" in ours:
        carried["timeout_ms"] = check_timeout(ours["timeout_ms"])
    if "correlation_id" in ours:
        carried["correlation_id"] = str(ours["correlation_id"])
    if "idempotency_key" in ours:
        carried["idempotency_key"] = ours["idempotency_key"]
    return carried
