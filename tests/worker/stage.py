"""What a crash test plays on: a Redis, an app that sends, workers with short leases, gates, and the book of what ran.

Without it every test would spell out its worker's environment and read the book in its own way.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from celery import Celery
from redis.sentinel import MasterNotFoundError

from queue_kit.observe.reading import open_census
from queue_kit.states import State
from queue_kit.store.census import Census, JobView
from queue_kit.store.letters import DeadLetter, LetterFilter
from queue_kit.worker.operating.letters import dead_letters
from tests.apps import crash_app
from tests.support.fixtures import StartWorker
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

POOLS = ("prefork", "threads", "solo", "gevent")
FINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)
LEASE_S, REAP_S = crash_app.LEASE_MS / 1000, crash_app.REAP_MS / 1000


@dataclass
class Stage:
    """`url` is where jobs are sent and read; workers may be given another way to the same server."""

    url: str
    queue: str
    folder: Path
    start_worker: StartWorker
    env: dict[str, str] = field(default_factory=dict)
    started: list[WorkerProcess] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.app: Celery = crash_app.make(self.url)
        self.census: Census = open_census(self.app)
        self.client = redis.Redis.from_url(self.url)

    def worker(self, pool: str = "prefork", concurrency: int = 1, **options: Any) -> WorkerProcess:
        """Start a worker with short leases; `env` and the rest as for `start_worker`, `at` as in the app's CRASH_AT."""
        env = {"CRASH_FOLDER": str(self.folder), **self.env, **options.pop("env", {})}
        if "at" in options:
            env["CRASH_AT"] = options.pop("at")
        options = {"broker_url": self.url, "backend_url": "", "queues": [self.queue], **options}
        self.started.append(
            self.start_worker("tests.apps.crash_app", pool=pool, concurrency=concurrency, env=env, **options)
        )
        return self.started[-1]

    def workers(self, *many: dict[str, Any]) -> list[WorkerProcess]:
        """Start several workers at once, which takes little longer than one; a dictionary of options for each."""
        started = [self.worker(**{**options, "wait": False}) for options in many]
        for worker in started:
            worker.wait_ready()
        return started

    def kill_workers(self) -> None:
        """SIGKILL every worker that this stage has started, with its children."""
        for worker in self.started:
            worker.kill_all()

    def send(self, name: str, queue: str = "", delay_s: float | None = None, **kwargs: Any) -> str:
        """Send a job, to run after `delay_s` seconds; return its id."""
        job_id = f"{name}-{uuid.uuid4().hex[:8]}"
        self.app.send_task(f"crash.{name}", kwargs=kwargs, queue=queue or self.queue, task_id=job_id, countdown=delay_s)
        return job_id

    def open(self, gate: str) -> None:
        """Let the jobs go that wait for this gate."""
        (self.folder / f"gate-{gate}").touch()

    def freeze(self, worker: WorkerProcess) -> None:
        """SIGSTOP a worker with its pool's children, as a suspended machine would."""
        os.killpg(worker.pid, signal.SIGSTOP)

    def thaw(self, worker: WorkerProcess) -> None:
        """SIGCONT what `freeze` has stopped."""
        os.killpg(worker.pid, signal.SIGCONT)

    # -- the book -----------------------------------------------------------------------------------------------------

    def book(self, what: str, job_id: str | None = None) -> list[dict[str, Any]]:
        """The lines of one kind, oldest first, of one job if it is named."""
        path = self.folder / "book"
        text = path.read_text() if path.exists() else ""
        # What comes after the last end of a line is being written.
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if line["what"] == what and job_id in (None, line.get("id"))]

    def starts(self, job_id: str) -> int:
        """How often the job's function has been entered."""
        return len(self.book("start", job_id))

    def await_starts(self, job_id: str, count: int = 1, within_s: float = 15.0) -> dict[str, Any]:
        """Wait until the job's function has been entered so often; return the last line about it."""
        wait_until(lambda: self.starts(job_id) >= count, says=f"{job_id} has begun {count} times", within_s=within_s)
        return self.book("start", job_id)[count - 1]

    # -- Redis --------------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> JobView:
        """The job as it is now."""
        view = self.census.job(job_id)
        assert view is not None, f"{job_id} is gone"
        return view

    def await_state(self, job_id: str, *states: State, within_s: float = 15.0) -> JobView:
        """Wait until the job is in one of these states; return it."""

        def arrived() -> JobView | None:
            view = self.job(job_id)
            return view if view.state in states else None

        # On a busy machine Sentinels take a primary for down now and then, and name none until it has answered them.
        view = wait_until(arrived, says=f"{job_id} is {states}", within_s=within_s, ignoring=MasterNotFoundError)
        assert view is not None
        return view

    def await_end(self, job_id: str, within_s: float = 20.0) -> JobView:
        """Wait until the job is in a final state; return it."""
        return self.await_state(job_id, *FINAL, within_s=within_s)

    def await_ends(self, job_ids: Sequence[str], within_s: float = 30.0) -> list[JobView]:
        """Wait until all are in a final state; return them."""
        return [self.await_end(job_id, within_s) for job_id in job_ids]

    def await_event(self, job_id: str, kind: str, within_s: float = 15.0) -> int:
        """Wait for an event of the job; return its instant in milliseconds, by the clock of Redis."""
        wait_until(lambda: kind in self.trace(job_id), says=f"{job_id} has {kind}", within_s=within_s)
        return next(
            event.at_ms for event in self.census.events(self.queue) if (event.job_id, event.kind) == (job_id, kind)
        )

    def trace(self, job_id: str, queue: str = "") -> list[str]:
        """The names of the job's events in order."""
        found = self.census.events(queue or self.queue)
        return [event.kind for event in found if event.job_id == job_id]

    def snapshot(self, job_id: str) -> tuple[Any, ...]:
        """All that Redis keeps of a job: its record, its history, its events."""
        return self.job(job_id), self.census.runs(job_id), self.trace(job_id)

    def letters(self) -> list[DeadLetter]:
        """The dead letters of this queue, newest first."""
        return list(dead_letters(self.app).each(LetterFilter(queue=self.queue)))

    def counters(self, job_id: str) -> tuple[int, int, int]:
        """attempts_made, attempts_started, stalled_count."""
        job = self.job(job_id)
        return job.attempts_made, job.attempts_started, job.stalled_count

    def assert_explained(self, job_id: str) -> None:
        """The job has ended exactly once, and every start beyond the first follows from an event that says why."""
        seen = self.trace(job_id)
        finals = [kind for kind in seen if kind in ("completed", "failed", "cancelled")]
        assert len(finals) == 1, seen
        explained = self.job(job_id).stalled_count + self.recalls(job_id) + seen.count("delayed")
        assert seen.count("active") - 1 <= explained, seen

    def recalls(self, job_id: str) -> int:
        """How often the job went back to waiting from active without a stall."""
        seen = self.trace(job_id)
        pairs = list(zip(seen, [*seen[1:], ""], [*seen[2:], "", ""], strict=False))
        return sum(first == "active" and second == "waiting" and third != "stalled" for first, second, third in pairs)


STALLED_ONCE = ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]
