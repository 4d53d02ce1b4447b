"""Trims old records; without it the records of ended jobs would fill the memory that waiting ones need."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

from redis import Redis

from queue_kit.states import State
from queue_kit.store import Call, Keys
from queue_kit.transport import points
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role

_BATCH: Final = 1000  # records that one script trims, so that none runs for long


class Janitor(Role):
    """Keeps the records of ended jobs within their number and age, also in queues without traffic."""

    name = "janitor"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit) -> None:
        super().__init__(open_client, kit.settings.janitor_interval_ms / 1000)
        self._moves, self._settings = kit.moves, kit.settings
        self._keys = Keys(kit.settings.queue_prefix)

    def tick(self) -> None:
        """Trim every queue: all of them in one trip, then those again that had more than a batch."""
        due = list(product(self.ledger.queues(self._keys), (State.COMPLETED, State.FAILED, State.CANCELLED)))
        points.reached("trim sending")
        while due:
            gone = self.ledger.run_all([self._trim(queue, state) for queue, state in due])
            due = [place for place, count in zip(due, gone, strict=True) if count == _BATCH]
        points.reached("trimmed")

    def _trim(self, queue: str, state: State) -> Call[int]:
        settings = self._settings
        keep = settings.job_remove_on_complete_count if state is State.COMPLETED else settings.job_remove_on_fail_count
        age_ms, known_ms = settings.job_remove_after_s * 1000, settings.job_known_after_removal_ms
        return self._moves.trim(queue, state, keep, age_ms, known_ms, _BATCH)
