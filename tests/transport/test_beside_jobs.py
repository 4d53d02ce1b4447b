"""What a project does with Celery and kombu beside its jobs, on the same connections: it goes on as kombu does it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from queue_kit import UnsupportedOperation
from queue_kit.observe.reading import open_census
from queue_kit.states import State
from tests.apps import plain_app
from tests.support.fixtures import StartWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import stays_true, wait_until
from tests.support.worker_process import WorkerProcess

APP = "tests.apps.plain_app"


class Office:
    """An app that sends, its workers, and the book of what they did."""

    def __init__(self, url: str, folder: Path, start_worker: StartWorker) -> None:
        self.url, self.folder, self._start_worker = url, folder, start_worker
        self.app: Celery = plain_app.make(url, result_backend=url)
        self.census = open_census(self.app)

    def worker(
        self, queues: str = "work", pool: str = "prefork", concurrency: int = 1, env: dict[str, str] | None = None,
        options: tuple[str, ...] = (), results: str = "", **conf: Any,
    ) -> WorkerProcess:  # fmt: skip
        env = {"TRAPS_FOLDER": str(self.folder), "TRAPS_CONF": json.dumps(conf), **(env or {})}
        return self._start_worker(
            APP, broker_url=self.url, backend_url=results or self.url, queues=queues.split(","), pool=pool,
            concurrency=concurrency, env=env,
            options=("--without-gossip", "--without-mingle", *options),
        )  # fmt: skip

    def send(self, name: str, *args: Any, **options: Any) -> str:
        return str(self.app.send_task(f"plain.{name}", args, **options).id)

    def hold(self, gate: str = "gate") -> str:
        job = self.app.send_task("plain.hold", kwargs={"gate": gate}).id
        wait_until(lambda: f"hold {job}" in self.book(), says="the job runs")
        return str(job)

    def await_listeners(self, patterns: int) -> None:
        """Return once so many subscriptions are there: what is sent before is heard by nobody, here as in stock Celery."""
        with redis.Redis.from_url(self.url, decode_responses=True) as client:
            wait_until(
                lambda: sum(int(one["psub"]) for one in client.client_list()) >= patterns, says="the workers listen"
            )

    def open(self, gate: str = "gate") -> None:
        (self.folder / gate).touch()

    def write(self, *texts: str) -> None:
        with self.app.connection_for_write() as connection, connection.Producer() as producer:
            for text in texts:
                producer.publish({"text": text}, exchange="letters", routing_key="letters", declare=[plain_app.LETTERS])

    def book(self) -> list[str]:
        file = self.folder / "book"
        return file.read_text().splitlines() if file.exists() else []

    def await_lines(self, *lines: str, within_s: float = 15.0) -> None:
        for line in lines:
            wait_until(lambda: line in self.book(), says=f"the book says {line!r}", within_s=within_s)  # noqa: B023

    def await_end(self, job_id: str, state: State = State.COMPLETED, within_s: float = 15.0) -> Any:
        wait_until(
            lambda: (job := self.census.job(job_id)) and job.state == state, says=f"{job_id} is {state}", within_s=within_s
        )
        return self.census.job(job_id)


@pytest.fixture
def office(redis_server: RedisServer, tmp_path: Path, start_worker: StartWorker, client: redis.Redis) -> Iterator[Office]:
    """An office on the shared Redis."""
    yield Office(redis_server.url(), tmp_path, start_worker)
    client.delete(*[key for key in client.keys("*") if not key.startswith("qwk:") and client.ttl(key) == -1] or ["-"])


# -- the project's own consumer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_consumer_of_ones_own_goes_on_while_every_slot_is_taken(office: Office, pool: str) -> None:
    """On a channel of its own its prefetch is its own, too: no limit here."""
    office.worker(pool=pool, env={"LETTERS_CHANNEL": "own"})
    job = office.hold()
    office.write(*"abcde")
    office.await_lines(*[f"letter {text}" for text in "abcde"])
    office.open()
    office.await_end(job)


@pytest.mark.leaves("qwk:unacked*")
def test_the_prefetch_of_ones_own_channel_holds(office: Office, client: redis.Redis) -> None:
    """Two letters that are never acknowledged are all that a prefetch of two lets in, whatever the jobs beside them do."""
    office.worker(env={"LETTERS_CHANNEL": "own", "LETTERS_PREFETCH": "2"})
    office.write(*["keep"] * 4)
    wait_until(lambda: office.book().count("letter keep") == 2, says="two letters are read")
    for _ in range(5):
        office.await_end(office.send("echo"))
    assert office.book().count("letter keep") == 2
    assert client.llen("letters") == 2


def test_letters_and_jobs_on_one_channel_both_arrive(office: Office) -> None:
    office.worker(env={"LETTERS_CHANNEL": "shared"}, concurrency=2)
    texts = [f"n{number}" for number in range(20)]
    jobs = []
    for text in texts:
        office.write(text)
        jobs.append(office.send("echo"))
    office.await_lines(*[f"letter {text}" for text in texts])
    for job in jobs:
        assert office.await_end(job).attempts_started == 1


def test_letters_are_read_while_jobs_wait(office: Office) -> None:
    """Each claim is followed by a look at the plain queue, though there is always something to settle and to claim."""
    jobs = [office.send("echo") for _ in range(300)]
    office.write(*"abc")
    office.worker(env={"LETTERS_CHANNEL": "shared"})
    wait_until(lambda: "letter c" in office.book(), says="the last letter is read")
    assert len(office.book()) < len(jobs) / 2
    for job in jobs:
        office.await_end(job)


@pytest.mark.crash
@pytest.mark.leaves("qwk:unacked*")
def test_a_letter_that_a_killed_worker_has_read_comes_back(office: Office, client: redis.Redis) -> None:
    """Held under keys of ours, and put back by a worker of ours, by the project's own visibility timeout."""
    conf = {"visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    env = {"LETTERS_CHANNEL": "own"}
    first = office.worker(env=env, broker_transport_options=conf)
    office.write("keep")
    office.await_lines("letter keep")
    assert client.hlen("qwk:unacked") == 1
    first.kill_all()
    office.worker(env=env, broker_transport_options=conf)
    wait_until(lambda: office.book().count("letter keep") >= 2, says="the letter is read again", within_s=20)


# -- broadcasts, replies, remote control ----------------------------------------------------------------------------------


def test_a_broadcast_is_heard_by_every_worker_and_is_no_job(office: Office, client: redis.Redis) -> None:
    for name in ("one", "two"):
        office.worker("work,news", env={"PLAIN_NAME": name})
    office.await_listeners(4)
    office.app.send_task("plain.hear", ("rain",))
    office.await_lines("news rain one", "news rain two")
    assert client.keys("qwk:job:*") == []
    office.await_end(office.send("echo"))


@pytest.mark.crash
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_broadcast_that_runs_while_the_connection_breaks_does_not_end_the_worker(
    office: Office, client: redis.Redis, pool: str
) -> None:
    worker = office.worker("work,news", pool=pool)
    office.await_listeners(2)
    office.app.send_task("plain.hear", ("rain",), {"gate": "gate"})
    office.await_lines("news rain ")
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_kill_filter(_type="pubsub", skipme=True)
    wait_until(lambda: worker.logs().count("Connected to") == 2, says="the worker has connected again")
    office.open()
    office.await_lines("heard rain")
    office.await_end(office.send("echo"))
    assert worker.stop() == 0
    assert "Unrecoverable" not in worker.logs()


def test_results_over_rpc_reach_their_caller(redis_server: RedisServer, office: Office, client: redis.Redis) -> None:
    """The reply queue is no job queue, and its messages no jobs."""
    office.worker(results="rpc://")
    asking = plain_app.make(redis_server.url(), result_backend="rpc://")
    assert asking.send_task("plain.echo", kwargs={"value": 7}).get(timeout=15) == 7
    results = [asking.send_task("plain.echo", kwargs={"value": number}) for number in range(5)]
    assert [result.get(timeout=15) for result in results] == list(range(5))
    assert len(client.keys("qwk:job:*")) == 6


def test_remote_control_answers_while_every_slot_is_taken_and_under_load(office: Office) -> None:
    worker = office.worker(concurrency=1)
    job = office.hold()
    for _ in range(3):
        assert office.app.control.ping(timeout=5.0, limit=1)[0] == {worker.hostname: {"ok": "pong"}}
    active = office.app.control.inspect(timeout=5.0, limit=1).active()
    assert [task["id"] for task in active[worker.hostname]] == [job]
    office.open()
    jobs = [office.send("echo") for _ in range(300)]
    assert office.app.control.ping(timeout=5.0, limit=1)
    office.await_end(jobs[-1])


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_queue_given_up_and_taken_up_again_under_traffic_loses_nothing(office: Office, pool: str) -> None:
    """A claim is under way at each cancel: what it brings goes back, and counts for nothing."""
    worker = office.worker(concurrency=2, pool=pool)
    office.await_listeners(1)
    jobs = []
    for _ in range(15):
        office.app.control.cancel_consumer("work", reply=True, timeout=5.0, limit=1)
        jobs += [office.send("echo") for _ in range(4)]
        office.app.control.add_consumer("work", reply=True, timeout=5.0, limit=1)
        jobs += [office.send("echo") for _ in range(4)]
    for job in jobs:
        ended = office.await_end(job, within_s=30)
        assert (ended.attempts_made, ended.stalled_count) == (1, 0)
    office.app.control.cancel_consumer("work", reply=True, timeout=5.0, limit=1)
    waits = office.send("echo")
    stays_true(lambda: office.census.job(waits).state == State.WAITING, says="it waits", for_s=1.5)  # type: ignore[union-attr]
    assert worker.stop() == 0


# -- whole queues ---------------------------------------------------------------------------------------------------------


def test_size_purge_and_delete_are_of_the_jobs_that_wait(office: Office, client: redis.Redis) -> None:
    waiting = [office.send("echo") for _ in range(3)]
    later = office.send("echo", countdown=60)
    with office.app.connection_for_write() as connection:
        channel = connection.default_channel
        assert channel.queue_declare("work", passive=True).message_count == 3
        assert office.app.control.purge() == 3
        assert channel.queue_declare("work", passive=True).message_count == 0
        office.send("echo")
        office.app.amqp.queues["work"](channel).declare()
        channel.queue_delete("work")
    assert client.zcard("qwk:q:work:wait") == 0
    assert [office.census.job(job) for job in waiting] == [None] * 3
    assert office.census.job(later).state == State.DELAYED  # type: ignore[union-attr]


def test_a_process_that_does_not_know_the_queue_sees_both_kinds_of_message(office: Office, client: redis.Redis) -> None:
    office.send("echo", queue="unheard")
    client.lpush("unheard", "{}")
    stranger = plain_app.make(office.url)
    with stranger.connection_for_write() as connection:
        channel = connection.default_channel
        assert channel.queue_declare("unheard", passive=True).message_count == 2
        with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
            channel.queue_declare("nowhere", passive=True)
        assert channel.queue_purge("unheard") == 2


def test_a_job_is_not_fetched_one_by_one(office: Office) -> None:
    office.send("echo")
    with office.app.connection_for_read() as connection:
        channel = connection.default_channel
        with pytest.raises(UnsupportedOperation, match="jobs are consumed by `celery worker`, not fetched one by one"):
            channel.basic_get("work")


# -- exchanges ------------------------------------------------------------------------------------------------------------


def test_a_message_for_several_queues_is_a_job_in_each(office: Office) -> None:
    """The first queue by name has the id; a retry stays in the queue that it is in."""
    office.worker("stock,billing", concurrency=2)
    job = office.send("twice", exchange="orders", routing_key="order.stock.7", declare=[plain_app.STOCK, plain_app.BILLING])
    one, other = office.await_end(job), office.await_end(f"{job}@stock")
    assert (one.queue, other.queue) == ("billing", "stock")
    assert [(one.attempts_made, one.attempts_started), (other.attempts_made, other.attempts_started)] == [(2, 2)] * 2
    lines = sorted(line for line in office.book() if line.startswith("twice"))
    assert lines == [
        f"twice {job} billing 0", f"twice {job} billing 1", f"twice {job}@stock stock 0", f"twice {job}@stock stock 1",
    ]  # fmt: skip


def test_a_message_for_one_of_them_is_one_job(office: Office) -> None:
    office.worker("stock,billing")
    job = office.send("echo", exchange="orders", routing_key="order.paid", declare=[plain_app.STOCK, plain_app.BILLING])
    assert office.await_end(job).queue == "billing"
    assert office.census.job(f"{job}@stock") is None


def test_a_delay_holds_for_every_copy(office: Office) -> None:
    both = [plain_app.STOCK, plain_app.BILLING]
    job = office.send("echo", exchange="orders", routing_key="order.stock.7", declare=both, countdown=60)
    due = [office.census.job(name).state for name in (job, f"{job}@stock")]  # type: ignore[union-attr]
    assert due == [State.DELAYED, State.DELAYED]


def test_a_second_send_of_one_id_makes_no_third_copy(office: Office) -> None:
    both = [plain_app.STOCK, plain_app.BILLING]
    for _ in range(2):
        office.send("echo", exchange="orders", routing_key="order.stock.7", declare=both, task_id="seven")
    assert office.census.counts("stock")["waiting"] == 1
    assert office.census.counts("billing")["waiting"] == 1


def test_a_direct_exchange_of_a_name_leads_to_its_queue(office: Office) -> None:
    office.worker("desk")
    by_queue = office.send("echo", queue="desk")
    by_key = office.send("echo", exchange="desks", routing_key="desk-1")
    assert {office.await_end(job).queue for job in (by_queue, by_key)} == {"desk"}


def test_an_exchange_that_leads_nowhere_is_an_error_and_no_lost_job(office: Office) -> None:
    with pytest.raises(Exception, match="exchange orders: no queue is bound by 'nothing'"):
        office.send("echo", exchange="orders", routing_key="nothing")


# -- the pool -------------------------------------------------------------------------------------------------------------


def leased(office: Office) -> dict[str, int]:
    """How many jobs of the queue run, are in line in a worker, and wait."""
    parts = {"active": "active", "reserved": "reserved", "wait": "wait"}
    with redis.Redis.from_url(office.url) as client:
        return {name: client.zcard(f"qwk:q:work:{part}") for name, part in parts.items()}


def held_by(office: Office, jobs: int) -> dict[str, int]:
    """Send jobs that hold; return what is leased when nothing changes any more."""
    sent = [office.app.send_task("plain.hold", kwargs={"gate": "gate"}).id for _ in range(jobs)]
    assert len(sent) == jobs
    seen: list[dict[str, int]] = []

    def settled() -> bool:
        seen.append(leased(office))
        return len(seen) > 30 and seen[-1] == seen[-30]

    wait_until(settled, says="nothing changes any more", within_s=20, every_s=0.03)
    return seen[-1]


def test_a_prefetch_multiplier_reserves_ahead(office: Office) -> None:
    office.worker(concurrency=2, worker_prefetch_multiplier=4)
    assert held_by(office, 12) == {"active": 2, "reserved": 6, "wait": 4}
    office.open()
    wait_until(lambda: leased(office) == {"active": 0, "reserved": 0, "wait": 0}, says="all have run")


def test_no_prefetch_at_all_reserves_nothing(office: Office) -> None:
    office.worker(concurrency=2, worker_prefetch_multiplier=4, worker_disable_prefetch=True)
    assert held_by(office, 8) == {"active": 2, "reserved": 0, "wait": 6}
    office.open()
    wait_until(lambda: leased(office) == {"active": 0, "reserved": 0, "wait": 0}, says="all have run")


def test_an_autoscaled_pool_takes_as_many_as_it_grows_to(office: Office) -> None:
    office.worker(options=("--autoscale", "4,1"))
    sent = [office.app.send_task("plain.hold", kwargs={"gate": "gate"}).id for _ in range(6)]
    wait_until(lambda: leased(office)["active"] == 4, says="the pool has grown", within_s=30)
    office.open()
    for job in sent:
        assert office.await_end(job, within_s=30).stalled_count == 0


def test_a_pool_that_grows_and_shrinks_by_hand_takes_as_many_as_it_has(office: Office) -> None:
    office.worker(concurrency=1)
    office.hold()
    office.app.control.pool_grow(2, reply=True, timeout=5.0, limit=1)
    assert held_by(office, 4) == {"active": 3, "reserved": 0, "wait": 2}
    office.open()
    wait_until(lambda: not any(leased(office).values()), says="all have run")
    office.app.control.pool_shrink(2, reply=True, timeout=5.0, limit=1)
    (office.folder / "gate").unlink()
    assert held_by(office, 2)["active"] == 1
    office.open()
    wait_until(lambda: leased(office) == {"active": 0, "reserved": 0, "wait": 0}, says="all have run")


def test_children_that_end_after_each_job_stall_none(office: Office) -> None:
    worker = office.worker(concurrency=2, options=("--max-tasks-per-child", "1"))
    jobs = [office.send("echo") for _ in range(12)]
    for job in jobs:
        ended = office.await_end(job, within_s=30)
        assert (ended.attempts_made, ended.attempts_started, ended.stalled_count) == (1, 1, 0)
    assert worker.stop() == 0


def test_a_message_of_several_megabytes_passes(office: Office) -> None:
    office.worker()
    sent = office.app.send_task("plain.long", ("x" * 8_000_000,))
    assert sent.get(timeout=20) == 8_000_000
