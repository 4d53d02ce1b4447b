"""What a run may know about itself; without it a task would dig in message properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from celery import current_task

from queue_kit.errors import NoCurrentJob
from queue_kit.transport.envelope import PROPERTY


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The run that is going on. Counters are those at its beginning, as in BullMQ: this run is not yet an attempt made."""

    id: str
    name: str
    queue: str
    attempts_made: int
    attempts_started: int
    stalled_count: int

    @property
    def is_rerun(self) -> bool:
        """True when the job has been started before: what it does may have been done already."""
        return self.attempts_started > 1


def current_job() -> CurrentJob:
    """The job that this code runs in.

    :raises NoCurrentJob: outside a run.
    """
    task: Any = current_task
    if not task or task.request.id is None:
        raise NoCurrentJob()
    request = task.request
    facts = (request.properties or {}).get(PROPERTY) or {}
    queue = facts.get("queue") or (request.delivery_info or {}).get("routing_key") or ""
    return CurrentJob(
        id=request.id,
        name=task.name,
        queue=queue,
        attempts_made=facts.get("attempts_made", request.retries),
        attempts_started=facts.get("attempts_started", request.retries + 1),
        stalled_count=facts.get("stalled_count", 0),
    )
