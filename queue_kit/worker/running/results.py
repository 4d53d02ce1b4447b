"""What a job's function has returned, kept in the job's own record; without it a result would need a Celery result backend, which
stores it for a run that has lost its lease too.
"""

from __future__ import annotations

import json
import time
from typing import Any

from queue_kit.errors import QueueUnavailable
from queue_kit.worker.running.current import CurrentJob
from queue_kit.worker.running.lost import LeaseLost


def keep_result(run: CurrentJob, value: Any) -> None:
    """Keep what the function of this run has returned, JSON at most. The work is done: Redis is waited for as long as its lease
    may last.

    :raises LeaseLost: the job is another's now; so is its result.
    :raises QueueUnavailable: Redis has been away for longer than a lease.
    """
    if run._run is None or run._kit is None:
        return
    kit, pause_s = run._kit, 0.05
    until = time.monotonic() + kit.moves.lease_ms / 1000
    call = kit.moves.keep(run.id, run._run.token, json.dumps(value))
    while True:
        try:
            answer = kit.sender.run(call, run.id)
            break
        except QueueUnavailable:
            if time.monotonic() + pause_s >= until:
                raise
            time.sleep(pause_s)
            pause_s = min(1.0, pause_s * 2)
    if answer in ("lost", "gone"):
        raise LeaseLost(f"the lease of {run.id} is lost")
