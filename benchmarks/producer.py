"""The sending side of a measure, in a process of its own: ``python -m benchmarks.producer APP burst|trickle JOBS``.

In the measuring process both systems would share one interpreter, and what one had imported and cached would serve the other.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from typing import Any

from redis import Redis

from benchmarks.apps.tasks import STAMPS

PAYLOAD = "x" * 100
WARM_UP = 100
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


def trickle(app: Any, jobs: int) -> list[float]:
    """Send a job only after the last one has run and a pause; return the seconds from each call to its start."""
    client, dice = Redis.from_url(os.environ["CELERY_BROKER_URL"]), random.Random(1)
    waits = []
    for _ in range(jobs):
        time.sleep(dice.uniform(0, LONGEST_PAUSE_S))
        app.stamp.delay(sent_at=time.time())
        answer = client.blpop([STAMPS], timeout=LOST_AFTER_S)
        if answer is None:
            raise SystemExit("a job was not run")
        waits.append(float(answer[1]))
    return waits[jobs // 10 :]


if __name__ == "__main__":
    module, what, jobs = sys.argv[1:]
    measure = {"burst": burst, "trickle": trickle}[what]
    print(json.dumps(measure(importlib.import_module(module), int(jobs))))
