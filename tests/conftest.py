"""Fixtures of all tests: a private Redis, worker processes, network faults, and the search for keys left behind.

Without it each test would start, watch and end its processes in its own way, and a failing one would leave them running.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import _state
from django.db import connections

from tests.support.engine import EngineMissing, find_engine
from tests.support.fixtures import OwnProxy, OwnRedis, StartWorker
from tests.support.leaks import assert_nothing_leaked
from tests.support.proxy import TcpProxy
from tests.support.redis_server import RedisServer
from tests.support.services import service_missing
from tests.support.worker_process import WorkerProcess

LOGS = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that kill and freeze in one process of a parallel run: two at a time would starve each other's
    short leases of the processor, and see stalls that nobody caused."""
    for item in items:
        if item.get_closest_marker("crash"):
            item.add_marker(pytest.mark.xdist_group("crash"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Put the logs of a test's processes into its report if it failed."""
    report = yield
    if report.failed:
        report.sections.extend((title, read()) for title, read in item.stash.get(LOGS, []))
    return report


def _log_of(request: pytest.FixtureRequest, title: str, read: Callable[[], str]) -> None:
    request.node.stash.setdefault(LOGS, []).append((title, read))


@pytest.fixture(scope="module", autouse=True)
def short_pauses() -> None:
    """Take what is still there out of the garbage collector's way. In a process that has run a thousand tests a full collection
    takes as long as the bounds that tests assert."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """SQLite in a file of this run: threads that write at once meet the locks that production has. Here, and not where the
    site is tested, since the database is made once, for whichever test asks first."""
    database = connections["default"].settings_dict
    if "sqlite3" in database["ENGINE"]:
        database["TEST"]["NAME"] = str(tmp_path_factory.mktemp("db") / "test.sqlite3")


@pytest.fixture(scope="session")
def engine() -> Path:
    """The Redis program; without one the test skips, and fails in CI."""
    try:
        return find_engine()
    except EngineMissing as missing:
        service_missing(str(missing))


@pytest.fixture(scope="session")
def shared_redis(engine: Path) -> Iterator[RedisServer]:
    """The server that all tests of this process share; tests take `redis_server`, which is empty."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server(shared_redis: RedisServer, request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A running Redis, empty. For reading and writing; a test that kills or freezes takes `own_redis`.

    Afterwards no key may be left that nothing will ever clean up.
    """
    shared_redis.client().flushall()
    yield shared_redis
    _no_key_is_left(shared_redis, request)


@pytest.fixture
def own_redis(engine: Path, request: pytest.FixtureRequest) -> Iterator[OwnRedis]:
    """Start Redis servers that this test may kill, freeze, fill and restart; those that still run are checked for
    keys left behind, and all of them end with the test."""
    servers: list[RedisServer] = []

    def start(**options: Any) -> RedisServer:
        server = RedisServer(**options)
        servers.append(server)
        return server.start()

    yield start
    try:
        for server in servers:
            if server.running:
                server.thaw()
                _no_key_is_left(server, request)
    finally:
        for server in servers:
            server.close()


def _no_key_is_left(server: RedisServer, request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("leaves")
    assert_nothing_leaked(server, allowed=marker.args if marker else ())


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of the shared Redis that gives strings."""
    with redis_server.client() as client:
        yield client


@pytest.fixture
def own_tasks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps that this test makes have Celery's tasks and its own: not the shared ones of all that was imported."""
    celerys = {register for register in _state._on_app_finalizers if register.__module__ == "celery.app.builtins"}
    monkeypatch.setattr(_state, "_on_app_finalizers", celerys)


@pytest.fixture
def queue_name() -> str:
    """A queue name that no other test uses."""
    return f"q-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def own_proxy(own_redis: OwnRedis, redis_server: RedisServer) -> Iterator[OwnProxy]:
    """Start proxies that can cut, stall, reset and lose answers; all end with the test."""
    proxies: list[TcpProxy] = []

    def start(server: RedisServer | None = None) -> TcpProxy:
        proxies.append(TcpProxy((server or redis_server).port).start())
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.close()


# It asks for own_redis and own_proxy without using them, so that workers end before what they talk through.
@pytest.fixture
def start_worker(
    redis_server: RedisServer,
    own_redis: OwnRedis,
    own_proxy: OwnProxy,
    request: pytest.FixtureRequest,
    queue_name: str,
    tmp_path: Path,
) -> Iterator[StartWorker]:
    """Start worker processes; all are killed at the end, and their logs shown if the test failed.

    Without `broker_url` they use the shared Redis, and the broker serves as result backend unless `backend_url` says
    otherwise.
    """
    workers: list[WorkerProcess] = []

    def start(
        app: str = "tests.support.sample_app",
        *,
        broker_url: str = "",
        wait: bool = True,
        within_s: float = 40.0,
        **options: Any,
    ) -> WorkerProcess:
        broker_url = broker_url or redis_server.url()
        defaults = {"queues": [queue_name], "backend_url": broker_url, "folder": tmp_path}
        worker = WorkerProcess(app, broker_url, **{**defaults, **options})
        workers.append(worker)
        _log_of(request, f"log of {worker.hostname}", worker.log_tail)
        return worker.start(wait=wait, within_s=within_s)

    yield start
    for worker in workers:
        worker.kill_all()
