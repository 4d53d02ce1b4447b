"""Jobs that are sent in every way there is, with payload models and without.

Without it each test of sending would declare jobs of its own, and they would pile up in every app of the run.
"""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

from celery import Celery, shared_task
from pydantic import BaseModel, Field

from queue_kit import InvalidPayload, current_job, enqueue, exponential, install, job

SHORT = {"WORKER_LOCK_DURATION_MS": 1000, "WORKER_STALLED_INTERVAL_MS": 200}


class Order(BaseModel):
    """A payload with one field of each kind that can be wrong."""

    number: int = Field(ge=1)
    name: str = Field(max_length=10)
    at: dt.datetime | None = None
    lines: list[str] = []
    tone: str = Field("plain", alias="toneOfVoice")


def make(broker_url: str | None = None, backend_url: str | None = None, **settings: Any) -> Celery:
    """Make an app with all jobs below."""
    app = Celery("enqueue", broker=broker_url, backend=backend_url, set_as_current=False)
    install(app, {**{name: os.environ.get(name, short) for name, short in SHORT.items()}, **settings})
    return app


@job("enq.order", payload=Order, queue="orders", backoff=exponential(10))
def order(payload: Order) -> str:
    """Take a validated payload."""
    return f"{payload.number} {payload.name} {payload.at} {payload.tone}"


@job("enq.free")
def free(value: Any = None) -> Any:
    """Take plain keyword arguments."""
    return value


@job("enq.tell", attempts=3)
def tell() -> dict[str, Any]:
    """Say who one is."""
    run = current_job()
    return {"id": run.id, "correlation_id": run.correlation_id, "idempotency_key": run.idempotency_key}


@job("enq.pass_on")
def pass_on(name: str = "enq.tell") -> str:
    """Enqueue another job from within this one."""
    return enqueue(name).id


@job("enq.refuse")
def refuse() -> None:
    """Fail for good."""
    raise InvalidPayload("found at the worker")


@shared_task(name="enq.plain")
def plain(*args: Any, **kwargs: Any) -> Any:
    """A plain Celery task."""
    return [list(args), kwargs]


app = make()
