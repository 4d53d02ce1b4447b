"""What a chaos run has left in Redis that should not be there: leases, waiting jobs, keys without an owner, false records.

Without it a slot that never comes back would show only once there are none left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import cast

import redis

from tests.apps.chaos_app import QUEUES
from tests.chaos.evidence import FINAL
from tests.support.events import PREFIX
from tests.support.leaks import leaked_keys

BUSY = ("wait", "reserved", "active", "delayed")


def busy(client: redis.Redis) -> Iterator[str]:
    """Yield a line for each job that has not ended, or whose callers have not been told."""
    lists = [f"{PREFIX}:q:{queue}:{part}" for queue in QUEUES for part in BUSY]
    for key in (*lists, f"{PREFIX}:notes"):
        yield from (f"left in {key}: {job_id}" for job_id in cast(list[str], client.zrange(key, 0, -1)))


def leftovers(client: redis.Redis) -> list[str]:
    """Return a line for each thing that is left."""
    return [*busy(client), *(f"left behind: {key}" for key in leaked_keys(client)), *_false_records(client)]


def _false_records(client: redis.Redis) -> Iterator[str]:
    """Yield a line for each record that stands in two lists, or in that of another state."""
    seen: Counter[str] = Counter()
    for queue in QUEUES:
        for state in FINAL:
            for job_id in cast(list[str], client.zrange(f"{PREFIX}:q:{queue}:{state}", 0, -1)):
                seen[job_id] += 1
                found = client.hget(f"{PREFIX}:job:{job_id}", "state")
                if found != state:
                    yield f"false record: {job_id} is {found} and stands among the {state}"
    yield from (f"false record: {job_id} stands in {times} lists" for job_id, times in seen.items() if times > 1)
