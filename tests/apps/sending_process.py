"""A process that sends one job or many, and is killed at the point that CRASH_AT names.

Without it a sender could only be killed by luck between two steps of a send, or would have to be the test itself.
"""

from __future__ import annotations

import sys

from queue_kit import enqueue, enqueue_many
from tests.apps import crash_app


def main(way: str, job_id: str) -> None:
    """Send to the queue `celery` of the broker in the environment."""
    app = crash_app.app
    app.set_default()
    crash_app.watch_from_environment()
    if way == "enqueue":
        enqueue("crash.quick", job_id=job_id)
    elif way == "delay":
        app.tasks["crash.plain"].apply_async(task_id=job_id)
    else:
        enqueue_many("crash.quick", [{}] * 2500)


if __name__ == "__main__":
    main(*sys.argv[1:])
