"""An app before and after it moves to queue_kit: the same tasks, with or without the one line.

Without it a migration would be shown on two apps that have nothing to do with each other. MOVING_OURS: whether it has the line;
MOVING_NEW: whether it knows the newest task.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery, shared_task

from queue_kit import install
from tests.support.waiting import wait_until


def make(broker_url: str | None = None, *, ours: bool, options: dict[str, Any] | None = None, **conf: Any) -> Celery:
    """Make the app; a worker's has its settings from its environment."""
    app = Celery("moving", broker=broker_url, set_as_current=False)
    app.conf.update(conf)
    app.conf.task_acks_late = True  # so that a stock worker, too, holds what it runs
    app.conf.broker_transport_options = {"visibility_timeout": float(os.environ.get("MOVING_VISIBILITY_S", "3600"))}
    if ours:
        install(app, options or {})
    return app


def note(line: str) -> None:
    """Write one line into the book; one write, so that lines of several processes stay whole."""
    with (Path(os.environ["MOVING_FOLDER"]) / "book").open("a") as book:
        book.write(f"{line}\n")


@shared_task(name="moving.work", bind=True)
def work(self: Any, number: int) -> int:
    """Say who has worked."""
    note(f"{number} {'ours' if hasattr(self.app, 'queue_kit') else 'stock'}")
    return number


@shared_task(name="moving.hold")
def hold(number: int) -> None:
    """Wait for a gate."""
    note(f"{number} begun")
    gate = Path(os.environ["MOVING_FOLDER"]) / "gate"
    wait_until(gate.exists, says="the gate is open", within_s=60)
    note(f"{number} ended")


@shared_task(name="moving.again", bind=True, max_retries=2)
def again(self: Any, number: int) -> None:
    """Ask for one retry, so that its second half may run on the other kind of worker."""
    note(f"{number} try {self.request.retries}")
    if self.request.retries == 0:
        raise self.retry(countdown=0.2)


if os.environ.get("MOVING_NEW"):

    @shared_task(name="moving.new")
    def new(number: int) -> None:
        """A task of the next version."""
        note(f"{number} new")


app = make(ours=bool(os.environ.get("MOVING_OURS"))) if "MOVING_FOLDER" in os.environ else None
