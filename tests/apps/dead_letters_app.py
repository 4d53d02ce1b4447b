"""Jobs that end in every way that leaves a dead letter; without them each case would have an app of its own."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Celery, shared_task
from pydantic import BaseModel, Field

from queue_kit import NonRetryableError, current_job, fixed, install, job
from tests.apps.crash_app import await_gate, begin, folder, note

SHORT = {
    "WORKER_LOCK_DURATION_MS": 1000, "WORKER_STALLED_INTERVAL_MS": 200, "REDIS_RETRY_MAX_MS": 500,
    "JANITOR_INTERVAL_MS": 300, "JOB_BACKOFF_DELAY_MS": 0,
}  # fmt: skip


def make(broker_url: str | None = None, **settings: Any) -> Celery:
    """Make an app with all jobs below. A worker's settings come from the environment, which wins over those here."""
    app = Celery("letters", broker=broker_url, set_as_current=False)
    install(app, {**{name: os.environ.get(name, short) for name, short in SHORT.items()}, **settings})
    return app


class Order(BaseModel):
    number: int = Field(ge=1)
    password: str = ""


@job("letters.fail", attempts=2, backoff=fixed(0))
def fail(mended: str = "", **payload: Any) -> str:
    """Fail, until a file of the name `mended` is there."""
    begin()
    if mended and (folder() / mended).exists():
        return "mended"
    raise ValueError("boom " + str(payload.get("password", "")))


@job("letters.refuse", attempts=5)
def refuse() -> None:
    """Fail for good at once."""
    begin()
    raise NonRetryableError("never")


@job("letters.order", attempts=2, payload=Order)
def order(payload: Order) -> int:
    """Take an order, if it is one."""
    begin()
    return payload.number


@job("letters.block", attempts=1, time_limit=1)
def block() -> None:
    """Run past the hard time limit."""
    begin()
    time.sleep(60)


@job("letters.die", attempts=5)
def die(mended: str = "") -> None:
    """Kill the process it runs in, until a file of the name `mended` is there."""
    run = begin()
    if not (mended and (folder() / mended).exists()):
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", id=run.id)


@shared_task(name="letters.once", acks_late=False)
def once() -> None:
    """A plain task that asks to run at most once, and loses its process."""
    begin()
    os.kill(os.getpid(), signal.SIGKILL)


@shared_task(name="letters.plain", bind=True, max_retries=1)
def plain(self: Any) -> None:
    """A plain task that fails, once more, and for good."""
    begin()
    raise self.retry(exc=KeyError("plain"), countdown=0)


@job("letters.quick", attempts=1)
def quick() -> None:
    """Be done at once."""
    note("end", id=begin().id)


@job("letters.gated", attempts=1)
def gated(gate: str) -> None:
    """Fail once a gate is open."""
    begin()
    await_gate(gate)
    raise ValueError(f"gate {gate}, attempt {current_job().attempts_made}")


@job("letters.misplaced", queue="dead-letter")
def misplaced() -> None:
    """Declared with the queue name that is reserved."""


app = make()
