"""Jobs taken ahead, in line for a slot of a pool that does not count its slots itself; without it a threads or gevent worker
would begin all it has reserved at once, and a crash would count them as stalled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import RLock
from typing import Any

from queue_kit.transport.held import Held


class Line:
    """First come, first begun. Any thread may call it."""

    def __init__(self, held: Held, process: Callable[[Any], None]) -> None:
        self._held, self._process = held, process
        self._waiting: deque[Any] = deque()
        self._turn = RLock()  # two threads must not fill one slot

    def enter(self, request: Any) -> None:
        """Run a job now if it has its slot already or one is free, else in its turn."""
        job = getattr(request, "job", None)
        if job is None or job.begun:
            return self._process(request)
        self._waiting.append(request)
        self.move()

    def move(self) -> None:
        """Begin as many as there are free slots."""
        with self._turn:
            while self._waiting and self._held.has_free_slot:
                self._process(self._waiting.popleft())
