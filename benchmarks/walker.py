"""A worker without a pool, or a sender without Celery: ``python -m benchmarks.walker WHAT JOBS QUEUES BYTES``, WHAT being add or
take.

How the moves' cost grows shows only without what a whole worker does beside them.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import uuid
from dataclasses import replace
from itertools import cycle

from redis import Redis

from benchmarks.apps.tasks import queue_names
from queue_kit.store import Ledger, Moves, Room, Traits

GO = "bench:go"
MOVES = Moves("qwk")
AT_ONCE = 16  # jobs that one claim takes


def add(ledger: Ledger, jobs: int, queues: list[str], size: int) -> None:
    """Add so many jobs one by one, to the queues by turns; they are made before it begins."""
    from queue_kit.worker.sending.prepare import prepare  # noqa: PLC0415 - a taker needs no Celery

    kit = importlib.import_module("benchmarks.apps.kit")
    kit.app.set_current()
    posting = prepare(kit.noop.name, {"filler": "x" * size}).posting
    messages = cycle(replace(posting.message, queue=queue) for queue in queues)
    calls = [replace(posting, id=str(uuid.uuid4()), message=next(messages)).add(MOVES) for _ in range(jobs)]
    began = begin(ledger)
    for call in calls:
        ledger.run(call)
    tell(began, jobs)


def take(ledger: Ledger, jobs: int, queues: list[str], size: int) -> None:
    """Claim and complete so many jobs, the outcomes of some in one trip with the claim of the next."""
    settles, done, began = [], 0, begin(ledger)
    while done < jobs:
        room = Room(limit=min(AT_ONCE, jobs - done), begin=AT_ONCE, suspects=1)
        *_, claim = ledger.run_all([*settles, MOVES.claim("walker", str(uuid.uuid4()), room, Traits(), queues)])
        if not claim.jobs:
            break  # another has taken them
        settles = [MOVES.complete(job.id, job.token) for job in claim.jobs]
        done += len(settles)
    ledger.run_all(settles)
    tell(began, done)


def begin(ledger: Ledger) -> float:
    """Wait for the word that all others are ready too."""
    ledger.client.blpop([GO])
    return time.time()


def tell(began: float, jobs: int) -> None:
    """Print when it began and ended, and how many jobs it moved."""
    print(json.dumps({"began": began, "ended": time.time(), "jobs": jobs}))


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    number, count, payload = map(int, numbers)
    book = Ledger(Redis.from_url(os.environ["CELERY_BROKER_URL"], socket_timeout=None))
    {"add": add, "take": take}[what](book, number, queue_names(count), payload)
