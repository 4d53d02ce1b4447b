"""What every peer shares: the payload, the server, and its three processes."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

URL = os.environ.get("CELERY_BROKER_URL", "")
PAYLOAD = "x" * 100
PROCESSES = 3
AT_ONCE = 10  # jobs in one process of a queue that runs coroutines and names no default, or one of 1


def in_processes(work: Callable[[], Any]) -> None:
    """Run a worker that has no command line of its own in as many processes as the others have."""
    processes = [get_context("fork").Process(target=work) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
