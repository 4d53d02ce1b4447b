"""Messages that no Celery has written: each ends as a job of its own, and no worker of any pool ends with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_kit.states import State
from queue_kit.store import Ledger, Message
from queue_kit.store.census import JobView
from tests.fuzz.strategies import messages, profile, texts, words
from tests.support.waiting import wait_until
from tests.worker.stage import FINAL, POOLS, Stage

pytestmark = pytest.mark.crash

names = st.sampled_from(("crash.quick", "crash.plain", "crash.flaky")) | texts | words


@pytest.mark.timeout(300)
def test_no_message_ends_a_worker_and_each_ends_as_a_job(stage: Stage) -> None:
    """A8, K6: given a worker of each pool, and jobs whose message, name, id, or header is not what it should be."""
    stage.env["JOB_BACKOFF_DELAY_MS"] = "0"
    workers = stage.workers(*({"pool": pool} for pool in POOLS))
    sent: list[str] = []
    ledger, moves = Ledger(stage.client), stage.app.queue_kit.moves

    @profile(400, shrink=False)
    @given(messages("crash.quick", "crash.plain", "crash.flaky"), names, texts | words)
    def put(message: str, name: str, job_id: str) -> None:
        job_id = f"{job_id}{len(sent)}"
        sent.append(job_id)
        ledger.run(moves.add(job_id, Message(message, stage.queue, name)))

    put()

    def unended() -> list[JobView]:
        views = [stage.census.job(job_id) for job_id in sent]
        return [view for view in views if view is not None and view.state not in FINAL]

    try:
        wait_until(lambda: not unended(), says="every job has ended", within_s=180, every_s=0.5)
    finally:
        print(f"of {len(sent)} messages these have not ended:", *unended(), sep="\n")
    assert [worker.hostname for worker in workers if not worker.running] == []
    good = [stage.send("quick") for _ in range(8)]
    assert {job.state for job in stage.await_ends(good)} == {State.COMPLETED}
    assert [worker.hostname for worker in workers if "Unrecoverable error" in worker.logs()] == []
    assert stage.client.zcard(f"qwk:q:{stage.queue}:active") == 0
    wait_until(lambda: not stage.client.exists("qwk:notes"), says="whoever waits has been told", within_s=30)
