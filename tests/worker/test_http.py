"""A worker's own port: metrics and health, under every pool, in outages and shutdowns, and for clients that mean no good."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from queue_kit.observe.metrics import BUCKETS, OWN, TIMES
from queue_kit.states import State
from queue_kit.worker.serving import http
from queue_kit.worker.serving.http import HttpServer, Page, said
from tests.support.fixtures import OwnRedis
from tests.support.ports import LOOPBACK, free_port, is_listening
from tests.support.probes import Answer, ask, series, tell
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import LEASE_S, POOLS, Stage

#: H5, with what the cases allow beside a bound.
BOUND_S = 1.2 * 1.2 + 0.25


class Serving:
    """A worker that serves its health on a port."""

    def __init__(self, stage: Stage, pool: str = "threads", *, port: int = 0, **options: object) -> None:
        self.port = port or free_port()
        env = {"ENABLE_WORKER_METRICS_SERVER": "true", "WORKER_METRICS_PORT": str(self.port)}
        self.worker: WorkerProcess = stage.worker(pool, env=env, **options)

    def live(self) -> Answer:
        return ask(self.port, "/health/live")

    def ready(self) -> Answer:
        return ask(self.port, "/health/ready")

    def series(self) -> dict[tuple[str, ...], float]:
        return series(ask(self.port, "/metrics").text)

    def assert_health(self, live: int, ready: int) -> Answer:
        """Both are answered in time; return the word on ready."""
        answers = self.live(), self.ready()
        assert ([answer.status for answer in answers], max(a.after_s for a in answers) < BOUND_S) == ([live, ready], True)
        return answers[1]


# -- health ---------------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_an_outage_makes_a_worker_not_ready_and_no_less_alive(stage: Stage, own_redis: OwnRedis, pool: str) -> None:
    """H5: refused, frozen, and back; each probe within 1.2 s, under every pool, also while a job burns the processor."""
    server = own_redis()
    own = Stage(server.url(), stage.queue, stage.folder, stage.start_worker)
    serving = Serving(own, pool)
    wait_until(lambda: serving.ready().status == 200, says="it is ready")
    own.await_starts(own.send("burn", seconds=3.0))
    server.freeze()
    assert serving.assert_health(200, 503).json == {"status": "not_ready", "reason": "Redis does not answer"}
    server.thaw()
    wait_until(lambda: serving.ready().status == 200, says="it is ready again")
    server.kill()
    serving.assert_health(200, 503)
    server.start()
    wait_until(lambda: serving.ready().status == 200, says="it is ready once more")


@pytest.mark.crash
def test_a_worker_that_boots_without_redis_is_alive_and_not_ready(stage: Stage, own_redis: OwnRedis) -> None:
    """H1, SPEC 12: down at worker boot; then Redis comes."""
    server = own_redis()
    server.kill()
    own = Stage(server.url(), stage.queue, stage.folder, stage.start_worker)
    serving = Serving(own, wait=False)
    wait_until(lambda: is_listening(serving.port), says="it serves its health", within_s=40)
    serving.assert_health(200, 503)
    server.start()
    wait_until(lambda: serving.ready().status == 200, says="it is ready", within_s=20)


@pytest.mark.crash
@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_worker_that_drains_is_alive_and_not_ready(stage: Stage, pool: str) -> None:
    """G1: to the end of its last job."""
    serving = Serving(stage, pool)
    job = stage.send("hold", gate="go")
    stage.await_starts(job)
    serving.worker.sigterm()
    wait_until(lambda: serving.ready().status == 503, says="it is not ready")
    assert serving.assert_health(200, 503).json["reason"] == "the worker ends"
    stage.open("go")
    assert serving.worker.wait_exit() == 0
    assert stage.job(job).state is State.COMPLETED


@pytest.mark.crash
@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_main_loop_that_hangs_for_a_lease_is_not_alive(stage: Stage, pool: str) -> None:
    """SPEC 11."""
    serving = Serving(stage, pool, at="hang:job taken")
    stage.send("quick")
    wait_until(lambda: stage.book("hangs"), says="the loop hangs")
    wait_until(lambda: serving.live().status == 503, says="live says so", within_s=3 * LEASE_S)
    assert serving.live().json["status"] == "hung"
    serving.assert_health(503, 503)
    stage.open("hang")
    wait_until(lambda: serving.live().status == 200, says="it is alive again")


@pytest.mark.crash
def test_a_solo_worker_that_runs_a_job_longer_than_a_lease_is_alive(stage: Stage) -> None:
    serving = Serving(stage, "solo")
    job = stage.send("burn", seconds=2.5 * LEASE_S)
    stage.await_starts(job)
    seen = set[int]()
    wait_until(lambda: seen.add(serving.live().status) or stage.job(job).state is State.COMPLETED, says="it has run")
    assert seen == {200}


@pytest.mark.crash
def test_a_server_that_may_not_be_used_makes_a_worker_not_ready(stage: Stage, own_redis: OwnRedis) -> None:
    """H7: the check fails while it runs: the primary has become a replica."""
    server = own_redis()
    own = Stage(server.url(), stage.queue, stage.folder, stage.start_worker)
    serving = Serving(own)
    wait_until(lambda: serving.ready().status == 200, says="it is ready")
    with server.client() as client:
        client.replicaof(LOOPBACK, "1")
        client.client_kill_filter(_type="normal", skipme=True)
        wait_until(lambda: "replica" in serving.ready().text, says="it says why not", within_s=20)
        client.replicaof("NO", "ONE")
    wait_until(lambda: serving.ready().status == 200, says="it is ready again", within_s=20)


# -- metrics --------------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_shows_its_own_series_and_no_others(stage: Stage, pool: str) -> None:
    """SPEC 11: runs and waits are timed in the main process, under every pool; names are the contract's."""
    serving = Serving(stage, pool)
    stage.await_ends([stage.send("pause", seconds=0.3), stage.send("quick"), stage.send("flaky")])
    wait_until(lambda: ("qwk_job_duration_seconds_count", "crash.quick", stage.queue) in serving.series(), says="it is timed")
    seen = serving.series()
    runs = {name: seen["qwk_job_duration_seconds_count", f"crash.{name}", stage.queue] for name in ("pause", "quick", "flaky")}
    assert runs == {"pause": 1, "quick": 1, "flaky": 2}
    assert 0.3 <= seen["qwk_job_duration_seconds_sum", "crash.pause", stage.queue] < 1.5
    assert seen["qwk_job_duration_seconds_bucket", "crash.pause", "0.25", stage.queue] == 0
    assert seen["qwk_job_duration_seconds_bucket", "crash.pause", "+Inf", stage.queue] == 1
    assert seen["qwk_job_wait_seconds_count", "crash.flaky", stage.queue] == 2
    families = {key[0].rpartition("_")[0] for key in seen}
    assert families == {f"qwk_{what}_seconds" for what in TIMES}
    assert all(f"# TYPE qwk_{what}_total counter" in ask(serving.port, "/metrics").text for what in OWN)


@pytest.mark.crash
def test_a_wait_is_counted_from_when_the_job_was_due(stage: Stage) -> None:
    """Sent before there was a worker, and behind another job."""
    first, second = stage.send("pause", seconds=0.6), stage.send("quick")
    serving = Serving(stage)
    stage.await_ends([first, second])
    wait_until(lambda: ("qwk_job_wait_seconds_sum", "crash.quick", stage.queue) in serving.series(), says="it is timed")
    seen = serving.series()
    behind, before = (seen["qwk_job_wait_seconds_sum", f"crash.{name}", stage.queue] for name in ("quick", "pause"))
    view = stage.job(second)
    assert abs(behind - ((view.started_at_ms or 0) - (view.added_at_ms or 0)) / 1000) < 0.25
    assert behind > before + 0.5


@pytest.mark.crash
def test_a_lost_lease_and_renewals_that_failed_are_counted(stage: Stage, own_redis: OwnRedis) -> None:
    """B8."""
    server = own_redis()
    own = Stage(server.url(), stage.queue, stage.folder, stage.start_worker)
    serving = Serving(own)
    job = own.send("hold", gate="go")
    own.await_starts(job)
    server.client().hset(f"qwk:job:{job}", "token", "another")
    lost = ("qwk_lease_lost_total", "crash.hold", stage.queue)
    wait_until(lambda: serving.series().get(lost) == 1, says="the lost lease is counted")
    server.client().hset(f"qwk:job:{job}", "token", "")
    held = own.send("hold", gate="go")
    own.open("go")
    own.await_end(held)
    again = own.send("hold", gate="later")
    own.await_starts(again)
    server.kill()
    failed = ("qwk_lease_renewals_failed_total", "crash.hold", stage.queue)
    wait_until(lambda: serving.series().get(failed, 0) >= 1, says="renewals that failed are counted")
    server.start()


# -- the port -------------------------------------------------------------------------------------------------------------


@pytest.mark.crash
def test_where_the_port_is_taken_a_worker_says_so_once_and_takes_it_when_it_is_free(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        serving = Serving(stage, port=taken.getsockname()[1])
        stage.await_end(stage.send("quick"))
        wait_until(lambda: "metrics and health are not served" in serving.worker.logs(), says="it says so")
    wait_until(lambda: serving.ready().status == 200, says="it serves", within_s=15, ignoring=OSError)
    assert serving.worker.logs().count("metrics and health are not served") == 1


@pytest.mark.crash
def test_no_process_of_a_pool_holds_the_port(stage: Stage) -> None:
    """Also one that is forked later: it would keep the port from the next worker."""
    serving = Serving(stage, "prefork", concurrency=2)
    child = serving.worker.child_pids()[0]
    serving.worker.kill_child(child)
    job = stage.send("hold", gate="go")
    stage.await_starts(job)
    wait_until(lambda: len(serving.worker.child_pids()) >= 2, says="there is another child")
    holders = {pid for pid in [serving.worker.pid, *serving.worker.child_pids()] if _listens(pid, serving.port)}
    stage.open("go")
    assert holders == {serving.worker.pid}


def _listens(pid: int, port: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in psutil.Process(pid).net_connections("tcp"))
    return False


def test_without_the_setting_no_port_is_opened(stage: Stage) -> None:
    worker = stage.worker()
    assert not [c for c in psutil.Process(worker.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]


# -- clients that mean no good --------------------------------------------------------------------------------------------


def broken() -> Page:
    raise RuntimeError("broken on purpose")


class Slow:
    """A page that takes until it is let go, as ready does where Redis is frozen."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def page(self) -> Page:
        self.asked.set()
        self.go.wait(20)
        return said(200, status="ok")


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, slow: Slow) -> Iterator[int]:
    """A server in this process, with a page that is fine, one that is large, and one that fails; short of patience."""
    monkeypatch.setattr(http, "_TIME_S", 0.6)
    pages = {
        "/fine": lambda: said(200, status="ok"), "/large": lambda: Page(200, b"x" * 5_000_000), "/broken": broken,
        "/slow": slow.page,
    }  # fmt: skip
    server = HttpServer(LOOPBACK, free_port(), pages)
    server.start()
    wait_until(lambda: is_listening(server._port), says="it listens")
    yield server._port
    server.stop()
    wait_until(lambda: not is_listening(server._port), says="it listens no more")


def fine(port: int) -> bool:
    return ask(port, "/fine").status == 200


def test_a_page_is_served_whole_and_not_to_be_kept(port: int) -> None:
    answer = ask(port, "/fine?a=b")
    assert (answer.status, answer.json, answer.headers["cache-control"]) == (200, {"status": "ok"}, "no-store")
    assert len(ask(port, "/large").text) == 5_000_000
    head = ask(port, "/large", "HEAD")
    assert (head.status, head.text, head.headers["content-length"]) == (200, "", "5000000")


def test_a_page_that_fails_is_500_and_the_next_is_fine(port: int, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(port, "/broken").status == 500
    assert "a probe could not be answered" in caplog.text
    assert fine(port)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"POST /fine HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"DELETE /fine HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /fine\r\n\r\n", 400),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /\xff\x00 HTTP/1.1\r\n\r\n", 404),
        (b"GET /fine HTTP/1.1\r\nX: " + b"a" * 20_000, 431),
        (b"GET /fine HTTP/1.1\r\nX: " + b"a" * 9_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /fine HTTP/1.1\r\nHost: x", 408),
        (b"", 408),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_no_good_request_is_refused_in_time(port: int, words: bytes, status: int) -> None:
    with suppress(ConnectionError):  # it may end before it has read a million bytes
        assert tell(port, words).split(b"\r\n")[0].split(b" ")[1] == str(status).encode()
    assert fine(port)


def test_a_client_that_drips_is_cut_off(port: int) -> None:
    """Slowloris: a byte now and then keeps no connection beyond its time."""
    with socket.create_connection((LOOPBACK, port), 10) as line:
        line.settimeout(0.05)

        def dripped() -> bool:
            with suppress(TimeoutError):
                line.sendall(b"X")
                return b"408" in line.recv(100)
            return False

        wait_until(dripped, says="it is cut off", within_s=5, ignoring=ConnectionError)
    assert fine(port)


def test_many_that_say_nothing_keep_nobody_out(port: int) -> None:
    """The oldest makes room: a probe is answered, though hundreds hold connections."""
    with ExitStack() as held:
        for _ in range(300):
            held.enter_context(socket.create_connection((LOOPBACK, port), 10))
            if _ % 50 == 0:
                assert fine(port)
        assert fine(port)


def test_a_probe_that_has_asked_is_answered_though_many_connect_meanwhile(port: int, slow: Slow) -> None:
    """Of those that make room, the ones that have said nothing come first."""
    with ExitStack() as held:
        asking = held.enter_context(socket.create_connection((LOOPBACK, port), 10))
        asking.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert slow.asked.wait(10)
        for _ in range(60):
            held.enter_context(socket.create_connection((LOOPBACK, port), 10))
        assert fine(port)
        slow.go.set()
        assert asking.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_one_that_does_not_read_its_answer_holds_nobody(port: int) -> None:
    with ExitStack() as held:
        for _ in range(5):
            line = held.enter_context(socket.create_connection((LOOPBACK, port), 10))
            line.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert fine(port)


def test_one_that_leaves_at_once_is_no_error(port: int, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        socket.create_connection((LOOPBACK, port), 10).close()
    assert fine(port)
    assert caplog.records == []


def test_an_address_that_is_none_is_said_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_AGAIN_S", 0.02)
    server = HttpServer("192.0.2.1", free_port(), {})
    server.start()
    wait_until(lambda: "not served: 192.0.2.1" in caplog.text, says="it is said")
    server.stop()
    assert caplog.text.count("not served") == 1


def test_the_buckets_reach_from_a_quick_write_to_the_longest_deadline() -> None:
    assert list(BUCKETS) == sorted(BUCKETS)
    assert (BUCKETS[0], BUCKETS[-1]) == (0.005, 1800.0)
