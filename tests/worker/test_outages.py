"""Redis killed, frozen, cut off and reset under running workers: short of a lease nothing is repeated, past it all is
taken up again, and nothing is ever lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from queue_kit.states import State
from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, let_pass, wait_until
from tests.worker.stage import POOLS, STALLED_ONCE, Stage

pytestmark = pytest.mark.crash

LEASE_MS = 1200
RENEWAL_MS = LEASE_MS // 4
#: Of the bound of an outage that must cost nothing, lease less renewal interval, four fifths.
SHORT_S = 0.8 * (LEASE_MS - RENEWAL_MS) / 1000
#: More than the lease and a renewal interval, after which a run is lost for certain.
LONG_S = 1.2 * (LEASE_MS + RENEWAL_MS) / 1000
ONE_RUN = ["added", "waiting", "active", "completed"]


@dataclass
class Outage:
    """A way to be without Redis, and the stage that it plays on. Tests speak to the server itself, workers by `way`."""

    stage: Stage
    server: RedisServer
    proxy: TcpProxy
    kind: str

    @property
    def way(self) -> str:
        """Where workers find Redis."""
        return self.server.url() if self.kind in ("killed", "frozen") else self.proxy.url()

    def begin(self) -> None:
        """From now on nobody is answered."""
        begins: dict[str, Callable[[], None]] = {
            "killed": self.server.kill, "frozen": self.server.freeze, "cut off": self.proxy.cut, "hung": self.proxy.stall,
        }  # fmt: skip
        begins[self.kind]()

    def end(self) -> None:
        """Everything is as before, whatever there was on disk or in sockets."""
        if self.kind == "killed":
            self.server.start()
        self.server.thaw()
        self.proxy.restore()

    def lasting(self, seconds: float, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """One outage."""
        self.begin()
        let_pass(seconds / 2, because="the outage lasts")
        meanwhile()
        let_pass(seconds / 2, because="the outage lasts")
        self.end()

    def lease_of(self, job_id: str, queue: str) -> float:
        """When the job's lease ends."""
        with self.server.client() as client:
            return client.zscore(f"qwk:q:{queue}:active", job_id) or 0.0

    def await_renewal(self, job_id: str, queue: str) -> None:
        """Wait until the job's lease has been renewed once more, and return at that moment."""
        before = self.lease_of(job_id, queue)
        wait_until(lambda: self.lease_of(job_id, queue) > before, says=f"{job_id} is renewed", every_s=0.005)


@pytest.fixture(params=["killed", "frozen", "cut off", "hung"])
def outage(request: pytest.FixtureRequest, own_redis: OwnRedis, own_proxy: OwnProxy, tmp_path: Path,
           start_worker: StartWorker, queue_name: str) -> Outage:  # fmt: skip
    """One kind of outage of a Redis of this test's own, which keeps its data on disk."""
    server = own_redis(appendonly=True)
    # Calls give up within the outage, and are made again.
    limits = {"WORKER_LOCK_DURATION_MS": str(LEASE_MS), "REDIS_TIMEOUT_MS": str(LEASE_MS // 3)}
    stage = Stage(server.url(), queue_name, tmp_path, start_worker, limits)
    return Outage(stage, server, own_proxy(server), request.param)


def held_in_every_pool(outage: Outage, **how: object) -> dict[str, str]:
    """Start a worker of each pool, with a queue of its own and a job that it holds."""
    stage = outage.stage
    stage.workers(*({"pool": pool, "queues": [pool], "broker_url": outage.way} for pool in POOLS))
    jobs = {pool: stage.send("hold", queue=pool, gate="go", **how) for pool in POOLS}
    for job_id in jobs.values():
        stage.await_starts(job_id)
    return jobs


def test_outages_shorter_than_lease_less_renewal_cost_no_run(outage: Outage) -> None:
    """H2: given a job that runs in a worker of each pool; without Redis for four fifths of the bound, again and again, at
    four phases of the renewal interval, in the last of which the job ends; then one run, one attempt, no stall."""
    jobs, stage = held_in_every_pool(outage), outage.stage
    for phase in range(4):
        outage.await_renewal(jobs["prefork"], "prefork")
        let_pass(phase * RENEWAL_MS / 4000, because="the outage begins at another phase of the renewal interval")
        outage.lasting(SHORT_S, meanwhile=(lambda: stage.open("go")) if phase == 3 else lambda: None)
        for pool, job_id in jobs.items() if phase < 3 else ():
            outage.await_renewal(job_id, pool)
    assert {stage.await_end(job_id).state for job_id in jobs.values()} == {State.COMPLETED}
    assert {pool: stage.trace(job_id, pool) for pool, job_id in jobs.items()} == dict.fromkeys(POOLS, ONE_RUN)
    assert {stage.counters(job_id) for job_id in jobs.values()} == {(1, 1, 0)}
    assert [stage.starts(job_id) for job_id in jobs.values()] == [1, 1, 1, 1]


def test_an_outage_longer_than_lease_and_renewal_costs_a_run(outage: Outage) -> None:
    """H3: given a job that runs in a worker of each pool; without Redis for longer than the lease and a renewal interval;
    then the first run is told that its lease is lost, what it ends with is refused, and a second one completes."""
    jobs, stage = held_in_every_pool(outage, each=True), outage.stage
    outage.lasting(LONG_S)
    for job_id in jobs.values():
        wait_until(lambda j=job_id: stage.book("told", j), says=f"the first run of {job_id} is told")
    stage.open("go1")
    stage.open("go2")
    assert {stage.await_end(job_id).state for job_id in jobs.values()} == {State.COMPLETED}
    assert {line["reason"] for line in stage.book("told")} == {"lease_lost"}
    assert {pool: stage.trace(job_id, pool) for pool, job_id in jobs.items()} == dict.fromkeys(POOLS, STALLED_ONCE)
    assert {stage.counters(job_id) for job_id in jobs.values()} == {(1, 2, 1)}


@pytest.mark.parametrize(
    ("pool", "kind"), [*((pool, "down") for pool in POOLS), ("prefork", "frozen"), ("gevent", "frozen")]
)
def test_a_worker_boots_without_redis_and_takes_jobs_once_it_is_there(
    own_redis: OwnRedis, tmp_path: Path, start_worker: StartWorker, queue_name: str, pool: str, kind: str
) -> None:
    """H1: given no Redis at boot, or one that does not answer; the worker stays up, says so once for each time that it
    tries, and takes jobs as soon as Redis is there."""
    server = own_redis()
    stage = Stage(server.url(), queue_name, tmp_path, start_worker)
    server.stop() if kind == "down" else server.freeze()
    worker = stage.worker(pool, wait=False)
    tries = "Cannot connect to"
    wait_until(lambda: worker.logs().count(tries) >= 2, says="it has tried twice", within_s=40)
    clock, seen = Stopwatch(), worker.logs().count(tries)
    wait_until(lambda: worker.logs().count(tries) >= seen + 2, says="it has tried twice more")
    assert clock.elapsed_s > 0.5, "two tries follow each other without a pause"
    assert worker.running
    server.start() if kind == "down" else server.thaw()
    assert stage.await_end(stage.send("quick")).state == State.COMPLETED
    assert "Traceback" not in worker.logs()


# -- sockets that break -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_resets_at_any_moment_neither_lose_nor_repeat_a_run(stage: Stage, own_proxy: OwnProxy, pool: str) -> None:
    """Given a stream of jobs; every connection is reset, again and again, in the middle of claims and settles, and now and
    then the answer is lost although Redis has done what it was asked; then every job runs once, and no stall is counted."""
    proxy = own_proxy()
    stage.worker(pool, concurrency=1 if pool == "solo" else 2, broker_url=proxy.url())
    job_ids = [stage.send("pause", seconds=0.004) for _ in range(150)]
    for nth in range(1, 10):
        wait_until(lambda n=nth: len(stage.book("start")) >= 15 * n, says=f"{15 * nth} runs have begun", within_s=30)
        proxy.reset() if nth % 3 else _lose_answers_once(proxy)
    assert {job.state for job in stage.await_ends(job_ids)} == {State.COMPLETED}
    assert {stage.starts(job_id) for job_id in job_ids} == {1}
    assert {(made, stalls) for made, _, stalls in map(stage.counters, job_ids)} == {(1, 0)}
    assert {tuple(kind for kind in stage.trace(job_id) if kind in ("completed", "stalled")) for job_id in job_ids} == {
        ("completed",)
    }


def _lose_answers_once(proxy: TcpProxy) -> None:
    before = proxy.connections
    proxy.lose_answers()
    wait_until(lambda: proxy.connections < before, says="an answer is lost")
    proxy.restore()


@pytest.mark.parametrize("pool", POOLS)
def test_a_claim_whose_answer_is_lost_is_taken_back_at_once(stage: Stage, own_proxy: OwnProxy, pool: str) -> None:
    """Given a claim that Redis has made and whose answer is lost with its connection; then the job waits for no lease to run
    out, no stall is counted, and it runs once."""
    stage.env["WORKER_LOCK_DURATION_MS"] = "30000"
    proxy, job_id = own_proxy(), stage.send("quick")
    stage.worker(pool, broker_url=proxy.url(), at="hang:claim sending", wait=False)
    with _answers_lost(stage, proxy):
        stage.await_state(job_id, State.ACTIVE)
    assert stage.await_end(job_id).state == State.COMPLETED
    assert stage.trace(job_id) == ["added", "waiting", "active", "waiting", "active", "completed"]
    assert (stage.counters(job_id), stage.starts(job_id)) == ((1, 2, 0), 1)


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_settle_whose_answer_is_lost_is_sent_again_and_counts_once(
    stage: Stage, own_proxy: OwnProxy, pool: str
) -> None:
    """Given a settle that Redis has made and whose answer is lost with its connection; then the job has completed once, its
    worker forgets it and goes on."""
    proxy, job_id = own_proxy(), stage.send("quick")
    worker = stage.worker(pool, broker_url=proxy.url(), at="hang:settle sending")
    with _answers_lost(stage, proxy):
        stage.await_end(job_id)
    more = [stage.send("quick") for _ in range(5)]
    assert {job.state for job in stage.await_ends([job_id, *more])} == {State.COMPLETED}
    assert (stage.trace(job_id), stage.counters(job_id), stage.starts(job_id)) == (ONE_RUN, (1, 1, 0), 1)
    assert "lost its lease" not in worker.logs()


@contextmanager
def _answers_lost(stage: Stage, proxy: TcpProxy) -> Iterator[None]:
    """Let a worker go on that hangs before it sends something, whose answer is lost, as is every other until the end."""
    wait_until(lambda: stage.book("hangs"), says="the worker is about to send", within_s=40)
    proxy.lose_answers()
    stage.open("hang")
    yield
    proxy.restore()


@pytest.mark.parametrize("pool", POOLS)
def test_an_idle_worker_survives_many_resets_in_a_row(stage: Stage, own_proxy: OwnProxy, pool: str) -> None:
    """Given an idle worker whose connections are reset as soon as it has made them, ten times; then it still takes jobs."""
    proxy = own_proxy()
    worker = stage.worker(pool, broker_url=proxy.url())
    for _ in range(10):
        wait_until(lambda: proxy.connections >= 3, says="the worker has connected")
        proxy.reset()
    assert stage.await_end(stage.send("quick")).state == State.COMPLETED
    assert worker.running


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_reset_while_a_worker_shuts_down_loses_no_settle(stage: Stage, own_proxy: OwnProxy, pool: str) -> None:
    """Given a worker that shuts down and waits for its last job; its connections are reset, before, while and after it hears
    so; then the job is settled all the same, and the worker ends in order."""
    proxy = own_proxy()
    worker = stage.worker(pool, broker_url=proxy.url())
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    worker.sigterm()
    for _ in range(6):
        proxy.reset()
        let_pass(0.1, because="each reset meets another step of the shutdown")
    stage.open("go")
    proxy.reset()
    assert worker.wait_exit() == 0
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.COMPLETED, (1, 1, 0))


# -- restarts with an append-only file ------------------------------------------------------------------------------------


def test_all_jobs_end_once_when_redis_is_restarted_under_them(
    own_redis: OwnRedis, tmp_path: Path, start_worker: StartWorker, queue_name: str
) -> None:
    """H8: given jobs that wait, run and are delayed; killed and started again at once: Redis, with its append-only file;
    then all end, once."""
    server = own_redis(appendonly=True)
    stage = Stage(server.url(), queue_name, tmp_path, start_worker, {"WORKER_LOCK_DURATION_MS": str(LEASE_MS)})
    stage.worker(concurrency=2)
    active = [stage.send("hold", gate="go") for _ in range(2)]
    for job_id in active:
        stage.await_starts(job_id)
    others = [stage.send("quick") for _ in range(5)] + [stage.send("quick", delay_s=delay) for delay in (0.1, 1.0, 1.5)]
    server.restart()
    stage.open("go")
    assert {job.state for job in stage.await_ends([*active, *others])} == {State.COMPLETED}
    assert {stage.counters(job_id) for job_id in (*active, *others)} == {(1, 1, 0)}
    assert {stage.starts(job_id) for job_id in (*active, *others)} == {1}


def test_delayed_jobs_survive_the_restart_of_everything(
    own_redis: OwnRedis, tmp_path: Path, start_worker: StartWorker, queue_name: str
) -> None:
    """C6: given delayed jobs; killed: every worker, and Redis, which keeps an append-only file; then they run when due."""
    server = own_redis(appendonly=True)
    stage = Stage(server.url(), queue_name, tmp_path, start_worker)
    stage.worker()
    delays = (0.2, 3.0, 3.2)
    job_ids = [stage.send("quick", delay_s=delay) for delay in delays]
    stage.await_end(job_ids[0])
    stage.kill_workers()
    server.restart()
    stage.worker("threads")
    jobs = stage.await_ends(job_ids)
    assert {job.state for job in jobs} == {State.COMPLETED}
    for job, delay in zip(jobs, delays, strict=True):
        assert job.started_at_ms - job.added_at_ms >= delay * 1000
        assert stage.trace(job.id) == ["added", "delayed", "waiting", "active", "completed"]
    assert jobs[1].started_at_ms - jobs[1].added_at_ms <= 3000 * 1.2 + 250


def test_waiting_active_and_delayed_jobs_survive_the_restart_of_everything(
    own_redis: OwnRedis, tmp_path: Path, start_worker: StartWorker, queue_name: str
) -> None:
    """C6, H8: killed and started again: all workers, and Redis; then every job ends once."""
    server = own_redis(appendonly=True)
    stage = Stage(server.url(), queue_name, tmp_path, start_worker)
    first = stage.worker(concurrency=2)
    active = [stage.send("hold", gate="go") for _ in range(2)]
    for job_id in active:
        stage.await_starts(job_id)
    waiting = [stage.send("quick") for _ in range(3)]
    delayed = [stage.send("quick", delay_s=1.5 + turn / 10) for turn in range(3)]
    server.kill()
    first.kill_all()
    server.restart()
    assert {stage.job(job_id).state for job_id in delayed} <= {State.DELAYED, State.WAITING}
    stage.open("go")
    stage.worker(concurrency=2)
    assert {job.state for job in stage.await_ends([*active, *waiting, *delayed])} == {State.COMPLETED}
    for job_id in [*active, *waiting, *delayed]:
        stage.assert_explained(job_id)
    assert [stage.starts(job_id) for job_id in [*waiting, *delayed]] == [1] * 6
