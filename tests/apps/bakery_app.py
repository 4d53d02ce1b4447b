"""A small project as its own tests would meet it: jobs that send jobs, fail, wait, and leave a mark in a file.

Without it the helpers for tests would be tried on what only tests do.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

from queue_kit import NonRetryableError, current_job, enqueue, fixed, install, job

# Without Celery's part for Django, which would close the connections of whatever test of Django's runs in the same process.
app = Celery("bakery", broker=os.environ.get("BAKERY_URL"), set_as_current=False, fixups=[])
install(app)


@job("bakery.bake", queue="oven", attempts=3, backoff=fixed(60_000))
def bake(loaf: str, burns: int = 0) -> str:
    """Bake, after it has burnt so often; then have it packed."""
    run = current_job()
    if run.attempts_made < burns:
        raise ConnectionError("no gas")
    with (Path(os.environ["BAKERY_FOLDER"]) / "book").open("a") as book:
        book.write(f"{loaf} {run.attempts_started}\n")
    enqueue("bakery.pack", {"loaf": loaf}, delay_ms=60_000)
    return loaf


@job("bakery.pack", queue="shop")
def pack(loaf: str) -> str:
    """Pack it; there is no paper for stones."""
    if loaf == "stone":
        raise NonRetryableError("no paper for stones")
    return f"{loaf} in paper"
