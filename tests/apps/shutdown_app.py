"""The crash tests' app, with jobs that end in their own ways when their worker is asked to."""

from __future__ import annotations

from celery import shared_task

from queue_kit import current_job, job
from tests.apps.crash_app import app, await_gate, begin, note

__all__ = ["app"]


@job("crash.heed", attempts=5)
def heed(gate: str = "") -> None:
    """Work until asked to stop; then stop, once the gate is open if one is named."""
    run = begin()
    while run.sleep(30):
        pass
    note("told", id=run.id, reason=str(run.cancel_reason))
    if gate:
        await_gate(gate)
    run.raise_if_cancelled()


@job("crash.fail", attempts=1)
def fail(gate: str) -> None:
    """Fail for good, once a gate is open."""
    begin()
    await_gate(gate)
    raise ValueError("no")


@shared_task(name="crash.once", acks_late=False)
def once(gate: str) -> None:
    """Run at most once, until a gate is open."""
    note("start", id=current_job().id)
    await_gate(gate)
