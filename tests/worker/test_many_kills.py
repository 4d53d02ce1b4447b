"""Workers that are killed again and again while a thousand jobs go through them."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from queue_kit.states import State
from tests.support.waiting import Stopwatch, let_pass, wait_until
from tests.worker.stage import FINAL, Stage

JOBS, JOB_S, KILL_EVERY_S = 1_000, 0.05, 2.0

pytestmark = pytest.mark.crash


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_thousand_jobs_outlive_their_workers(stage: Stage, pool: str) -> None:
    """B14: a SIGKILL of a whole worker about every 2 s; then each job has ended once, and as many starts are beyond the first as
    there are `stalled` events; one that stalled twice has its dead letter."""
    jobs = [stage.send("pause", seconds=JOB_S) for _ in range(JOBS)]
    workers, kills = stage.workers(*({"pool": pool, "concurrency": 4} for _ in range(2))), 0
    watch = Stopwatch()
    while stage.census.counts(stage.queue)[State.WAITING] > JOBS / 10 and watch.elapsed_s < 120:
        let_pass(KILL_EVERY_S, because="a worker has to get somewhere before it is killed")
        workers.pop(0).kill_all()
        kills += 1
        workers.append(stage.worker(pool, concurrency=4))
    wait_until(lambda: _ended(stage) == JOBS, says="every job has ended", within_s=60, every_s=0.2)
    seen = defaultdict(list)
    for event in stage.census.events(stage.queue):
        seen[event.job_id].append(event.kind)
    views = {job_id: stage.job(job_id) for job_id in jobs}
    assert kills > 1
    assert Counter(sum(kind in set(FINAL) for kind in seen[job_id]) for job_id in jobs) == {1: JOBS}
    reruns = {job_id: seen[job_id].count("active") - 1 for job_id in jobs}
    explained = {job_id: seen[job_id].count("stalled") - _out(views[job_id]) for job_id in jobs}
    assert reruns == explained
    assert sum("stalled" in kinds for kinds in seen.values()) > 0
    failed = [job_id for job_id, view in views.items() if view.state == State.FAILED]
    assert {views[job_id].cause for job_id in failed} <= {"stalled"}
    assert len(stage.letters()) == len(failed)


def _ended(stage: Stage) -> int:
    counts = stage.census.counts(stage.queue)
    return sum(counts[state] for state in FINAL)


def _out(view: object) -> int:
    """A last stall that no run follows."""
    return int(getattr(view, "state", None) == State.FAILED)
