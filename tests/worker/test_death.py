"""A worker that dies is found out at once, whoever is left to see it; and none that lives is ever taken for dead.

The lease is thirty seconds unless a test says otherwise: what comes back sooner has not waited for it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis

from queue_kit.states import State
from queue_kit.store.script import script
from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.processes import is_alive
from tests.support.services import service_missing
from tests.support.waiting import let_pass, stays_true, wait_until
from tests.support.witnesses import kill_group, lock_file, lock_files, wardens
from tests.worker.stage import POOLS, STALLED_ONCE, Stage

pytestmark = pytest.mark.crash

#: What the contract allows from the kill until the job waits again, with the slack that all upper bounds have.
AT_ONCE_MS = 1_000 * 1.2 + 250
PLAIN = ("--without-gossip", "--without-mingle")
WITH_DEATH_APP = (*PLAIN, "--include", "tests.apps.death_app")
CONTAINER = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "--")


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.env.update(WORKER_LOCK_DURATION_MS="30000", WORKER_STALLED_INTERVAL_MS="5000")
    return stage


def comes_back(stage: Stage, job_id: str, killed_at_ms: float) -> None:
    """The job waits again at once, is run by another worker, and its trace is that of one stall."""
    assert stage.await_event(job_id, "stalled") - killed_at_ms <= AT_ONCE_MS
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))


def now_ms() -> float:
    return time.time() * 1000


# -- those that die ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_killed_alone_is_seen_by_its_warden(stage: Stage, pool: str) -> None:
    """B1: no other worker lives; what ran stalls at once, what was taken ahead goes back uncounted; nothing is left behind."""
    victim = stage.worker(pool, options=(*PLAIN, "--prefetch-multiplier", "3"))
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    ahead = stage.send("quick")
    if pool != "solo":  # whose main loop is busy with the job
        wait_until(lambda: stage.job(ahead).reserved, says="the next is taken ahead")
    file = lock_file(victim.pid)
    killed_at_ms = now_ms()
    victim.sigkill()
    stage.await_event(job_id, "stalled")
    assert (stage.trace(ahead), stage.counters(ahead)) == (["added", "waiting"], (0, 0, 0))
    wait_until(lambda: not file.exists() and not wardens(file), says="file and warden are gone")
    victim.wait_for_log("of its given back")
    stage.worker(pool)
    comes_back(stage, job_id, killed_at_ms)
    assert stage.await_end(ahead).state == State.COMPLETED


def test_a_warden_that_comes_late_takes_nothing_from_who_runs_the_job_now(stage: Stage) -> None:
    """B1, B9: given a frozen warden, whose worker is killed; a neighbour gives the job back and runs it; then the warden is
    thawed: one stall, two starts, and the run that goes on keeps its lease."""
    victim, neighbour = stage.worker(), stage.worker("threads", wait=False)
    neighbour.wait_ready()
    job_id = stage.send("hold", gate="go")
    first = stage.await_starts(job_id)
    dead = victim if first["pid"] != neighbour.pid else neighbour
    (warden,) = wardens(lock_file(dead.pid))
    wait_until(lambda: len(stage.census.workers()) == 2, says="both are on the roster")
    let_pass(1.1, because="a neighbour hears of others with each of its beats")
    warden.suspend()
    dead.kill_all()
    stage.await_starts(job_id, 2)
    warden.resume()
    wait_until(lambda: not is_alive(warden.pid), says="the warden has done its work")
    assert stage.job(job_id).state == State.ACTIVE
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.counters(job_id), stage.trace(job_id)) == ((1, 2, 1), STALLED_ONCE)


def test_a_worker_killed_with_its_warden_is_seen_by_its_neighbour(stage: Stage) -> None:
    """B1: given another worker on the machine, of whatever pool and queues."""
    victim, neighbour = stage.workers({"concurrency": 2}, {"pool": "threads", "queues": ["elsewhere"]})
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    wait_until(lambda: len(stage.census.workers()) == 2, says="both are on the roster")
    let_pass(1.1, because="the neighbour hears of others with each of its beats")
    killed_at_ms = kill_group(victim)
    neighbour.wait_for_log(f"job {job_id} of queue {stage.queue} stalled: its worker")
    stage.worker()
    comes_back(stage, job_id, killed_at_ms)


def test_workers_killed_with_all_that_could_see_it_are_seen_by_the_next_to_boot(stage: Stage) -> None:
    """B11: given two that are killed with their wardens; then the first to boot on the machine finds both dead."""
    victims = stage.workers({}, {"pool": "solo"})
    job_ids = [stage.send("hold", gate="go") for _ in range(2)]
    for job_id in job_ids:
        stage.await_starts(job_id)
    wait_until(lambda: len(stage.census.workers()) == 2, says="both are on the roster")
    for victim in victims:
        os.kill(victim.pid, signal.SIGSTOP)  # so that neither sees the other die
    for victim in victims:
        kill_group(victim)
    stage.open("go")
    stage.worker("threads", concurrency=2)
    assert [job.state for job in stage.await_ends(job_ids)] == [State.COMPLETED] * 2
    assert [stage.trace(job_id) for job_id in job_ids] == [STALLED_ONCE] * 2


@pytest.mark.parametrize("neighbour", [True, False], ids=["a neighbour", "a restart"])
def test_a_worker_that_is_process_one_is_seen_to_die_from_another_container(stage: Stage, neighbour: bool) -> None:
    """Given that both have their temporary folder in common, as after `docker restart`, or through a mount: a neighbour sees it
    at once; without one, the next to boot."""
    if subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode:
        service_missing("namespaces cannot be made here (unshare --pid)")
    victim = stage.worker(inside=CONTAINER)
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    assert stage.job(job_id).worker.split(":")[1] == "1"
    wait_until(lambda: len(stage.census.workers()) == 1, says="it is on the roster")
    if neighbour:
        stage.worker("threads", queues=["elsewhere"])
        wait_until(lambda: len(stage.census.workers()) == 2, says="so is the other")
    killed_at_ms = now_ms()
    os.kill(victim.child_pids()[0], signal.SIGKILL)
    if not neighbour:
        stage.worker("threads", queues=["elsewhere"])
        wait_until(lambda: stage.trace(job_id)[-1] == "stalled", says="the next to boot has seen it")
        killed_at_ms = now_ms()
    stage.await_event(job_id, "stalled")
    stage.worker()
    comes_back(stage, job_id, killed_at_ms)


def test_a_child_that_outlives_its_worker_keeps_its_job_until_it_is_gone_too(stage: Stage) -> None:
    """Given a child that does not die with its parent, and may still be in the effect; then its job runs nowhere else, although
    warden and neighbour look."""
    victim, _ = stage.workers({"options": WITH_DEATH_APP}, {"pool": "threads", "queues": ["elsewhere"]})
    job_id = stage.send("linger", gate="go")
    child = stage.await_starts(job_id)["pid"]
    wait_until(lambda: stage.book("lingers"), says="it will not die with its parent")
    victim.sigkill()
    stays_true(lambda: stage.job(job_id).state == State.ACTIVE, says="its job is left alone", for_s=1.5)
    killed_at_ms = now_ms()
    os.kill(child, signal.SIGKILL)
    stage.await_event(job_id, "stalled")
    stage.worker(options=WITH_DEATH_APP)
    comes_back(stage, job_id, killed_at_ms)


def test_an_embedded_beat_that_outlives_its_worker_holds_nothing_up(stage: Stage, tmp_path: Path) -> None:
    """It is forked from the worker, has no part in its jobs, and nobody ends it."""
    victim = stage.worker(options=(*PLAIN, "--beat", "--schedule", str(tmp_path / "schedule")))
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    victim.wait_for_log("beat: Starting...")
    assert sorted(len(lock_files(pid)) for pid in victim.child_pids()) == [0, 1]  # beat, and the pool's process
    killed_at_ms = now_ms()
    victim.sigkill()
    stage.await_event(job_id, "stalled")
    stage.worker()
    comes_back(stage, job_id, killed_at_ms)


def test_a_machine_that_nobody_sees_any_more_is_left_to_the_lease(stage: Stage, tmp_path: Path) -> None:
    """B1: given a worker whose warden and whose folder go with it; then its job comes back, but no sooner than its lease."""
    stage.env.update(WORKER_LOCK_DURATION_MS="1000", WORKER_STALLED_INTERVAL_MS="200")
    folder = tmp_path / "of-another-machine"
    folder.mkdir()
    victim, _ = stage.workers({"env": {"TMPDIR": str(folder)}}, {"queues": ["elsewhere"]})
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    file = lock_file(victim.pid)
    assert file.parent == folder
    os.kill(wardens(file)[0].pid, signal.SIGKILL)
    shutil.rmtree(folder)
    killed_at_ms = now_ms()
    victim.sigkill()
    assert stage.await_event(job_id, "stalled") - killed_at_ms > 500
    stage.open("go")
    stage.worker()
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.trace(job_id), stage.counters(job_id)) == (STALLED_ONCE, (1, 2, 1))


# -- those that leave ----------------------------------------------------------------------------------------------------


def test_a_worker_that_leaves_in_order_leaves_nothing_and_stalls_nothing(stage: Stage) -> None:
    """G1: whatever signals its warden gets meanwhile, which a terminal or a service manager sends to all."""
    worker = stage.worker()
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    wait_until(stage.census.workers, says="it is on the roster")
    file = lock_file(worker.pid)
    (warden,) = wardens(file)
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        warden.send_signal(signum)
    worker.sigterm()
    worker.wait_for_log("the worker ends")
    assert is_alive(warden.pid)
    stage.open("go")
    assert worker.wait_exit() == 0
    wait_until(lambda: not is_alive(warden.pid), says="the warden ends by itself")
    assert (stage.census.workers(), file.exists()) == ([], False)
    assert (stage.job(job_id).state, stage.counters(job_id)) == (State.COMPLETED, (1, 1, 0))


def test_what_it_costs_is_within_the_budget(stage: Stage) -> None:
    """At most 15 MB and three commands a second a worker; one beat a second it is, and a warden that sleeps."""
    worker = stage.worker("threads")
    wait_until(stage.census.workers, says="it is on the roster")
    (warden,) = wardens(lock_file(worker.pid))
    assert warden.memory_info().rss < 15_000_000
    beats = script("enrol").sha
    until, number = time.monotonic() + 3.0, 0
    with stage.client.monitor() as seen:
        while time.monotonic() < until:  # it waits for work anew each second, so there is always something to see
            number += beats in seen.next_command()["command"]
    assert 1 <= number <= 9


# -- those that live -----------------------------------------------------------------------------------------------------


def test_what_a_task_does_to_its_process_is_no_death(stage: Stage) -> None:
    """Given workers whose tasks hold the interpreter's lock, burn every core, and set the clock to tomorrow, all at once, and a
    neighbour that looks; then nothing stalls, though the lease is three seconds."""
    stage.env.update(WORKER_LOCK_DURATION_MS="3000", WORKER_STALLED_INTERVAL_MS="200")
    cores = psutil.cpu_count() or 1
    stage.workers(
        {"pool": "threads", "queues": ["clutch"], "options": WITH_DEATH_APP}, {"concurrency": cores, "queues": ["burn"]},
        {"pool": "threads", "queues": ["warp"], "options": WITH_DEATH_APP}, {"pool": "solo", "queues": ["elsewhere"]},
    )  # fmt: skip
    warped = stage.send("warp", queue="warp", gate="go")
    burnt = [stage.send("burn", queue="burn", seconds=4.0) for _ in range(cores)]
    clutched = stage.send("clutch", queue="clutch", seconds=2.0)
    stage.await_ends([clutched, *burnt])
    stage.open("go")
    stage.await_end(warped)
    queues = {warped: "warp", clutched: "clutch", **dict.fromkeys(burnt, "burn")}
    assert {tuple(stage.trace(job_id, queue)) for job_id, queue in queues.items()} == {
        ("added", "waiting", "active", "completed")
    }


def test_what_the_network_and_redis_do_is_no_death(
    own_redis: OwnRedis, own_proxy: OwnProxy, queue_name: str, tmp_path: Path, start_worker: StartWorker
) -> None:
    """H2: given a neighbour that looks, and one after the other, each shorter than lease less renewal interval (2.25 s here): the
    worker is frozen, Redis is frozen, Redis is killed and back with its file, the network is cut, every connection is reset."""
    server = own_redis(appendonly=True)
    stage = Stage(server.url(), queue_name, tmp_path, start_worker)
    stage.env.update(WORKER_LOCK_DURATION_MS="3000", WORKER_STALLED_INTERVAL_MS="200")
    proxy = own_proxy(server)
    worker, _ = stage.workers({"broker_url": proxy.url()}, {"pool": "threads", "queues": ["elsewhere"]})
    job_id = stage.send("hold", gate="go")
    stage.await_starts(job_id)
    wait_until(lambda: len(stage.census.workers()) == 2, says="both are on the roster")
    disturbances: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "the worker was frozen": (lambda: stage.freeze(worker), lambda: stage.thaw(worker)),
        "Redis was frozen": (server.freeze, server.thaw),
        "Redis was down": (server.kill, server.restart),
        "the network was cut": (proxy.cut, proxy.restore),
        "nothing came through": (proxy.stall, proxy.resume),
        "connections were reset": (proxy.reset, proxy.reset),
    }
    for what, (begin, end) in disturbances.items():
        begin()
        let_pass(1.2, because="so long it lasts")
        end()
        wait_until(lambda: stage.census.workers()[-1].silent_ms < 500, says="it is heard", ignoring=redis.RedisError)
        let_pass(1.0, because="leases that were not renewed would be reaped by now")
        assert stage.trace(job_id) == ["added", "waiting", "active"], what
    stage.open("go")
    assert stage.await_end(job_id).state == State.COMPLETED
    assert (stage.starts(job_id), stage.counters(job_id)) == (1, (1, 1, 0))
