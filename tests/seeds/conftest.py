"""The site with all its processes, as the demo starts them; each test brings the workers it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from deploy.demo.process import Process
from deploy.demo.stack import Stack
from tests.conftest import LOGS

StartSiteWorker = Callable[[int], Process]


@pytest.fixture(scope="module")
def stack(engine: object) -> Iterator[Stack]:
    """Redis, two web servers, the scoring service and the edge cache; no workers."""
    with Stack() as running:
        yield running


@pytest.fixture
def start_site_worker(stack: Stack, request: pytest.FixtureRequest) -> Iterator[StartSiteWorker]:
    """Start `celery -A deploy worker -c N` and return when it is ready; all workers end with the test."""
    request.node.stash[LOGS] = [(f"log of {process.name}", process.tail) for process in stack.processes]
    before = len(stack.workers)

    def start(concurrency: int) -> Process:
        worker = stack.start_worker(f"worker-{len(stack.workers)}", concurrency)
        request.node.stash[LOGS].append((f"log of {worker.name}", worker.tail))
        stack.await_worker(worker)
        return worker

    yield start
    for worker in stack.workers[before:]:
        worker.stop()
