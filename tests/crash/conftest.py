"""The nodes of the crash tests: one Redis as broker, one for results, two workers; on processes or on containers.

CRASH_NODES=local (what is taken if it is not set) or docker says on which. pytest-celery is switched off for all other
tests (see pyproject.toml) and comes in here by name, so that its fixtures reach no further than this folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from pytest_celery import *  # noqa: F403 - some sixty fixtures, which only work together
from pytest_celery import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestSetup,
    CeleryTestWorker,
    CeleryWorkerCluster,
    CeleryWorkerContainer,
    RedisContainer,
    RedisTestBackend,
    RedisTestBroker,
)

from tests.crash import worker_app

NODES = os.environ.get("CRASH_NODES", "local")

if NODES == "local":
    from tests.crash.local_nodes import *  # noqa: F403
elif NODES == "docker":
    from tests.crash.docker_nodes import *  # noqa: F403
else:
    raise pytest.UsageError(f"CRASH_NODES is {NODES!r}; it may be 'local' or 'docker'")

HERE = Path(__file__).parent
LIBRARY = HERE.parents[1] / "queue_kit"


class CrashSetup(CeleryTestSetup):
    """pytest-celery's setup, with a sender that is prepared as the workers are."""

    @classmethod
    def update_app_config(cls, app: Celery) -> None:
        """Prepare the sender."""
        worker_app.prepare(app)


@pytest.fixture
def celery_setup_cls() -> type[CeleryTestSetup]:
    """The class of the setup."""
    return CrashSetup


@pytest.fixture
def celery_redis_backend(default_redis_backend: RedisContainer) -> RedisTestBackend:
    """The result backend's node, never torn down: that would walk over every object in this process, wake whatever is
    lazy among them (Django's settings) and take the backend from other tests' results. The process ends all the same."""
    return RedisTestBackend(default_redis_backend)


@pytest.fixture
def celery_broker_cluster(celery_redis_broker: RedisTestBroker) -> Iterator[CeleryBrokerCluster]:
    """One Redis; naming it keeps pytest-celery from running each test on RabbitMQ too."""
    cluster = CeleryBrokerCluster(celery_redis_broker)
    yield cluster
    cluster.teardown()


@pytest.fixture
def celery_backend_cluster(celery_redis_backend: RedisTestBackend) -> Iterator[CeleryBackendCluster]:
    """A second Redis, so that results and what tasks write down outlive the broker."""
    cluster = CeleryBackendCluster(celery_redis_backend)
    yield cluster
    cluster.teardown()


@pytest.fixture
def second_worker(
    default_worker_cls: type[CeleryTestWorker],
    second_worker_container: CeleryWorkerContainer,
    default_worker_app: Celery,
) -> Iterator[CeleryTestWorker]:
    """The second worker's node."""
    worker = default_worker_cls(container=second_worker_container, app=default_worker_app)
    yield worker
    worker.teardown()


@pytest.fixture
def celery_worker_cluster(
    celery_setup_worker: CeleryTestWorker, second_worker: CeleryTestWorker
) -> Iterator[CeleryWorkerCluster]:
    """Two workers: one to kill, one to take over."""
    cluster = CeleryWorkerCluster(celery_setup_worker, second_worker)
    yield cluster
    cluster.teardown()


@pytest.fixture
def default_redis_broker_command(default_redis_broker_cls: type[RedisContainer]) -> list[str]:
    """A broker that writes each command to disk before it answers: what it has accepted outlives a kill."""
    return default_redis_broker_cls.command("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def default_worker_command(default_worker_container_cls: type[CeleryWorkerContainer]) -> list[str]:
    """One slot a worker, so that a test knows who can take what; no talk among workers, which costs a second each."""
    return default_worker_container_cls.command("--concurrency", "1", "--without-mingle", "--without-gossip")


@pytest.fixture
def default_worker_initial_content() -> dict[str, bytes]:
    """The worker's folder: the app, and the library as it stands here."""
    sources = [path for path in LIBRARY.rglob("*") if path.suffix in {".py", ".lua"}]
    library = {f"queue_kit/{path.relative_to(LIBRARY).as_posix()}": path.read_bytes() for path in sources}
    return {"app.py": (HERE / "worker_app.py").read_bytes(), **library}
