"""Two apps of ours and one of stock Celery on one database, with the same queue, ids and keys: none sees another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import redis
from celery import Celery

from queue_kit import State, control, dead_letters, enqueue
from queue_kit.observe.reading import open_census
from tests.apps import crash_app
from tests.support.fixtures import StartWorker
from tests.support.leaks import leaked_keys
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.worker.sending import current
from tests.worker.stage import Stage

PREFIXES = ("one", "two")
JOBS = 10


class Neighbour(Stage):
    """A stage whose app has a prefix of its own."""

    def settle_in(self, prefix: str) -> None:
        self.prefix = prefix
        self.env["QUEUE_PREFIX"] = prefix
        self.app = crash_app.make(self.url, QUEUE_PREFIX=prefix)
        self.census = open_census(self.app)

    def send_all(self) -> list[str]:
        """Jobs whose ids and deduplication keys are everybody's, twice; return the ids."""
        with current(self.app):
            for _ in range(2):
                for number in range(JOBS):
                    self.app.tasks["crash.pause"].apply_async(
                        kwargs={"seconds": 0.05}, queue=self.queue, task_id=f"job-{number}", idempotency_key=f"key-{number}"
                    )
        return [f"job-{number}" for number in range(JOBS)]


@pytest.fixture
def pair(redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> list[Neighbour]:
    made = []
    for prefix in PREFIXES:
        (tmp_path / prefix).mkdir()
        made.append(Neighbour(redis_server.url(), queue_name, tmp_path / prefix, start_worker))
        made[-1].settle_in(prefix)
    return made


@pytest.mark.crash
@pytest.mark.leaves("one:*", "two:*", "unacked*", "stock:*")
def test_apps_with_prefixes_of_their_own_and_a_stock_app_do_not_see_each_other(
    pair: list[Neighbour], redis_server: RedisServer, queue_name: str, client: redis.Redis, start_worker: StartWorker
) -> None:
    """Killed: a worker of the first app, with all it runs; its jobs alone stall, and run again. What an operator does to a job
    or a dead letter of the first is done to it alone. The stock worker has its own tasks, once."""
    one, two = pair
    stock = Celery("stock", broker=redis_server.url(), backend=redis_server.url(), set_as_current=False)
    start_worker("tests.support.sample_app", broker_url=redis_server.url(), queues=[queue_name], concurrency=1)
    two.worker("threads", concurrency=2)
    victim = one.worker("threads", concurrency=2)
    results = [stock.send_task("sample.add", (number, 1), queue=queue_name, task_id=f"job-{number}") for number in range(JOBS)]
    held = one.send("hold", gate="go")
    one.await_starts(held)
    jobs = one.send_all()
    two.send_all()
    victim.kill_all()
    one.open("go")
    one.worker("prefork", concurrency=2)
    for side in pair:
        assert {view.state for view in side.await_ends(jobs)} == {State.COMPLETED}
    one.await_end(held)
    assert [result.get(timeout=20) for result in results] == [number + 1 for number in range(JOBS)]
    assert [two.counters(job_id) for job_id in jobs] == [(1, 1, 0)] * JOBS
    assert one.counters(held) == (1, 2, 1)
    assert two.census.job(held) is None
    _operate(one, two)
    kinds = Counter(str(key).partition(":")[0] for key in client.keys("*"))
    assert kinds["qwk"] == 0
    for prefix in PREFIXES:
        others = [f"{other}:*" for other in PREFIXES if other != prefix]
        assert leaked_keys(client, [*others, "celery-task-meta-*", "unacked*", "stock:*"], prefix) == []


def _operate(one: Neighbour, two: Neighbour) -> None:
    """Remove a job of the first, and let a job of each end in a dead letter; discard that of the first."""
    for side in (one, two):
        side.app.send_task("crash.nobody", queue=side.queue, task_id="unknown")
        wait_until(lambda s=side: dead_letters(s.app).ids(), says="there is a dead letter")
    control.remove("job-0", app=one.app)
    assert (one.census.job("job-0"), two.job("job-0").state) == (None, State.COMPLETED)
    dead_letters(one.app).discard(dead_letters(one.app).ids()[0])
    assert (len(dead_letters(one.app).ids()), len(dead_letters(two.app).ids())) == (0, 1)
    with current(two.app):
        assert enqueue("crash.pause", {"seconds": 0}, job_id="job-1").existing_state == State.COMPLETED
