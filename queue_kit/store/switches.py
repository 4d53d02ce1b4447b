"""What is set for a queue, and who holds a deduplication key, as people read it; reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from queue_kit.store.keys import Keys
from queue_kit.store.script import text


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What limits a queue now. ``None``: no such limit. ``rate``: starts, and the window in milliseconds.

    ``held_off_ms``: for how many milliseconds it is still held off.
    """

    paused: bool = False
    concurrency: int | None = None
    rate: tuple[int, int] | None = None
    held_off_ms: int = 0


@dataclass(frozen=True, slots=True)
class KeyView:
    """Who holds a deduplication key. ``state``: of its job, also after its record has gone; ``unknown`` if nobody knows.

    ``ttl_ms``: for how long yet; ``None``: until the job ends. ``kept``: a payload waits to run after it.
    """

    job_id: str
    mode: str
    state: str
    ttl_ms: int | None
    kept: bool


def read_limits(client: Redis, keys: Keys, queue: str) -> QueueLimits:
    """Read the limits of a queue in one trip."""
    pipe = client.pipeline(transaction=False)
    pipe.hgetall(keys.queue(queue, "meta"))
    pipe.time()
    meta, (seconds, microseconds) = pipe.execute()
    fields = _texts(meta)
    starts, window_ms = fields.get("rate_max"), fields.get("rate_ms")
    held_until = int(float(fields.get("held_until") or 0))
    return QueueLimits(
        paused="paused" in fields,
        concurrency=int(fields["concurrency"]) if "concurrency" in fields else None,
        rate=(int(starts), int(window_ms)) if starts and window_ms else None,
        held_off_ms=max(0, held_until - seconds * 1000 - microseconds // 1000),
    )


def read_key(client: Redis, keys: Keys, key: str) -> KeyView | None:
    """Read who holds a key, in two trips; ``None`` if nobody does."""
    pipe = client.pipeline(transaction=False)
    pipe.hgetall(key)
    pipe.pttl(key)
    fields, ttl_ms = pipe.execute()
    facts = _texts(fields)
    if "id" not in facts:
        return None
    state: Any = client.hget(keys.job(facts["id"]), "state")
    return KeyView(
        job_id=facts["id"],
        mode=facts.get("mode", ""),
        state=text(state) if state else facts.get("state", "unknown"),
        ttl_ms=int(ttl_ms) if ttl_ms >= 0 else None,
        kept="next_id" in facts,
    )


def _texts(reply: Mapping[Any, Any]) -> dict[str, str]:
    return {text(name): text(value) for name, value in reply.items()}
