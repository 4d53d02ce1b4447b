"""What the pages read and ask, opened for one request; without it one page would show what another redacts."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from queue_kit.django.conf import celery_app
from queue_kit.errors import JobNotFound, QueueKitError
from queue_kit.observe.reading import open_census
from queue_kit.rules.redaction import Redactor
from queue_kit.store.census import Census, EventView, JobView, LineView, RunView
from queue_kit.store.dead_letters import DeadLetters
from queue_kit.store.letters import DeadLetter
from queue_kit.worker.operating.letters import dead_letters, without_secrets


class QueueNotFound(QueueKitError, LookupError):
    """No queue of this name has ever held a job."""


class Desk:
    """The dead letters, the census and the app behind them. Connects when first asked."""

    @cached_property
    def app(self) -> Any:
        return celery_app()

    @cached_property
    def letters(self) -> DeadLetters:
        return dead_letters(self.app)

    @cached_property
    def census(self) -> Census:
        return open_census(self.app)

    @cached_property
    def redactor(self) -> Redactor:
        return Redactor.of(self.app.queue_kit.settings.dead_letter_redact)

    def job(self, job_id: str) -> JobView:
        """Read one job.

        :raises JobNotFound: no job has this id (any more).
        """
        job = self.census.job(job_id)
        if job is None:
            raise JobNotFound(f"no job has the id {job_id}")
        return job

    def shown(self, job: JobView) -> DeadLetter:
        """A job's payload and reason without secrets: read as a dead letter is, so that both pages hide the same."""
        return self._opened(job, job.reason)

    def runs(self, job_id: str, job: JobView | None) -> list[RunView]:
        """The attempt history of a job, without secrets; of one whose record is gone too."""
        return [replace(run, reason=self._reason(job, run.reason)) for run in self.census.runs(job_id)]

    def timeline(self, job_id: str, since_ms: int | None = None) -> list[EventView]:
        """The events of a job, without secrets; added then, if its record may be gone."""
        return [
            replace(event, fields={name: self.redactor.text(value) for name, value in event.fields.items()})
            for event in self.census.timeline(job_id, since_ms)
        ]

    def log(self, job_id: str) -> list[LineView]:
        """What a job's runs have written, without secrets."""
        return [replace(line, line=self.redactor.text(line.line)) for line in self.census.log(job_id)]

    def _reason(self, job: JobView | None, reason: str) -> str:
        return self._opened(job, reason).reason if job else self.redactor.text(reason)

    def _opened(self, job: JobView, reason: str) -> DeadLetter:
        return without_secrets(self.app, job, reason)


def desk_with(queue: str) -> Desk:
    """A desk, for a queue that there is.

    :raises QueueNotFound: it has never held a job; to pause it would make it.
    """
    desk = Desk()
    if queue not in desk.census.queues():
        raise QueueNotFound(f"there is no queue {queue}")
    return desk
