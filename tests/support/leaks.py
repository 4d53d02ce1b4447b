"""Find keys that nothing will ever clean up.

Without it a move could leave a key behind at each job, and no test would notice before memory is full.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import cast

import redis

from tests.support.events import PREFIX
from tests.support.redis_server import RedisServer

# One of each a queue, kept in bounds by the moves and the janitor; a job's record lives while one of INDEXES names it.
INDEXES = ("wait", "reserved", "active", "delayed", "completed", "failed", "cancelled")
OF_A_QUEUE = (*INDEXES, "events", "meta", "counts", "wake", "dead")

# One of each a prefix.
OF_THE_PREFIX = ("queues", "notes", "reap", "schedules", "schedules:last")

# What stock Celery and kombu leave: bindings are written anew at each declare; an answer that came after its asker had
# gone stays in the asker's reply list.
OF_STOCK = ("_kombu.binding*", "*.reply.celery.pidbox")


def leaked_keys(client: redis.Redis, allowed: Iterable[str] = (), prefix: str = PREFIX) -> list[str]:
    """Return a line for each key that neither a worker, nor the janitor, nor Redis itself will ever remove.

    Fine are: keys with a time to live, the fixed keys of a queue, the record of a job that an index names, what belongs
    to such a record, a dead letter that its queue's list names, what stock Celery keeps, and whatever matches `allowed`
    (patterns as in fnmatch). Also named: an entry of an index whose job has no record.
    """
    keys = sorted(cast(list[str], client.keys("*")))
    waived = (*OF_STOCK, *allowed)
    suspects = [k for k in keys if not any(fnmatch.fnmatchcase(k, p) for p in waived) and client.ttl(k) == -1]
    book = _Book(client, keys, prefix)
    unexplained = [f"{key} ({client.type(key)!s})" for key in suspects if not book.explains(key)]
    return unexplained + [e for e in book.orphans() if not any(fnmatch.fnmatchcase(e, p) for p in waived)]


def assert_nothing_leaked(server: RedisServer, allowed: Iterable[str] = ()) -> None:
    """Fail with the names of the keys, if the server holds some that nothing will ever clean up."""
    with server.client() as reader:
        leaked = leaked_keys(reader, allowed)
    assert not leaked, "keys that nothing will ever clean up:\n  " + "\n  ".join(leaked)


class _Book:
    """What the fixed keys of a prefix account for."""

    def __init__(self, client: redis.Redis, keys: list[str], prefix: str) -> None:
        self._client = client
        self._keys = set(keys)
        self._prefix = prefix
        self._indexed = {index: self._members(index) for index in self._of_queues(INDEXES)}
        self._jobs = {job for members in self._indexed.values() for job in members}
        self._dead = {record for index in self._of_queues(("dead",)) for record in self._members(index)}

    def _of_queues(self, kinds: Iterable[str]) -> list[str]:
        return [key for key in sorted(self._keys) if self._kind(key) in tuple(kinds)]

    def _kind(self, key: str) -> str:
        return key.rpartition(":")[2] if key.startswith(f"{self._prefix}:q:") else ""

    def _members(self, index: str) -> list[str]:
        return cast(list[str], self._client.zrange(index, 0, -1))

    def explains(self, key: str) -> bool:
        """Say whether a key is fixed, or belongs to something that is still in a list."""
        if key in {f"{self._prefix}:{name}" for name in OF_THE_PREFIX} or self._kind(key) in OF_A_QUEUE:
            return True
        if key.startswith(f"{self._prefix}:job:"):
            return self._job_is_kept(key.removeprefix(f"{self._prefix}:job:"))
        if key.startswith(f"{self._prefix}:dedup:"):
            return self._job_is_kept(cast(str, self._client.hget(key, "id")))
        return key.removeprefix(f"{self._prefix}:dead:") in self._dead

    def _job_is_kept(self, rest: str) -> bool:
        # A record, or what belongs to one and has its name and one word more.
        return any(job_id in self._jobs or self._is_replaced(job_id) for job_id in (rest, rest.rpartition(":")[0]))

    def _is_replaced(self, job_id: str) -> bool:
        # A run that gave its place to a canvas: in no list until the canvas adds its id again.
        key = f"{self._prefix}:job:{job_id}"
        return self._client.type(key) == "hash" and self._client.hget(key, "token") == "replaced"

    def orphans(self) -> list[str]:
        """Return a line for each entry of an index whose job has no record."""
        return [
            f"{index} names {job}, which has no record"
            for index, members in self._indexed.items()
            for job in members
            if f"{self._prefix}:job:{job}" not in self._keys
        ]
