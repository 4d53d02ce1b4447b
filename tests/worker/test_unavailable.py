"""Sends while Redis cannot take them: the caller hears so within a second in all, whatever the reason and however many send."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from queue_kit import QueueUnavailable, State, enqueue, enqueue_many
from queue_kit.store import Keys, Ledger
from tests.support.engine import find_engine
from tests.support.fixtures import OwnProxy, OwnRedis
from tests.support.ports import LOOPBACK, free_port, is_listening
from tests.support.processes import environment_with_project, kill_session, spawn
from tests.support.redis_server import RedisServer
from tests.support.waiting import Stopwatch, wait_until
from tests.worker.sending import WAYS, current, sending
from tests.worker.stage import Stage

#: The default limit of a send, with what the cases allow beside a bound.
BOUND_S = 1.0 * 1.2 + 0.25


@contextlib.contextmanager
def told_in_time(within_s: float = BOUND_S) -> Iterator[pytest.ExceptionInfo[QueueUnavailable]]:
    """The caller gets QueueUnavailable, and soon."""
    watch = Stopwatch()
    with pytest.raises(QueueUnavailable) as told:
        yield told
    assert watch.elapsed_s < within_s


def waiting(server: RedisServer) -> int:
    with server.client() as reader:
        ledger = Ledger(reader)
        return sum(ledger.length(Keys("qwk"), queue) for queue in ledger.queues(Keys("qwk")))


_INSIDE: list[Any] = []


# -- what can be wrong ----------------------------------------------------------------------------------------------------


def killed(server: RedisServer) -> str:
    server.kill()
    return "no"


def frozen(server: RedisServer) -> str:
    server.freeze()
    return "no"


def full(server: RedisServer) -> str:
    server.client().config_set("maxmemory", 1)
    return "no"


def made_a_replica(server: RedisServer) -> str:
    server.client().replicaof(LOOPBACK, str(free_port()))
    return "no"


def full_of_clients(server: RedisServer) -> str:
    """Whoever is in stays in, this test's own client among them."""
    _INSIDE.append(server.client(retry=None))
    _INSIDE[-1].config_set("maxclients", 1)
    return "no"


def protected(server: RedisServer) -> str:
    """Whoever is in stays in."""
    server.client().config_set("requirepass", "secret")
    return "no"


FAULTS: dict[str, Callable[[RedisServer], str]] = {
    "killed": killed, "frozen": frozen, "full": full, "a replica": made_a_replica, "full of clients": full_of_clients,
    "protected": protected,
}  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("backend", ["", "same", "rpc"])
def test_a_first_send_is_refused_in_time(own_redis: OwnRedis, fault: str, backend: str) -> None:
    """H4, H6, K7: on a connection yet to be made; nothing has been sent, and the error says so and names the job."""
    server = own_redis()
    backends = {"": None, "same": server.url(1), "rpc": "rpc://"}
    with sending(server.url(), backends[backend]):
        sent = FAULTS[fault](server)
        with told_in_time() as told:
            enqueue("enq.free", {"value": 1}, job_id="mine")
        assert told.value.sent == sent
        assert told.value.job_id == "mine" or backend == "rpc"  # there the reply queue comes first, and fails
    server.kill()


@pytest.mark.crash
@pytest.mark.parametrize("fault", FAULTS)
def test_a_later_send_is_refused_in_time(own_redis: OwnRedis, fault: str) -> None:
    """H4, H6, K7: on an established connection. Only of a frozen server nobody knows what it will do with the job."""
    server = own_redis()
    with sending(server.url()):
        enqueue("enq.free", {"value": 0})
        FAULTS[fault](server)
        if FAULTS[fault].__doc__:  # who is in stays in
            enqueue("enq.free", {"value": 1})
        else:
            with told_in_time() as told:
                enqueue("enq.free", {"value": 1})
            assert told.value.sent == ("unknown" if fault == "frozen" else "no")
    server.kill()


@pytest.mark.crash
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_every_way_to_send_is_bounded(own_redis: OwnRedis, way: str, fault: str) -> None:
    """H4, K7: Celery's own ways too."""
    server = own_redis()
    with sending(server.url(), server.url(1)) as app:
        FAULTS[fault](server)
        with told_in_time():
            WAYS[way](app)


def test_code_that_knows_celery_alone_catches_it(own_redis: OwnRedis) -> None:
    """SPEC 5: it is a kombu OperationalError."""
    server = own_redis()
    with sending(server.url()) as app:
        server.kill()
        with pytest.raises(OperationalError):
            app.tasks["enq.plain"].delay()


@pytest.mark.crash
def test_a_full_server_refuses_what_is_new_and_lets_the_rest_end(own_redis: OwnRedis, stage: Stage) -> None:
    """H6: given jobs that wait and run; memory full; then a send says so, and they are all settled."""
    server = own_redis(policy="noeviction")
    own = Stage(server.url(), stage.queue, stage.folder, stage.start_worker)
    running, *waiting_ids = [own.send("hold", gate="go"), *(own.send("quick") for _ in range(5)), own.send("flaky")]
    own.worker()
    own.await_starts(running)
    server.client().config_set("maxmemory", 1)
    with current(own.app), told_in_time() as told:
        own.app.tasks["crash.quick"].apply_async(queue=own.queue)
    assert told.value.sent == "no"
    own.open("go")
    assert {job.state for job in own.await_ends([running, *waiting_ids])} == {State.COMPLETED}


# -- what becomes of the job ----------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("established", [True, False])
def test_after_the_thaw_there_is_one_job_at_most_and_its_id_may_be_sent_again(
    own_redis: OwnRedis, established: bool
) -> None:
    """K7, E9: given a frozen server; thawed, and the same id sent again; then there is exactly one."""
    server = own_redis()
    with sending(server.url()):
        if established:
            enqueue_many("enq.free", [{}])
        server.freeze()
        with told_in_time() as told:
            enqueue("enq.free", {"value": 1}, job_id="job-1")
        server.thaw()
        wait_until(lambda: waiting(server) == (2 if established else 0), says="what was sent has arrived")
        again = enqueue("enq.free", {"value": 1}, job_id=told.value.job_id)
        assert (again.id, again.deduplicated) == ("job-1", established)
    assert waiting(server) == (2 if established else 1)


@pytest.mark.crash
def test_a_send_works_again_at_once(own_redis: OwnRedis) -> None:
    """H4: no state of the failure is left behind in the sender."""
    server = own_redis()
    with sending(server.url()):
        enqueue("enq.free")
        server.kill()
        with told_in_time():
            enqueue("enq.free")
        server.start()
        assert enqueue("enq.free").deduplicated is False
    assert waiting(server) == 1


@pytest.mark.crash
def test_a_connection_that_died_unseen_costs_nothing(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    """E9: the server closed it while nobody sent; the next send finds that out, and takes a new one."""
    server = own_redis()
    proxy = own_proxy(server)
    with sending(proxy.url()):
        enqueue("enq.free")
        proxy.reset()
        wait_until(lambda: proxy.connections == 0, says="the connection is reset")
        enqueue("enq.free")
    assert waiting(server) == 2


@pytest.mark.crash
def test_a_lost_answer_is_made_good_and_is_no_duplicate(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    """E9: given a connection that breaks after Redis has the job; then the second try finds it, and it is the caller's own."""
    server = own_redis()
    proxy = own_proxy(server)
    with sending(proxy.url()) as app:
        enqueue("enq.free")
        proxy.lose_answers(1)
        handle = enqueue("enq.free", job_id="mine")
        assert (handle.id, handle.deduplicated) == ("mine", False)
        result = app.tasks["enq.plain"].apply_async(task_id="mine")
        assert (result.deduplicated, result.existing_state) == (True, "waiting")
    assert waiting(server) == 2


@pytest.mark.crash
def test_answers_that_stay_lost_leave_it_unknown(own_redis: OwnRedis, own_proxy: OwnProxy) -> None:
    server = own_redis()
    proxy = own_proxy(server)
    with sending(proxy.url()):
        enqueue("enq.free")
        proxy.lose_answers()
        with told_in_time() as told:
            enqueue("enq.free")
    assert told.value.sent == "unknown"


# -- many at once ---------------------------------------------------------------------------------------------------------


def in_threads(app: Celery, count: int, send: Callable[[], Any]) -> list[tuple[float, Any]]:
    """Send from so many threads at one moment; seconds and outcome of each."""
    start = threading.Barrier(count)

    def one(_: int) -> tuple[float, Any]:
        app.set_current()
        start.wait(10)
        watch = Stopwatch()
        try:
            sent = send()
            return watch.elapsed_s, sent
        except QueueUnavailable as error:
            return watch.elapsed_s, error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.crash
@pytest.mark.parametrize("established", [True, False])
def test_fifty_threads_hear_of_a_hung_server_in_time(own_redis: OwnRedis, established: bool) -> None:
    """K14: none waits for another's connection longer than for its own answer; afterwards all can send."""
    server = own_redis()
    with sending(server.url()) as app:
        if established:
            in_threads(app, 50, lambda: enqueue("enq.free"))
        server.freeze()
        told = in_threads(app, 50, lambda: enqueue("enq.free"))
        assert all(isinstance(outcome, QueueUnavailable) for _, outcome in told)
        assert max(seconds for seconds, _ in told) < BOUND_S + 0.5  # fifty threads, two processors
        server.thaw()
        sent = in_threads(app, 50, lambda: enqueue("enq.free"))
        assert {type(outcome).__name__ for _, outcome in sent} == {"Enqueued"}


def test_fifty_threads_share_few_connections(own_redis: OwnRedis) -> None:
    """K14: the sender's connections are bounded, and nobody is refused."""
    server = own_redis()
    with sending(server.url()) as app:
        sent = in_threads(app, 50, lambda: [enqueue("enq.free") for _ in range(20)])
        assert {type(outcome).__name__ for _, outcome in sent} == {"list"}
        assert len(server.client().client_list()) <= 33
    assert waiting(server) == 1000


# -- names and Sentinels --------------------------------------------------------------------------------------------------


def test_a_name_lookup_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC 5: getaddrinfo knows no time limit."""
    ended = threading.Event()

    def hanging(*_: Any, **__: Any) -> Any:
        ended.wait(20)
        raise socket.gaierror("no such name")

    with sending("redis://queue.example:6379/0"):
        monkeypatch.setattr(socket, "getaddrinfo", hanging)
        with told_in_time() as told:
            enqueue("enq.free")
        ended.set()
    assert told.value.sent == "no"


def test_a_name_that_does_not_exist_is_told() -> None:
    with sending("redis://no-such-host.invalid:6379/0"), told_in_time():
        enqueue("enq.free")


@pytest.mark.crash
@pytest.mark.parametrize("frozen_one", [True, False])
def test_sentinels_that_are_down_or_hang_are_told_in_time(
    own_redis: OwnRedis, own_proxy: OwnProxy, frozen_one: bool
) -> None:
    """SPEC 5: three Sentinels, none of which answers."""
    ports = [free_port() for _ in range(3)]
    if frozen_one:
        proxy = own_proxy(own_redis())
        proxy.stall()
        ports[0] = proxy.port
    with sentinel_app(ports), told_in_time() as told:
        enqueue("enq.free")
    assert told.value.sent == "no"


@contextlib.contextmanager
def sentinel_app(ports: list[int]) -> Iterator[Celery]:
    with sending(";".join(f"sentinel://{LOOPBACK}:{port}" for port in ports)) as app:
        app.conf.broker_transport_options = {"master_name": "primary"}
        yield app


@contextlib.contextmanager
def sentinel_for(server: RedisServer, folder: Path) -> Iterator[int]:
    """A real Sentinel that knows one primary; its port."""
    port, conf = free_port(), folder / "sentinel.conf"
    conf.write_text(f"port {port}\nbind {LOOPBACK}\nsentinel monitor primary {LOOPBACK} {server.port} 1\n")
    process = spawn([str(find_engine()), str(conf), "--sentinel"], log=folder / "sentinel.log", cwd=folder)
    try:
        wait_until(lambda: is_listening(port), says="Sentinel listens")
        yield port
    finally:
        kill_session(process)


@pytest.mark.crash
def test_a_primary_under_sentinel_takes_jobs_and_its_loss_is_told(own_redis: OwnRedis, tmp_path: Path) -> None:
    """SPEC 5: one Sentinel that answers is enough, whatever the others do."""
    server = own_redis()
    with sentinel_for(server, tmp_path) as port, sentinel_app([free_port(), port, free_port()]):
        enqueue("enq.free")
        assert waiting(server) == 1
        server.freeze()
        with told_in_time():
            enqueue("enq.free")
        server.kill()
        with told_in_time():
            enqueue("enq.free")


@pytest.mark.crash
def test_the_next_of_several_urls_is_asked(own_redis: OwnRedis) -> None:
    """K11: the first is down; the second takes the job, in time."""
    server = own_redis()
    with sending(f"redis://{LOOPBACK}:{free_port()}/0;{server.url()}"):
        enqueue("enq.free")
        enqueue("enq.free")
    assert waiting(server) == 2


@pytest.mark.crash
def test_a_server_that_loads_its_data_is_told(own_redis: OwnRedis) -> None:
    """SPEC 12: LOADING is an answer, and no job was sent."""
    server = own_redis(save="3600 1000000", options={"key-load-delay": "2000", "loading-process-events-interval-bytes": "1024"})
    with server.client() as client:
        client.mset({f"key-{number}": "x" * 100 for number in range(500)})
        client.save()
    with sending(server.url()):
        server.kill()
        start = threading.Thread(target=server.start)
        start.start()
        wait_until(lambda: _loads(server), says="the server loads", ignoring=OSError, every_s=0.002)
        with told_in_time() as told:
            enqueue("enq.free")
        start.join()
        enqueue("enq.free")
    assert told.value.sent == "no"
    server.client().flushall()


def _loads(server: RedisServer) -> bool:
    with socket.create_connection((LOOPBACK, server.port), 1) as line:
        line.sendall(b"PING\r\n")
        return line.recv(100).startswith(b"-LOADING")


# -- other processes ------------------------------------------------------------------------------------------------------


def test_a_forked_child_opens_connections_of_its_own(own_redis: OwnRedis) -> None:
    """SPEC 5: parent and child send at the same time, and neither reads the other's answers."""
    server = own_redis()
    with sending(server.url()):
        enqueue("enq.free")
        children = [fork_and_send(100) for _ in range(3)]
        ids = {enqueue("enq.free").id for _ in range(100)}
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        assert len(ids) == 100
    assert waiting(server) == 401


def fork_and_send(count: int) -> int:
    """A child that sends and exits with 0 if each answer was its own."""
    child = os.fork()
    if child:
        return child
    try:
        handles = [enqueue("enq.free", job_id=f"{os.getpid()}-{number}") for number in range(count)]
        same = [handle.id for handle in handles] == [f"{os.getpid()}-{number}" for number in range(count)]
        os._exit(0 if same and not any(handle.deduplicated for handle in handles) else 1)
    except BaseException:  # noqa: BLE001 - a child of the test run must not go on as one
        os._exit(2)


@pytest.mark.crash
def test_a_child_forked_while_the_parent_hangs_is_not_held_up(own_redis: OwnRedis) -> None:
    """K14: locks that a thread of the parent held at the fork are not the child's."""
    server = own_redis()
    with sending(server.url()) as app:
        enqueue("enq.free")  # what Celery makes at the first send it makes under locks of its own
        server.freeze()
        busy = threading.Thread(target=in_threads, args=(app, 10, lambda: enqueue("enq.free")))
        busy.start()
        children = [fork_and_send(0) for _ in range(3)]
        server.thaw()
        children.append(fork_and_send(5))
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
        busy.join()
    assert waiting(server) in range(6, 17)


GEVENT = """
from gevent import monkey; monkey.patch_all()
import sys, time, gevent
from tests.worker.sending import sending
from queue_kit import QueueUnavailable, enqueue
from tests.support.waiting import let_pass

def send(app):
    began = time.monotonic()
    try:
        enqueue("enq.free")
        return "sent"
    except QueueUnavailable:
        return time.monotonic() - began

with sending(sys.argv[1]) as app:
    app.set_default()
    ticks = []
    def tick():
        while True:
            gevent.sleep(0.01)
            ticks.append(time.monotonic())
    gevent.spawn(tick)
    outcomes = gevent.joinall([gevent.spawn(send, app) for _ in range(50)])
    took = [greenlet.value for greenlet in outcomes]
    gaps = [later - earlier for earlier, later in zip(ticks, ticks[1:])]
    print(max(took) if all(isinstance(t, float) for t in took) else took.count("sent"), max(gaps or [0]))
"""


@pytest.mark.crash
@pytest.mark.parametrize("fault", ["frozen", ""])
def test_greenlets_are_told_in_time_and_the_others_run_on(own_redis: OwnRedis, fault: str) -> None:
    """K14: fifty greenlets of one thread; the loop goes round meanwhile."""
    server = own_redis()
    if fault:
        server.freeze()
    found = subprocess.run(
        [sys.executable, "-c", GEVENT, server.url()], env=environment_with_project({}), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    longest, gap = map(float, found.stdout.split())
    assert gap < 0.5
    assert longest < BOUND_S + 0.5 if fault else longest == 50
