"""Returns the jobs of workers that are gone; without it a job whose worker was killed would stay active for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from redis import Redis

from queue_kit.transport.kit import Kit
from queue_kit.worker.role import Role

logger = logging.getLogger(__name__)

_BATCH: Final = 100  # leases that one script handles, so that it stays short


class Reaper(Role):
    """Looks for leases that ran out. Every worker has one; the script makes any number of them safe."""

    name = "reaper"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit) -> None:
        super().__init__(open_client, kit.moves.reap_ms / 1000)
        self._moves, self._kit = kit.moves, kit

    def tick(self) -> None:
        """Stall all that has run out, a batch at a time."""
        while self._reap() == _BATCH:
            pass

    def _reap(self) -> int:
        reaped = self.ledger.run(self._moves.reap(_BATCH))
        for found in reaped:
            logger.warning(
                "job %s of queue %s stalled: its worker %s is lost; now %s", found.id, found.queue, found.worker, found.outcome
            )
            if found.trouble and self._kit.held is not None:
                self._kit.held.on_unwritten(None, found.id, found.trouble)
        return len(reaped)
