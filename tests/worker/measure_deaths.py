"""Measures how soon a dead worker's job runs again: ``python -m tests.worker.measure_deaths [kills]``.

The lease is thirty seconds, so that nothing of what is measured has waited for it. Times are from the kill to the first line of
the second run; those of a restart count the new worker's own start.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.redis_server import RedisServer
from tests.support.waiting import let_pass, wait_until
from tests.support.witnesses import kill_group
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import Stage


def killed_alone(stage: Stage, victim: WorkerProcess) -> float:
    """SIGKILL the main process; its warden sees it."""
    at_ms = time.time() * 1000
    victim.sigkill()
    return at_ms


def killed_with_its_warden(stage: Stage, victim: WorkerProcess) -> float:
    """SIGKILL all there is of it; its neighbour sees it."""
    return kill_group(victim)


def killed_unseen(stage: Stage, victim: WorkerProcess) -> float:
    """SIGKILL all there is of it, as on another machine; its death is inferred."""
    let_pass(1.5, because="who has not been watched for so long cannot be missed")
    return kill_group(victim, unseen=True)


def killed_and_restarted(stage: Stage, victim: WorkerProcess) -> float:
    """SIGKILL all there is of it; the next worker to boot sees it."""
    at_ms = kill_group(victim)
    stage.worker()
    return at_ms


def restarted_with_mingle(stage: Stage, victim: WorkerProcess) -> float:
    """The same for a worker that asks others first what they know, as Celery's do unless they are told not to."""
    at_ms = kill_group(victim)
    stage.worker(options=())
    return at_ms


RESTARTS = (killed_and_restarted, restarted_with_mingle)


def measure(stage: Stage, kill: Callable[[Stage, WorkerProcess], float], pool: str, kills: int) -> list[float]:
    """Kill so many workers in the middle of a job; return the milliseconds until each runs again."""
    took = []
    for _ in range(kills):
        victim = stage.worker(pool)
        rescuers = [stage.worker("threads", queues=["elsewhere"])] if kill not in RESTARTS else []
        took.append(one_kill(stage, kill, victim, rescuers))
        stage.kill_workers()
        stage.started.clear()
    return took


def one_kill(
    stage: Stage, kill: Callable[[Stage, WorkerProcess], float], victim: WorkerProcess, rescuers: list[WorkerProcess]
) -> float:
    job_id = stage.send("hold", gate="go", each=True)
    stage.await_starts(job_id)
    wait_until(lambda: len(stage.census.workers()) > len(rescuers), says="all are on the roster")
    for rescuer in rescuers:
        stage.app.control.add_consumer(stage.queue, destination=[rescuer.hostname], reply=True)
        wait_until(lambda: len(stage.census.consumers(stage.queue)) > 1, says="a second worker takes the queue's jobs")
    at_ms = kill(stage, victim)
    again = stage.await_starts(job_id, 2)["at"] * 1000
    stage.open("go2")
    stage.await_end(job_id)
    return float(again - at_ms)


def main(kills: int) -> None:
    """Print a line for each way to die."""
    folder = Path(tempfile.mkdtemp())

    def start(app: str = "", *, broker_url: str = "", wait: bool = True, within_s: float = 40.0, **options: Any) -> WorkerProcess:
        return WorkerProcess(app, broker_url, folder=folder, **options).start(wait=wait, within_s=within_s)

    with RedisServer() as server:
        stage = Stage(server.url(), "deaths", folder, start)
        stage.env.update(WORKER_LOCK_DURATION_MS="30000", WORKER_STALLED_INTERVAL_MS="5000")
        for kill in (killed_alone, killed_with_its_warden, *RESTARTS, killed_unseen):
            stage.env["WORKER_INFERRED_DEATH_MS"] = "1250" if kill is killed_unseen else "0"
            for pool in ("prefork", "threads"):
                took = measure(stage, kill, pool, kills)
                spread = f"min {min(took):.0f} median {median(took):.0f} max {max(took):.0f} ms"
                print(f"{kill.__name__:24} {pool:8} n={kills} {spread}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
