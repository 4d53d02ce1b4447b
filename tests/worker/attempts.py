"""What the tests of attempts, identity and delays share: a stack of the attempts app, and what its tasks wrote down.

Without it each of these tests would read the tasks' notes in its own way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery import Celery

from queue_kit import enqueue
from tests.apps import attempts_app
from tests.support.events import events
from tests.support.processes import is_alive
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stack import QUEUE, Stack, current, fresh_id, stack

MODULE = "tests.apps.attempts_app"
POOLS = ("prefork", "threads", "solo", "gevent")
PARTS = ("wait", "reserved", "active", "delayed", "completed", "failed", "cancelled")


@dataclass
class Hall:
    """A stack with its app, which is the current one."""

    stack: Stack
    app: Celery

    def worker(self, pool: str = "prefork", concurrency: int = 2, **options: Any) -> WorkerProcess:
        """Start one more worker."""
        return self.stack.start_worker(pool=pool, concurrency=concurrency, **options)

    def enqueue(self, name: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
        """Enqueue a declared job; return its id."""
        return enqueue(f"attempts.{name}", payload or {}, **{"job_id": fresh_id(name), **options}).id

    def send(self, name: str, *args: Any, **options: Any) -> Any:
        """Send a plain task; return Celery's result."""
        options = {"task_id": fresh_id(name), **options}
        return self.app.tasks[f"attempts.{name}"].apply_async(args, **options)

    def ended(self, job_id: Any, state: str = "completed", within_s: float = 15.0) -> dict[str, str]:
        """Wait until a job has ended so; return its record."""
        return self.stack.ended(job_id, state, within_s)

    def ended_in(self, queue: str, job_id: Any, state: str = "completed") -> None:
        """Wait until a job has ended so in a queue of another name."""
        self.stack.ended(job_id, state)
        assert self.stack.record(job_id)["queue"] == queue

    def trace(self, job_id: Any) -> list[str]:
        """The names of a job's events in order."""
        return self.stack.trace(job_id)

    def at_ms(self, job_id: Any, kind: str, nth: int = 0) -> int:
        """When the job's event of this kind was written, by the clock of Redis."""
        return [event.at_ms for event in events(self.stack.jobs, QUEUE, str(job_id)) if event.kind == kind][nth]

    def copies(self, job_id: Any) -> list[str]:
        """The lists of the queue that hold this job."""
        return [part for part in PARTS if self.stack.jobs.zscore(f"qwk:q:{QUEUE}:{part}", str(job_id)) is not None]

    def starts(self, job_id: Any) -> list[dict[str, Any]]:
        """What each start of a job has written down, in order."""
        lines: Any = self.stack.notes.lrange(f"starts:{job_id}", 0, -1)
        return [json.loads(line) for line in lines]

    def all_starts(self, name: str) -> int:
        """How often jobs whose ids begin so have been started."""
        return sum(self._length(key) for key in self.stack.notes.scan_iter(f"starts:{name}*"))

    def noted(self, label: str) -> int:
        """How many jobs of the task `notes` have run with this label; a job that ran twice counts once."""
        jobs: Any = self.stack.notes.scard(f"noted:{label}")
        return int(jobs)

    def settled(self) -> None:
        """Wait until no job is under way."""
        parts = [f"qwk:q:{QUEUE}:{part}" for part in ("wait", "reserved", "active", "delayed")]
        wait_until(lambda: not any(map(self.stack.jobs.zcard, parts)), says="no job is under way")

    def _length(self, key: str) -> int:
        length: Any = self.stack.notes.llen(key)
        return int(length)

    def await_gate(self, gate: str, count: int = 1, within_s: float = 15.0) -> None:
        """Wait until so many runs stand at a gate."""
        wait_until(
            lambda: self._length(f"at:{gate}") >= count, says=f"{count} runs are at gate {gate}", within_s=within_s
        )

    def open_gate(self, gate: str, times: int = 1) -> None:
        """Let so many runs pass."""
        self.stack.notes.rpush(f"gate:{gate}", *range(times))

    def kill_after_sending(self, name: str, nth: int = 1) -> None:
        """Have the process killed that sends the nth task of this name from within a run."""
        self.stack.notes.rpush(f"kill-after:{name}", *["pass"] * (nth - 1), "kill")

    def kill_before_sending(self, name: str) -> None:
        """Have the process killed that is about to send a task of this name from within a run."""
        self.stack.notes.rpush(f"kill-before:{name}", "kill")

    def await_killed(self) -> None:
        """Wait until every process that was killed so is gone."""
        pids: Any = self.stack.notes.lrange("killed", 0, -1)
        wait_until(lambda: not any(is_alive(int(pid)) for pid in pids), says="the killed processes are gone")

    def has_killed(self, name: str) -> bool:
        """Say whether that has happened."""
        return not self.stack.notes.exists(f"kill-after:{name}")


@contextmanager
def hall(folder: Path, **options: Any) -> Iterator[Hall]:
    """Make a stack of the attempts app without a worker."""
    # The app takes pickled messages, which Celery refuses to a worker of root unless told.
    env = {"C_FORCE_ROOT": "1", **options.pop("env", {})}
    with stack(folder, MODULE, env=env, **options) as made:
        app = attempts_app.make(made.broker_url, made.backend_url)
        with current(app):
            yield Hall(made, app)
