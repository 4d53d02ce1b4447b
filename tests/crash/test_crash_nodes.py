"""What survives when a node is killed, said in pytest-celery's words, so that it runs on containers too."""

from __future__ import annotations

import pytest
from pytest_celery import CeleryTestSetup, CeleryTestWorker

from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash


def worker_named(setup: CeleryTestSetup, hostname: str) -> CeleryTestWorker:
    """Return the worker's node that bears this name."""
    return next(worker for worker in setup.worker_cluster if worker.hostname() == hostname)


def test_a_killed_workers_job_runs_again_on_the_other_worker(celery_setup: CeleryTestSetup) -> None:
    """Given a job that runs, its worker SIGKILLed in it: then the other worker runs it, once, and its result arrives."""
    runs = celery_setup.backend.container.client
    result = celery_setup.app.send_task("crash.hold_once", ("runs",))
    first = wait_until(lambda: runs.lindex("runs", 0), says="the job begins")
    worker_named(celery_setup, first).kill()
    second = result.get(timeout=30)
    assert [first, second] == runs.lrange("runs", 0, -1)
    assert first != second


def test_a_broker_killed_and_restarted_with_its_file_loses_nothing(celery_setup: CeleryTestSetup) -> None:
    """Given five jobs that nobody has taken, Redis SIGKILLed and started again: then all five run."""
    for worker in celery_setup.worker_cluster:
        worker.kill("SIGSTOP")
    results = [celery_setup.app.send_task("crash.add", (number, 1)) for number in range(5)]
    celery_setup.broker.kill()
    celery_setup.broker.restart()
    for worker in celery_setup.worker_cluster:
        worker.kill("SIGCONT")
    assert [result.get(timeout=30) for result in results] == [1, 2, 3, 4, 5]
