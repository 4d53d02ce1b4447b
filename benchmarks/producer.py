"""The sending side of a measure, in a process of its own: ``python -m benchmarks.producer APP WHAT JOBS``, WHAT being one of
`MEASURES`.

In the measuring process both systems would share one interpreter, and what one had imported and cached would serve the other.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from redis import Redis

from benchmarks.apps.tasks import STAMPS, queue_names

PAYLOAD = "x" * 100
WARM_UP = 100
BATCH = 1000
LONGEST_PAUSE_S = 0.02  # between two jobs that find the worker idle
LOST_AFTER_S = 10


def burst(app: Any, jobs: int) -> dict[str, float]:
    """Send jobs one by one, as fast as it goes. The first ones, which open connections, are sent but not timed."""
    for _ in range(min(WARM_UP, jobs)):
        app.noop.delay(filler=PAYLOAD)
    timed, began, worked = jobs - min(WARM_UP, jobs), time.perf_counter(), time.process_time()
    for _ in range(timed):
        app.noop.delay(filler=PAYLOAD)
    took_s = time.perf_counter() - began
    return {"per_s": timed / took_s, "cpu_us": (time.process_time() - worked) / timed * 1e6}


def batch(app: Any, jobs: int) -> dict[str, float]:
    """Send as many jobs, a thousand in each call, the first of which is not timed."""
    send, payloads = _many(app), [{"filler": PAYLOAD}] * BATCH
    send(payloads)
    began = time.perf_counter()
    for _ in range(jobs // BATCH):
        send(payloads)
    return {"per_s": jobs // BATCH * BATCH / (time.perf_counter() - began)}


def bare(app: Any, jobs: int) -> dict[str, float]:
    """The round trips alone: what `burst` has Redis run, ready made, by redis-py's own client."""
    kit, client = app.app.queue_kit, Redis.from_url(os.environ["CELERY_BROKER_URL"])
    posting = prepared(app).posting
    calls = [replace(posting, id=str(uuid.uuid4())).add(kit.moves) for _ in range(jobs)]
    client.execute_command(*calls[0].full_command)
    began = time.perf_counter()
    for call in calls[1:]:
        client.execute_command(*call.command)
    return {"per_s": (jobs - 1) / (time.perf_counter() - began)}


def backlog(app: Any, jobs: int) -> dict[str, float]:
    """Fill the queue: so many jobs that wait, and a tenth as many that are delayed for a day."""
    return {**waiting(app, jobs), **delayed(app, jobs // 10)}


def waiting(app: Any, jobs: int) -> dict[str, float]:
    """So many jobs that wait."""
    return _filled(app, jobs, {})


def delayed(app: Any, jobs: int) -> dict[str, float]:
    """So many jobs that are delayed for a day."""
    return _filled(app, jobs, {"delay_ms": 86_400_000})


def _filled(app: Any, jobs: int, options: dict[str, int]) -> dict[str, float]:
    send, payloads = _many(app), [{"filler": PAYLOAD}] * BATCH
    for _ in range(jobs // BATCH):
        send(payloads, **options)
    return {}


def keyed(app: Any, jobs: int) -> dict[str, float]:
    """Send jobs one by one, each with a deduplication key of its own."""
    from queue_kit import enqueue  # noqa: PLC0415 - as below

    app.app.set_current()
    began = time.perf_counter()
    for number in range(jobs):
        enqueue(app.noop.name, {"filler": PAYLOAD}, idempotency_key=str(number))
    return {"per_s": jobs / (time.perf_counter() - began)}


def failing(app: Any, jobs: int) -> dict[str, float]:
    """Send jobs that fail for good."""
    for _ in range(jobs):
        app.fails.delay(filler=PAYLOAD)
    return {}


def prepared(app: Any) -> Any:
    """One job, checked and with its message made."""
    from queue_kit.worker.sending.prepare import prepare  # noqa: PLC0415 - stock Celery's producer must not pay for it

    app.app.set_current()
    return prepare(app.noop.name, {"filler": PAYLOAD})


def _many(app: Any) -> Any:
    from queue_kit import enqueue_many  # noqa: PLC0415 - as above

    app.app.set_current()
    return partial(enqueue_many, app.noop.name)


def spread(app: Any, jobs: int) -> list[float]:
    """As `trickle`, over the queues that BENCH_QUEUES counts, each of which has had a job before."""
    dice, names = random.Random(1), queue_names(int(os.environ["BENCH_QUEUES"]))
    turns = [*names, *(dice.choice(names) for _ in range(jobs))]
    waits = _waits(lambda sent_at: app.stamp.apply_async(kwargs={"sent_at": sent_at}, queue=turns.pop(0)), len(turns))
    return waits[len(names) :]


def trickle(app: Any, jobs: int) -> list[float]:
    """Send a job only after the last one has run and a pause; return the seconds from each call to its start."""
    return _waits(lambda sent_at: app.stamp.delay(sent_at=sent_at), jobs)[jobs // 10 :]


def _waits(send: Callable[[float], object], jobs: int) -> list[float]:
    client, dice = Redis.from_url(os.environ["CELERY_BROKER_URL"]), random.Random(1)
    waits = []
    for _ in range(jobs):
        time.sleep(dice.uniform(0, LONGEST_PAUSE_S))
        send(time.time())
        answer = client.blpop([STAMPS], timeout=LOST_AFTER_S)
        if answer is None:
            raise SystemExit("a job was not run")
        waits.append(float(answer[1]))
    return waits


MEASURES = (burst, batch, bare, backlog, waiting, delayed, keyed, failing, trickle, spread)

if __name__ == "__main__":
    module, what, jobs = sys.argv[1:]
    measure = {measure.__name__: measure for measure in MEASURES}[what]
    print(json.dumps(measure(importlib.import_module(module), int(jobs))))
