"""A worker that kills itself at a point, for :func:`queue_kit.testing.kill_at`: only the process itself sees the moment come."""

from __future__ import annotations

import os
import signal
import sys

from celery.bin.celery import main

from queue_kit.transport import points


def run(point: str, words: list[str]) -> None:
    """Run a command of Celery's, and die at the point."""
    points.watch(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == point else None)
    sys.argv = ["celery", *words]
    sys.exit(main())


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
