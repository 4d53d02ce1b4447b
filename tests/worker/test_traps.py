"""The traps of stock Celery on Redis, each stepped into with real workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from queue_kit.observe.reading import open_census
from queue_kit.states import State
from queue_kit.store.census import JobView
from tests.apps import traps_app
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import stays_true, wait_until
from tests.support.worker_process import WorkerProcess

APP = "tests.apps.traps_app"
FINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)
ALIVE = ("wait", "reserved", "active", "delayed")


class Trap:
    """An app that sends, its queue, and the book of what ran."""

    def __init__(self, url: str, queue: str, folder: Path, start_worker: StartWorker) -> None:
        self.url, self.queue, self.folder, self._start_worker = url, queue, folder, start_worker
        self.app = traps_app.make(url, result_backend=url)
        self.app.amqp.queues.add(queue)
        self.census = open_census(self.app)

    def worker(self, pool: str = "prefork", concurrency: int = 1, **conf: Any) -> WorkerProcess:
        env = {"TRAPS_FOLDER": str(self.folder), "TRAPS_CONF": json.dumps(conf)}
        return self._start_worker(
            APP, broker_url=self.url, queues=[self.queue], pool=pool, concurrency=concurrency, env=env
        )

    def send(self, name: str, **options: Any) -> str:
        return str(self.app.send_task(f"traps.{name}", queue=self.queue, **options).id)

    def publish(self, body: str, headers: dict[str, Any], **properties: Any) -> None:
        """Send a message as another library, or a broken one, would."""
        with self.app.connection_for_write() as connection:
            channel = connection.default_channel
            options = {"content_type": "application/json", "content_encoding": "utf-8", **properties}
            channel.basic_publish(channel.prepare_message(body, headers=headers, **options), "", self.queue)

    def ended(self, job_id: str, within_s: float = 15.0) -> JobView:
        return wait_until(
            lambda: (job := self.census.job(job_id)) and job.state in FINAL and job,
            says=f"{job_id} has ended",
            within_s=within_s,
        )

    def works(self) -> bool:
        return self.ended(self.send("echo")).state == State.COMPLETED

    def book(self, word: str) -> list[str]:
        file = self.folder / "book"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if line.split()[0] == word]

    def trace(self, job_id: str) -> list[str]:
        return [event.kind for event in self.census.events(self.queue) if event.job_id == job_id]


Set = Callable[[], Trap]


@pytest.fixture
def trap(redis_server: RedisServer, queue_name: str, tmp_path: Path, start_worker: StartWorker) -> Trap:
    """A trap that is set on the shared Redis."""
    return Trap(redis_server.url(), queue_name, tmp_path, start_worker)


def dead_letter(client: redis.Redis, trap: Trap, job: JobView) -> dict[str, str]:
    """The one dead letter of a job."""
    named = f"dlq-{trap.queue}-{job.id}-"
    [record] = [name for name in client.zrange(f"qwk:q:{trap.queue}:dead", 0, -1) if name.startswith(named)]
    return dict(client.hgetall(f"qwk:dead:{record}"))


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_a_task_that_runs_out_of_memory_or_exits_has_failed_and_nothing_else_has(
    trap: Trap, client: redis.Redis, pool: str
) -> None:
    """K1, K2: an attempt each time, then a dead letter; the one slot comes back, the worker lives."""
    worker = trap.worker(pool)
    for name, said in (("out_of_memory", "MemoryError"), ("exit", "sys.exit(3)")):
        job = trap.ended(trap.send(name))
        assert (job.state, job.attempts_made, job.attempts_started, job.stalled_count) == (State.FAILED, 2, 2, 0)
        assert trap.trace(job.id).count("retries-exhausted") == 1
        record = dead_letter(client, trap, job)
        assert record["cause"] == "exhausted"
        assert said in record["reason"] + record["error_class"]
        assert trap.works()
    assert worker.running
    assert worker.stop() == 0


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_plain_task_that_does_the_same_fails_at_once(trap: Trap, pool: str) -> None:
    """K1, K2."""
    worker = trap.worker(pool)
    for kind in ("memory", "exit"):
        sent = trap.app.send_task("traps.plain", (kind,), queue=trap.queue)
        with pytest.raises(Exception):  # noqa: B017 - of whatever class; what counts is that nobody waits for ever
            sent.get(timeout=10)
        job = trap.ended(sent.id)
        assert (job.state, job.attempts_made, job.attempts_started) == (State.FAILED, 1, 1)
    assert trap.works()
    assert worker.running


@pytest.mark.crash
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_a_connection_that_is_closed_under_a_running_job_does_not_run_it_twice(
    trap: Trap, client: redis.Redis, pool: str
) -> None:
    """K3: one run, settled after the reconnect."""
    worker = trap.worker(pool)
    job = trap.send("hold", kwargs={"gate": "gate"})
    wait_until(lambda: trap.book("hold"), says="the job runs")
    client.client_kill_filter(_type="normal", skipme=True)
    (trap.folder / "gate").touch()
    ended = trap.ended(job)
    assert (ended.state, ended.attempts_made, ended.attempts_started, ended.stalled_count) == (State.COMPLETED, 1, 1, 0)
    assert len(trap.book("hold")) == 1
    assert trap.works()
    assert worker.stop() == 0


def test_a_hard_time_limit_is_an_attempt_and_at_last_one_failure(trap: Trap, client: redis.Redis) -> None:
    """K5: stock Celery sends `task_failure` twice, and runs it again for ever where `acks_on_timeout` is off."""
    worker = trap.worker()
    job = trap.ended(trap.send("overrun"))
    assert (job.state, job.attempts_made, job.attempts_started, job.stalled_count) == (State.FAILED, 2, 2, 0)
    assert len(trap.book("overrun")) == 2
    assert dead_letter(client, trap, job)["cause"] == "timeout"
    assert trap.works()
    assert trap.book("task_failure") == [f"task_failure traps.overrun {job.id} main"]
    assert worker.running


BROKEN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a body that is no JSON": ("{", {"task": "traps.echo"}, {}),
    "a body that is JSON and no task's": ("[]", {"task": "traps.echo"}, {}),
    "an empty body": ("", {"task": "traps.echo"}, {}),
    "a body of the wrong parts": ('[[], "kwargs", {}]', {"task": "traps.echo"}, {}),
    "no arguments": ("[null, {}, {}]", {"task": "traps.echo"}, {}),
    "no task header": ("[[], {}, {}]", {}, {}),
    "an eta that is none": ("[[], {}, {}]", {"task": "traps.echo", "eta": "tomorrow"}, {}),
    "an eta of another type": ("[[], {}, {}]", {"task": "traps.echo", "eta": 7}, {}),
    "an expiry that is none": ("[[], {}, {}]", {"task": "traps.echo", "expires": "never"}, {}),
    "a content type that is not accepted": ("x", {"task": "traps.echo"}, {"content_type": "application/x-python-serialize"}),
    "a content type that nobody knows": ("x", {"task": "traps.echo"}, {"content_type": "application/x-nothing"}),
    "a compression that nobody knows": ("[[], {}, {}]", {"task": "traps.echo", "compression": "squash"}, {}),
    "time limits that are none": ("[[], {}, {}]", {"task": "traps.echo", "timelimit": "soon"}, {}),
    "stamps that are none": ("[[], {}, {}]", {"task": "traps.echo", "stamped_headers": [[0]]}, {}),
}


def test_a_message_that_cannot_be_used_is_a_dead_letter_and_the_worker_goes_on(trap: Trap, client: redis.Redis) -> None:
    """K6: stock Celery deletes such a message, and some end its worker; none may cost the pool its only slot."""
    worker = trap.worker(concurrency=1)
    for number, (body, headers, properties) in enumerate(BROKEN.values()):
        trap.publish(body, {**headers, "id": f"broken-{number}"}, **properties)
    for number, what in enumerate(BROKEN):
        job = trap.ended(f"broken-{number}")
        assert job.state == State.FAILED, what
        assert job.attempts_made == 1, what
        record = dead_letter(client, trap, job)
        assert (record["cause"], record["attempts_made"]) == ("malformed", "1"), what
        assert record["reason"], what
    assert trap.book("echo") == []
    assert trap.works()
    assert worker.running
    assert "Unrecoverable" not in worker.logs()


def test_who_waits_for_a_job_that_cannot_be_read_is_told(trap: Trap) -> None:
    """K6, K15: the result by its id."""
    trap.worker()
    trap.publish("{", {"task": "traps.echo", "id": "unreadable"})
    with pytest.raises(Exception, match="cannot be decoded"):
        trap.app.AsyncResult("unreadable").get(timeout=10)


@pytest.mark.crash
def test_nothing_is_ever_parked_in_a_socket(trap: Trap, client: redis.Redis) -> None:
    """K8: a delayed job falls due and more are sent while the one slot is taken; then the worker is killed."""
    worker = trap.worker()
    jobs = [trap.send("hold", kwargs={"gate": "gate"})]
    wait_until(lambda: trap.book("hold"), says="the slot is taken")
    jobs += [trap.send("echo", countdown=0.3)]
    jobs += [trap.send("echo", kwargs={"value": number}) for number in range(3)]

    def all_are_somewhere() -> bool:
        pipe = client.pipeline(transaction=True)
        for part in ALIVE:
            pipe.zcard(f"qwk:q:{trap.queue}:{part}")
        return sum(pipe.execute()) == len(jobs)

    stays_true(all_are_somewhere, says="every job is in a queue, delayed or leased", for_s=2.0)
    worker.kill_all()
    assert all_are_somewhere()
    (trap.folder / "gate").touch()
    trap.worker()
    assert [trap.ended(job).state for job in jobs] == [State.COMPLETED] * 5


@pytest.mark.crash
@pytest.mark.leaves("unacked*", "*")
def test_a_stock_worker_on_the_same_database_and_ours_leave_each_other_alone(
    trap: Trap, client: redis.Redis, start_worker: StartWorker
) -> None:
    """K13: same database, same queue name; each has its own messages, and restores none of the other's."""
    stock = start_worker("tests.support.sample_app", broker_url=trap.url, queues=[trap.queue], concurrency=1)
    ours = trap.worker(broker_transport_options={"visibility_timeout": 1, "unacked_restore_interval": 1})
    sender = Celery("sender", broker=trap.url, backend=trap.url, set_as_current=False)
    held = sender.send_task("sample.hold", ("stock",), queue=trap.queue)
    client.blpop(["stock:begun"], timeout=20)
    mine = trap.send("hold", kwargs={"gate": "gate"})
    wait_until(lambda: trap.book("hold"), says="our job runs")
    stays_true(
        lambda: client.hlen("unacked") == 1 and client.llen(trap.queue) == 0,
        says="the stock worker's task stays its own, though our timeout for plain messages has passed",
        for_s=2.5,
    )
    client.rpush("stock", "go")
    (trap.folder / "gate").touch()
    assert held.get(timeout=10) == "('stock', 'go')"
    assert trap.ended(mine).attempts_started == 1
    assert sender.send_task("sample.add", (2, 3), queue=trap.queue).get(timeout=10) == 5
    assert trap.works()
    assert "sample." not in ours.logs()
    assert stock.stop() == 0
    assert ours.stop() == 0
