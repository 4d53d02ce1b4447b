"""SIGKILL at every named point between fetch and settle, in the main process and where the pool runs the job."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from queue_kit.states import State
from queue_kit.transport import points
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import POOLS, Stage

pytestmark = pytest.mark.crash

#: How many victims boot at a time; more would only starve each other of the processor.
AT_ONCE = 4


@dataclass(frozen=True)
class Expected:
    """How the job goes on after the kill: attempts_started, attempts_made and stalled_count in the end; runs of its
    function. All jobs complete, once."""

    started: int
    made: int
    stalled: int
    runs: int


NOTHING_LOST = Expected(started=1, made=1, stalled=0, runs=1)
NOT_YET_RUN = Expected(started=2, made=1, stalled=1, runs=1)
RUN_AGAIN = Expected(started=2, made=1, stalled=1, runs=2)
EXPECTED = {
    "claim sending": NOTHING_LOST,
    "claim sent": NOT_YET_RUN,
    "claim answered": NOT_YET_RUN,
    "job taken": NOT_YET_RUN,
    "pool entering": NOT_YET_RUN,
    "accepted": NOT_YET_RUN,
    "function entering": NOT_YET_RUN,
    "function left": RUN_AGAIN,
    "report returning": RUN_AGAIN,
    "result arrived": RUN_AGAIN,
    "settle queued": RUN_AGAIN,
    "settle sending": RUN_AGAIN,
    "settle sent": NOTHING_LOST,
    "settle answered": NOTHING_LOST,
    # These jobs fail in their first run, and in the first that is counted as an attempt.
    "move sending": Expected(started=3, made=2, stalled=1, runs=3),
    "move answered": Expected(started=2, made=2, stalled=0, runs=2),
}
# The child runs on while its parent hears that it has begun: by the kill the function may have been entered.
A_RACE = ("prefork", "accepted")
# A thread may send what has been queued before the kill comes.
SENT_MEANWHILE = "settle queued"


def test_every_point_has_its_case() -> None:
    """B13: a point that is added gets its line here."""
    assert EXPECTED.keys() == {*points.PARENT, *points.CHILD}


@pytest.mark.parametrize("pool", POOLS)
def test_a_kill_at_any_point_neither_loses_a_job_nor_ends_it_twice(stage: Stage, pool: str) -> None:
    """B13: given sixteen jobs and a worker for each; killed: each worker, or its child, at another point; then every job has
    ended exactly once, and each start beyond the first is explained by a stall or by its own retry."""
    jobs = {point: stage.send("flaky" if "move" in point else "quick", queue=point) for point in EXPECTED}
    for batch in _batches(list(EXPECTED), AT_ONCE):
        started = [stage.worker(pool, at=f"kill:{point}", queues=[point], wait=False) for point in batch]
        for point, victim in zip(batch, started, strict=True):
            _await_kill(stage, victim, point)
    stage.worker(pool, queues=list(EXPECTED))
    views = {point: stage.await_end(job_id) for point, job_id in jobs.items()}
    assert {view.state for view in views.values()} == {State.COMPLETED}
    seen = {
        point: Expected(view.attempts_started, view.attempts_made, view.stalled_count, stage.starts(view.id))
        for point, view in views.items()
    }
    if pool == A_RACE[0]:
        seen[A_RACE[1]] = replace(seen[A_RACE[1]], runs=EXPECTED[A_RACE[1]].runs)
    if seen[SENT_MEANWHILE] == NOTHING_LOST:
        seen[SENT_MEANWHILE] = EXPECTED[SENT_MEANWHILE]
    assert seen == EXPECTED
    finals = {point: _finals(stage, point, view.id) for point, view in views.items()}
    assert finals == dict.fromkeys(EXPECTED, "completed")


def _batches(items: list[str], size: int) -> list[list[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _await_kill(stage: Stage, victim: WorkerProcess, point: str) -> None:
    """The point is noted just before the kill; a worker whose child was killed goes on, and is killed afterwards."""
    wait_until(
        lambda: point in [line["point"] for line in stage.book("point")], says=f"{point} is reached", within_s=40
    )
    if victim.pool == "prefork" and point in points.CHILD:
        return
    victim.wait_exit()


def _finals(stage: Stage, queue: str, job_id: str) -> str:
    return " ".join(kind for kind in stage.trace(job_id, queue) if kind in ("completed", "failed", "cancelled"))
