"""What is compared, and how to see from outside how many jobs a system has left; workers are not asked, they are busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from redis import Redis

from queue_kit.store import Keys

QUEUE = "celery"
_OURS = Keys("qwk")


@dataclass(frozen=True)
class System:
    """One system: the module of its app, how its jobs are counted, and the key of its event stream, if it has one.

    counts: Redis commands whose answers sum up to the jobs that are not settled yet.
    """

    name: str
    app: str
    counts: Sequence[tuple[str, ...]]
    events: str = ""

    def left(self, client: Redis) -> int:
        """Count the jobs that are not settled yet, in one round trip."""
        pipe = client.pipeline(transaction=False)
        for command in self.counts:
            pipe.execute_command(*command)
        return sum(pipe.execute())


STOCK = System("stock", "benchmarks.apps.stock", [("LLEN", QUEUE), ("HLEN", "unacked")])
KIT = System(
    "queue_kit",
    "benchmarks.apps.kit",
    [("ZCARD", _OURS.queue(QUEUE, part)) for part in ("wait", "reserved", "active")],
    events=_OURS.queue(QUEUE, "events"),
)
#: The same with what BENCH_WITHOUT names cut out of its scripts.
CUT = replace(KIT, app="benchmarks.apps.without")
