"""Names for the moments of a run between fetch and settle, of a send, of a relay's batch and of what roles do; without them a
crash test could only kill at random, and a window between two commands would be found once in a thousand runs.

Nothing watches in production: a point then costs the look at one global.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: In the worker's main process, in the order in which a run comes by.
PARENT: Final = (
    "claim sending", "claim sent", "claim answered", "job taken", "pool entering", "accepted", "result arrived",
    "settle queued", "settle sending", "settle sent", "settle answered",
)  # fmt: skip
#: Where the pool runs the job: a child of the main process, or a thread or greenlet in it.
CHILD: Final = ("function entering", "function left", "move sending", "move answered", "report returning")

#: Where jobs are sent; ``send writing`` once for each few of many.
SENDER: Final = ("send entering", "send writing", "send written", "send answered")
#: In the threads of a worker that look after jobs: ``reaped`` and ``note read`` when there was something to do.
ROLES: Final = ("reap sending", "reaped", "trim sending", "trimmed", "note read", "note told", "note struck")

#: In a relay of the outbox, around one batch.
RELAY: Final = ("rows read", "rows sent", "rows marked", "rows committed")

_watcher: Callable[[str], None] | None = None


def watch(watcher: Callable[[str], None] | None) -> None:
    """Call ``watcher`` with the name of each point that this process, or a child forked later, reaches; ``None`` ends it."""
    global _watcher  # noqa: PLW0603 - one process, one watcher
    _watcher = watcher


def reached(point: str) -> None:
    """Say that this process is at ``point``."""
    if _watcher is not None:
        _watcher(point)
