"""Read a queue's event stream straight from Redis, past the code under test.

Without it a test would ask the library whether the library was right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import redis

PREFIX = "qwk"


@dataclass(frozen=True)
class RawEvent:
    """One entry of a stream. at_ms: the instant in its entry id, by the clock of Redis."""

    kind: str
    job_id: str
    at_ms: int
    fields: dict[str, str]


def stream_key(queue: str, prefix: str = PREFIX) -> str:
    """Return the key of a queue's event stream."""
    return f"{prefix}:q:{queue}:events"


def events(client: redis.Redis, queue: str, job_id: str | None = None, prefix: str = PREFIX) -> list[RawEvent]:
    """Return all events of a queue that are kept, oldest first, of one job alone if it is named.

    The client has to give strings (decode_responses), as those of RedisServer do.
    """
    entries = cast(list[tuple[str, dict[str, str]]], client.xrange(stream_key(queue, prefix)))
    seen = [RawEvent(f.get("event", ""), f.get("id", ""), int(e.split("-")[0]), f) for e, f in entries]
    return [event for event in seen if job_id in (None, event.job_id)]


def trace(client: redis.Redis, queue: str, job_id: str, prefix: str = PREFIX) -> list[str]:
    """Return the names of a job's events in order, without `drained`, which is the queue's and not the job's."""
    return [event.kind for event in events(client, queue, job_id, prefix) if event.kind != "drained"]


def traced(client: redis.Redis, queue: str, job_id: Any, *last: str, prefix: str = PREFIX) -> bool:
    """Say whether a job's trace ends by these events: a predicate for `wait_until`."""
    seen = trace(client, queue, str(job_id), prefix)
    return tuple(seen[len(seen) - len(last) :]) == last


def count(client: redis.Redis, queue: str, kind: str, prefix: str = PREFIX) -> int:
    """Return how many events of one kind a queue's stream holds."""
    return sum(event.kind == kind for event in events(client, queue, prefix=prefix))
