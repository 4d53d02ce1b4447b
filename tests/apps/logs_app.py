"""A worker that logs as JSON, with jobs that write a line, are retried, quote a secret, and fail."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from celery import Celery

from queue_kit import NonRetryableError, TransientError, current_job, fixed, install, job
from queue_kit.observe.logs import json_logging_in_workers

logger = logging.getLogger(__name__)
LEASES = {"WORKER_LOCK_DURATION_MS": 1000, "WORKER_STALLED_INTERVAL_MS": 200}


def make(broker_url: str | None = None) -> Celery:
    """An app with the jobs below; its worker's URL comes from the environment."""
    app = Celery("logs", broker=broker_url, set_as_current=False)
    install(app, LEASES)
    return app


@job("logs.retried", attempts=2, backoff=fixed(0))
def retried(password: str = "") -> str:
    """Write a line, fail once, then give back what nobody should read."""
    logger.info("in the run")
    if current_job().attempts_made == 0:
        raise TransientError(f"refused: password={password} at redis://user:{password}@host/0")
    return f"password={password}"


@job("logs.held")
def held() -> None:
    """Stay until the worker is killed."""
    logger.info("in the run")
    current_job().sleep(60)


@job("logs.failing")
def failing(**payload: Any) -> None:
    """Fail for good."""
    raise NonRetryableError("never")


app = make()
if "worker" in sys.argv and not os.environ.get("LOGS_PLAIN"):  # the process of the tests keeps its own
    json_logging_in_workers()
