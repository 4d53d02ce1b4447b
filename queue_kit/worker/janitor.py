"""Trims old records; without it the records of ended jobs would fill the memory that waiting ones need."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis import Redis

from queue_kit.states import State
from queue_kit.store import Keys
from queue_kit.transport.kit import Kit
from queue_kit.worker.role import Role


class Janitor(Role):
    """Keeps the records of ended jobs within their number and age, also in queues without traffic."""

    name = "janitor"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit) -> None:
        super().__init__(open_client, kit.settings.janitor_interval_ms / 1000)
        self._moves, self._settings = kit.moves, kit.settings
        self._keys = Keys(kit.settings.queue_prefix)

    def tick(self) -> None:
        """Trim every queue, a batch at a time."""
        keep = {
            State.COMPLETED: self._settings.job_remove_on_complete_count,
            State.FAILED: self._settings.job_remove_on_fail_count,
            State.CANCELLED: self._settings.job_remove_on_fail_count,
        }
        oldest_at_ms = int((time.time() - self._settings.job_remove_after_s) * 1000)
        for queue in self.ledger.queues(self._keys):
            for state, count in keep.items():
                while self.ledger.run(
                    self._moves.trim(queue, state, count, oldest_at_ms, self._settings.job_known_after_removal_ms)
                ):
                    pass
