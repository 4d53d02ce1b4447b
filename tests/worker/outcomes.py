"""What the tests of outcomes, deadlines and cancels share: a stack whose worker's book they read, and the jobs they send.

Without it each of these tests would start a worker of its own.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

from queue_kit import enqueue, open_census
from queue_kit.store.census import Census, JobView, RunView
from tests.apps import outcomes_app
from tests.conftest import LOGS
from tests.support.processes import send
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stack import QUEUE, Stack, current, fresh_id, stack

MODULE = "tests.apps.outcomes_app"
POOLS = ("prefork", "threads", "solo", "gevent")
RENEWAL_S = outcomes_app.LEASE_MS / 4000


@dataclass
class Bench:
    """A stack with its app, which is the current one, and its book."""

    stack: Stack
    app: Celery
    census: Census

    def worker(self, pool: str = "prefork", concurrency: int = 4, **options: Any) -> WorkerProcess:
        """Start one more worker; ``env`` is added to that of the stack."""
        options["env"] = {**self.stack.env, **options.get("env", {})}
        return self.stack.start_worker(pool=pool, concurrency=concurrency, **options)

    def send(self, name: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
        """Enqueue a declared job; return its id."""
        return enqueue(f"outcome.{name}", payload or {}, job_id=fresh_id(name), **options).id

    def send_plain(self, name: str, **options: Any) -> str:
        """Send a plain Celery task; return its id."""
        return str(self.app.send_task(f"outcome.{name}", task_id=fresh_id(name), **options).id)

    def open(self, gate: str) -> None:
        """Let the jobs go that wait for this gate."""
        (self.stack.folder / f"gate-{gate}").touch()

    def signal_soft_limit(self, pid: int) -> None:
        """Send a pool process the signal of the soft time limit, as its main process would."""
        assert pid in self.stack.workers[0].child_pids()
        send(pid, signal.SIGUSR1)

    def now_s(self) -> float:
        """The time, by the clock that the book uses."""
        return time.time()

    def logs(self) -> str:
        """The last lines of all its workers."""
        return "\n".join(f"{worker.hostname}\n{worker.log_tail()}" for worker in self.stack.workers)

    # -- what came of it ----------------------------------------------------------------------------------------------

    def ended(self, job_id: str, state: str = "completed", within_s: float = 15.0) -> JobView:
        """Wait until a job has ended so; return it."""
        self.stack.ended(job_id, state, within_s)
        return self.job(job_id)

    def job(self, job_id: str) -> JobView:
        """The job as it is now."""
        view = self.census.job(job_id)
        assert view is not None, f"{job_id} is gone"
        return view

    def counters(self, job_id: str) -> tuple[int, int, int]:
        """attempts_made, attempts_started, stalled_count."""
        return self.stack.counters(job_id)

    def trace(self, job_id: str) -> list[str]:
        """The names of the job's events in order."""
        return self.stack.trace(job_id)

    def at_ms(self, job_id: str, kind: str, nth: int = 0) -> int:
        """When the job's event of this kind was written, by the clock of Redis."""
        found = [event.at_ms for event in self.census.timeline(job_id) if event.kind == kind]
        return found[nth]

    def runs(self, job_id: str) -> list[RunView]:
        """The job's history."""
        return self.census.runs(job_id)

    def causes(self, job_id: str) -> list[str]:
        """Why each of its runs ended, by its history."""
        return [run.cause for run in self.runs(job_id)]

    def letter(self, job_id: str) -> dict[str, str]:
        """The job's only dead letter."""
        (letter,) = self.stack.dead_letters(job_id)
        return letter

    def result(self, job_id: str) -> AsyncResult:
        """What Celery tells a caller."""
        return AsyncResult(job_id, app=self.app)

    # -- the book -----------------------------------------------------------------------------------------------------

    def book(self, what: str, job_id: str | None = None) -> list[dict[str, Any]]:
        """The lines of one kind, oldest first, of one job if it is named."""
        path = self.stack.folder / "book"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["what"] == what and job_id in (None, line.get("id"))]

    def await_line(self, what: str, job_id: str, count: int = 1, within_s: float = 15.0) -> dict[str, Any]:
        """Wait until the book has so many lines of this kind about the job; return the last of them."""
        wait_until(
            lambda: len(self.book(what, job_id)) >= count, says=f"{job_id} has written {what} {count} times", within_s=within_s
        )
        return self.book(what, job_id)[count - 1]

    def starts(self, job_id: str) -> int:
        """How often the job's function has been entered."""
        return len(self.book("start", job_id))


@contextmanager
def bench(folder: Path, **env: Any) -> Iterator[Bench]:
    """Make a bench without a worker; ``env``: settings of its workers, over those of the app."""
    environment = {"OUTCOMES_FOLDER": str(folder), **{name: str(value) for name, value in env.items()}}
    with stack(folder, MODULE, env=environment) as made:
        app = outcomes_app.make(made.broker_url, made.backend_url)
        with current(app):
            yield Bench(made, app, open_census(app))


def attend(request: pytest.FixtureRequest, *names: str) -> None:
    """Make the app of this test's bench the current one, and let the report show the logs of its workers if it fails.

    ``names``: of the fixtures that may be its bench.
    """
    for name in set(names).intersection(request.fixturenames):
        made: Bench = request.getfixturevalue(name)
        made.app.set_current()
        request.node.stash.setdefault(LOGS, []).append((f"logs of {name}", made.logs))


__all__ = ["POOLS", "QUEUE", "RENEWAL_S", "Bench", "attend", "bench"]
