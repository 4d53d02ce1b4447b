"""What a worker says to probes and scrapers; a probe that asks Redis to learn whether the process lives would restart every
worker when Redis is away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from queue_kit.observe.metrics import CONTENT_TYPE, WorkerCollector, render
from queue_kit.transport.held import Held
from queue_kit.worker.roles.keeper import Keeper
from queue_kit.worker.roles.role import Role, new_lock
from queue_kit.worker.serving.http import Page, said
from queue_kit.worker.settling.counts import Counts

#: How long a probe waits for Redis.
ASK_MS: Final = 1_000


class Pulse(Role):
    """Asks Redis whether it answers, when a probe wants to know; on one thread for all, with the worker's own connection."""

    name = "pulse"

    def __init__(self, open_client: Callable[[], Redis]) -> None:
        super().__init__(open_client, 0.05)
        self._waiting: deque[tuple[Any, list[bool]]] = deque()

    def beats(self) -> bool:
        """Whether Redis answers within a second."""
        bell, answer = new_lock(), list[bool]()
        bell.acquire()
        self._waiting.append((bell, answer))
        return bool(bell.acquire(True, ASK_MS / 1000)) and answer[0]

    def tick(self) -> None:
        """Ask once for all that wait."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not waiting:
            return
        try:
            fine = bool(self.ledger.client.ping())
        except (RedisError, OSError):  # the other roles say so in the log
            fine = False
            self.leave()
        for bell, answer in waiting:
            answer.append(fine)
            bell.release()


class Health:
    """The three pages of a worker."""

    def __init__(self, app: Any, held: Held, keeper: Keeper, counts: Counts, pulse: Pulse) -> None:
        self._held, self._keeper, self._pulse = held, keeper, pulse
        self._collector = WorkerCollector(counts.read, counts.times, app.tasks)

    @property
    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """What makes each page, by its path."""
        return {"/metrics": self.metrics, "/health/live": self.live, "/health/ready": self.ready}

    def metrics(self) -> Page:
        """This worker's own series; those of the queues are the web process's."""
        return Page(200, render(self._collector), CONTENT_TYPE)

    def live(self) -> Page:
        """200 unless the main loop hangs; also without Redis, and to the end of a shutdown."""
        return said(200, status="ok") if self._keeper.loop_lives else said(503, status="hung", reason=_HUNG)

    def ready(self) -> Page:
        """200 while this worker can take jobs."""
        reason = self._hindrance()
        return said(503, status="not_ready", reason=reason) if reason else said(200, status="ok")

    def _hindrance(self) -> str:
        if self._held.draining:
            return "the worker ends"
        if not self._keeper.loop_lives:
            return _HUNG
        return self._held.refused or ("" if self._pulse.beats() else "Redis does not answer")


_HUNG: Final = "the main loop has not moved for longer than a lease"
