"""A relay of the outbox in a process of its own, which kills itself where the test says, or may be killed by it.

Without it a kill between send and mark could only be played in a process that does not die.
"""

from __future__ import annotations

import os
import signal
import sys

import django
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "deploy.settings")
django.setup()

from queue_kit.transport import points  # noqa: E402


def die_at(point: str) -> None:
    """SIGKILL this process when it is there."""

    def reached(now_at: str) -> None:
        if now_at == point:
            os.kill(os.getpid(), signal.SIGKILL)

    points.watch(reached)


if __name__ == "__main__":
    die_at(os.environ.get("DIE_AT", ""))
    call_command("outbox_relay", *sys.argv[1:])
