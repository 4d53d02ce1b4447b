"""The stage of the dead-letter cases: jobs that end for good, and what is read and replayed of them."""

from __future__ import annotations

from typing import Any

from queue_kit import dead_letters
from queue_kit.observe.reading import open_census
from queue_kit.store.letters import DeadLetter
from tests.apps import dead_letters_app
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess
from tests.worker.stage import Stage


class LettersStage(Stage):
    """Sends the jobs of the dead-letter app, starts its workers, opens its dead letters."""

    def __post_init__(self) -> None:
        self.app = dead_letters_app.make(self.url)
        self.census = open_census(self.app)
        self.letters = dead_letters(self.app)

    def worker(self, pool: str = "prefork", concurrency: int = 2, **options: Any) -> WorkerProcess:
        env = {"CRASH_FOLDER": str(self.folder), **self.env, **options.pop("env", {})}
        if "at" in options:
            env["CRASH_AT"] = options.pop("at")
        options = {"broker_url": self.url, "backend_url": "", "queues": [self.queue], **options}
        return self.start_worker("tests.apps.dead_letters_app", pool=pool, concurrency=concurrency, env=env, **options)

    def send(self, name: str, queue: str = "", **kwargs: Any) -> str:
        return self.post(name, kwargs=kwargs, queue=queue or self.queue)

    def post(self, name: str, **options: Any) -> str:
        """Send a job with options of Celery's; return its id."""
        return str(self.app.send_task(f"letters.{name}", **{"queue": self.queue, **options}).id)

    def mend(self, name: str) -> None:
        """Let the jobs succeed that fail until a file of this name is there."""
        (self.folder / name).touch()

    def await_letters(self, count: int = 1, within_s: float = 20.0) -> list[DeadLetter]:
        """Wait until there are so many dead letters; return them, newest first."""
        wait_until(lambda: len(self.letters.ids()) >= count, says=f"{count} dead letters", within_s=within_s)
        return self.letters.page().letters

    def letter_of(self, job_id: str) -> DeadLetter:
        """Wait for the dead letter of a job; return it."""
        return wait_until(
            lambda: next((found for found in self.letters.each() if found.job_id == job_id), None),
            says=f"{job_id} has a dead letter", within_s=20,
        )  # fmt: skip
