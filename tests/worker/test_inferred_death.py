"""A worker that dies with all who could look at it is inferred to be dead, where that is asked for; and what is taken for its
death and is none: what that costs, and what it does not.

The lease is thirty seconds unless a test says otherwise: what comes back sooner has not waited for it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import psutil
import pytest
import redis

from queue_kit.rules.silence import SILENT_MS
from queue_kit.states import State
from queue_kit.store.script import script
from tests.support.fixtures import OwnProxy, OwnRedis
from tests.support.processes import send
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import let_pass, wait_until
from tests.support.witnesses import kill_group, lock_file, wardens
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import STALLED_ONCE, Stage

pytestmark = pytest.mark.crash

SILENCE_MS = 1_250
LONG_S = 2.0  # with the look that it may take to be seen, more than that
#: What the contract allows from the kill until the job runs again, with the slack that all upper bounds have.
SOON_MS = 2_000 * 1.2 + 250
WITH_DEATH_APP = ("--without-gossip", "--without-mingle", "--include", "tests.apps.death_app")


@pytest.fixture
def stage(stage: Stage) -> Stage:
    return inferring(stage)


def inferring(stage: Stage) -> Stage:
    stage.env.update(
        WORKER_LOCK_DURATION_MS="30000", WORKER_STALLED_INTERVAL_MS="5000", WORKER_INFERRED_DEATH_MS=str(SILENCE_MS)
    )
    return stage


def heard(stage: Stage) -> list[int]:
    """For how many milliseconds each worker has not been heard by Redis."""
    seconds, microseconds = stage.client.time()
    words = stage.client.zrange("qwk:workers:heard", 0, -1, withscores=True)
    return [seconds * 1000 + microseconds // 1000 - int(at_ms) for _, at_ms in words]


def both_are_watched(stage: Stage) -> None:
    """Return once each of two workers has looked at the other for a while."""
    wait_until(lambda: len(heard(stage)) == 2, says="both are heard")
    let_pass(1.5, because="who has not been watched for so long cannot be missed")


def warden_of(worker: WorkerProcess) -> psutil.Process:
    (warden,) = wardens(lock_file(worker.pid))
    return warden


# -- those that die ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_dies_with_its_machine_is_inferred_to_be_dead(stage: Stage, pool: str) -> None:
    """B1: given two workers, neither of which can see the other's lock; SIGKILL for the one in a job, with warden and pool; then
    the job runs again on the other in two seconds, and its trace is that of one stall."""
    first, second = stage.workers({"pool": pool}, {"pool": pool})
    both_are_watched(stage)
    job_id = stage.send("hold", gate="go")
    pid = stage.await_starts(job_id)["pid"]
    victim, other = (first, second) if pid in (first.pid, *first.child_pids()) else (second, first)
    killed_at_ms = kill_group(victim, unseen=True)
    assert stage.await_starts(job_id, 2)["at"] * 1000 - killed_at_ms <= SOON_MS
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))
    other.wait_for_log("is taken for dead: its connections have closed")
    wait_until(lambda: len(stage.census.workers()) == 1, says="the dead one is struck out")


# -- those that live -----------------------------------------------------------------------------------------------------


def test_what_is_no_death_is_not_taken_for_one(own_redis: OwnRedis, own_proxy: OwnProxy, stage: Stage) -> None:
    """H2: given a worker in a job, and another that infers; one after the other, and for longer than the silence that means
    death: the worker's machine is frozen, Redis is frozen, Redis is killed and back with its file, at once or not or while the
    machine is frozen, nothing comes through the worker's network, its connections are reset, everybody's are, its warden is
    killed."""
    server = own_redis(appendonly=True)
    proxy = own_proxy(server)
    stage = inferring(Stage(server.url(), stage.queue, stage.folder, stage.start_worker))
    workers = stage.workers({"broker_url": proxy.url()}, {"pool": "threads", "queues": ["elsewhere"]})
    both_are_watched(stage)
    warden = warden_of(workers[0])
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    for what, begin, lasts_s, end in disturbances(stage, workers[0], warden, server, proxy):
        begin()
        let_pass(lasts_s, because="so long it lasts")
        end()
        all_are_heard(stage)
        assert stage.trace(job_id) == ["added", "waiting", "active"], what
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.starts(job_id), stage.counters(job_id)) == (1, (1, 1, 0))


def disturbances(
    stage: Stage, worker: WorkerProcess, warden: psutil.Process, server: RedisServer, proxy: TcpProxy
) -> list[tuple[str, Callable[[], object], float, Callable[[], object]]]:
    """What it is, how it begins, for how many seconds it lasts, how it ends."""
    return [
        ("a frozen machine", lambda: freeze(stage, worker, warden), LONG_S, lambda: thaw(stage, worker, warden)),
        ("Redis frozen", server.freeze, LONG_S, server.thaw),
        ("Redis restarted", server.kill, 0.0, server.restart),
        ("a frozen machine, Redis restarted", lambda: (freeze(stage, worker, warden), server.kill(), server.restart()),
         LONG_S, lambda: thaw(stage, worker, warden)),
        ("Redis down", server.kill, LONG_S, server.restart),
        ("nothing came through", proxy.stall, LONG_S, proxy.resume),
        ("its connections reset", proxy.reset, 0.0, proxy.reset),
        ("all connections reset", lambda: reset_all(stage), 0.0, lambda: reset_all(stage)),
        ("no warden", lambda: send(warden.pid, signal.SIGKILL), LONG_S, lambda: None),
    ]  # fmt: skip


def all_are_heard(stage: Stage) -> None:
    """From here on nobody is missed."""
    wait_until(
        lambda: len(heard(stage)) == 2 and max(heard(stage)) < SILENT_MS, says="both are heard", ignoring=redis.RedisError
    )  # fmt: skip


def freeze(stage: Stage, worker: WorkerProcess, warden: psutil.Process) -> None:
    stage.freeze(worker)
    warden.suspend()


def thaw(stage: Stage, worker: WorkerProcess, warden: psutil.Process) -> None:
    stage.thaw(worker)
    warden.resume()


def reset_all(stage: Stage) -> None:
    for kind in ("normal", "pubsub"):
        stage.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def test_a_task_that_clutches_the_interpreter_is_no_death_though_its_connections_are_reset(
    stage: Stage, own_proxy: OwnProxy
) -> None:
    """Since its warden comes back in its place."""
    proxy = own_proxy()
    options = {"pool": "threads", "options": WITH_DEATH_APP}
    stage.workers({"broker_url": proxy.url(), **options}, {"pool": "threads", "queues": ["elsewhere"]})
    both_are_watched(stage)
    job_id = stage.send("clutch", seconds=2.5)
    stage.await_starts(job_id)
    proxy.reset()
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.starts(job_id)) == (["added", "waiting", "active", "completed"], 1)


def test_the_known_false_alarms_cost_a_stall_and_nothing_else(stage: Stage, own_proxy: OwnProxy) -> None:
    """B6: given a worker whose connections close as Redis sees it, and that cannot come back in time: its network is cut with a
    reset; its whole machine stands still just then. Its job is counted as stalled and runs again while it runs; what the first
    run says is refused; and the worker goes on to take jobs."""
    stage.env["WORKER_LOCK_DURATION_MS"] = "6000"  # so that it hears of it soon
    proxies = [own_proxy(), own_proxy()]
    workers = stage.workers(*({"broker_url": proxy.url()} for proxy in proxies))
    both_are_watched(stage)
    for trouble in ("cut", "frozen"):
        job_id = stage.send("hold", gate=trouble, each=True)
        pid = stage.await_starts(job_id)["pid"]
        victim, proxy = next(pair for pair in zip(workers, proxies, strict=True) if pid in pair[0].child_pids())
        warden = warden_of(victim)
        proxy.cut()
        if trouble == "frozen":
            freeze(stage, victim, warden)
            proxy.restore()
        stage.await_starts(job_id, 2)
        proxy.restore() if trouble == "cut" else thaw(stage, victim, warden)
        assert_it_runs_twice_and_ends_once(stage, job_id, victim, trouble)
        all_are_heard(stage)
    both = [stage.send("hold", gate="both") for _ in workers]
    for job_id in both:
        stage.await_starts(job_id)
    stage.open("both")
    assert [job.state for job in stage.await_ends(both)] == [State.COMPLETED] * 2


def assert_it_runs_twice_and_ends_once(stage: Stage, job_id: str, falsely_dead: WorkerProcess, gate: str) -> None:
    falsely_dead.wait_for_log(f"job crash.hold[{job_id}] has lost its lease", within_s=20)
    stage.open(f"{gate}1")
    wait_until(lambda: len(stage.book("end", job_id)) == 1, says="its run has ended")
    assert stage.job(job_id).state == State.ACTIVE
    stage.open(f"{gate}2")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))


# -- what it costs -------------------------------------------------------------------------------------------------------


def test_what_it_costs_is_within_the_budget(stage: Stage) -> None:
    """At most 15 MB and three commands a second a worker, those of certain detection among them."""
    worker = stage.worker("threads")
    wait_until(lambda: heard(stage), says="it is heard")
    (channel,) = stage.client.pubsub_channels("qwk:worker:*")
    wait_until(lambda: stage.client.pubsub_numsub(channel)[0][1] == 2, says="its warden listens too")
    assert warden_of(worker).memory_info().rss < 15_000_000
    words = {script(name).sha for name in ("enrol", "look")}
    until, number = time.monotonic() + 4.0, 0
    with stage.client.monitor() as seen:
        while time.monotonic() < until:
            number += any(word in seen.next_command()["command"] for word in words)
    assert 4 <= number <= 3 * 4 + 2  # one of each may lie on either edge
