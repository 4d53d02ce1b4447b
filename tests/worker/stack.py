"""One Redis, one app in this process and its worker, shared by the tests of a module.

Without it each test would start a worker of its own, and most of the run would go by in imports.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app

from queue_kit.store import Ledger, Moves
from tests.conftest import LOGS
from tests.support.events import trace
from tests.support.leaks import assert_nothing_leaked
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

QUEUE = "celery"


@dataclass
class Stack:
    """A Redis of its own: jobs in database `db`, results and the tests' own notes in the next one."""

    server: RedisServer
    folder: Path
    module: str
    db: int = 0
    env: dict[str, str] = field(default_factory=dict)
    workers: list[WorkerProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = self.server.client(self.db)
        self.notes = self.server.client(self.db + 1)

    @property
    def broker_url(self) -> str:
        return self.server.url(self.db)

    @property
    def backend_url(self) -> str:
        return self.server.url(self.db + 1)

    def start_worker(self, **options: Any) -> WorkerProcess:
        """Start one more worker on this stack's app; it ends with the stack. The options are WorkerProcess's.

        broker_url: another way to the same server.
        """
        defaults: dict[str, Any] = {"backend_url": self.backend_url, "folder": self.folder, "env": self.env}
        broker_url = options.pop("broker_url", self.broker_url)
        worker = WorkerProcess(self.module, broker_url, **{**defaults, **options})
        self.workers.append(worker)
        return worker.start()

    def trace(self, job_id: Any, queue: str = QUEUE) -> list[str]:
        """The names of a job's events, in order."""
        return trace(self.jobs, queue, str(job_id))

    def record(self, job_id: Any) -> dict[str, str]:
        """A job's own record, straight from Redis."""
        found: Any = self.jobs.hgetall(f"qwk:job:{job_id}")
        return dict(found)

    def ended(self, job_id: Any, state: str = "completed", within_s: float = 15.0) -> dict[str, str]:
        """Wait until a job has ended so; return its record."""
        wait_until(lambda: self.record(job_id).get("state") == state, says=f"{job_id} is {state}", within_s=within_s)
        return self.record(job_id)

    def counters(self, job_id: Any) -> tuple[int, int, int]:
        """attempts_made, attempts_started and stalled_count."""
        record = self.record(job_id)
        return tuple(int(record.get(name, 0)) for name in ("attempts_made", "attempts_started", "stalled_count"))  # type: ignore[return-value]

    def promote(self, job_id: Any) -> None:
        """Let a delayed job be due now."""
        moves = Moves("qwk")
        assert Ledger(self.jobs).run(moves.promote(str(job_id))) == "ok"

    def dead_letters(self, job_id: Any, queue: str = QUEUE) -> list[dict[str, str]]:
        """The dead letters of one job, oldest first."""
        ids: Any = self.jobs.zrange(f"qwk:q:{queue}:dead", 0, -1)
        records: list[Any] = [self.jobs.hgetall(f"qwk:dead:{record}") for record in ids]
        return [record for record in records if record.get("job") == str(job_id)]

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.kill_all()
        self.jobs.close()
        self.notes.close()


@contextlib.contextmanager
def stack(folder: Path, module: str, **options: Any) -> Iterator[Stack]:
    """Make a stack on a Redis of its own and end it; no key may be left that nothing will ever clean up."""
    with RedisServer() as server:
        made = Stack(server, folder, module, **options)
        try:
            yield made
        finally:
            made.close()
        assert_nothing_leaked(server)


@contextlib.contextmanager
def current(app: Celery) -> Iterator[Celery]:
    """Make an app the current one of this thread, as it is in a project's own processes; then put back what was."""
    before = current_app._get_current_object()
    app.set_current()
    try:
        yield app
    finally:
        before.set_current()
        leave(app)


def leave(app: Celery) -> None:
    """Close an app. Celery holds results that nobody fetched, and would unsubscribe them when this process ends: by then
    their server is gone."""
    consumer = getattr(app.backend, "result_consumer", None)
    if consumer is not None:
        consumer.subscribed_to.clear()
        consumer.stop()
    app.close()


def show_logs(request: pytest.FixtureRequest, *workers: WorkerProcess) -> None:
    """Let the report of this test show the logs of workers that it shares with others, if it fails."""
    logs = request.node.stash.setdefault(LOGS, [])
    logs.extend((f"log of {worker.hostname}", worker.log_tail) for worker in workers)


def fresh_id(name: str = "job") -> str:
    """An id that no other job has."""
    return f"{name}-{uuid.uuid4().hex[:12]}"
