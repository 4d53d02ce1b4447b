"""Returns the jobs of workers that are gone; without it a job whose worker was killed would stay active for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from redis import Redis

from queue_kit.observe import transitions
from queue_kit.store.moves import Reaped
from queue_kit.transport import points
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role
from queue_kit.worker.roles.roster import Roster

logger = logging.getLogger(__name__)

_BATCH: Final = 100  # leases that one script handles, so that it stays short
_LOOKS_S: Final = 0.25  # how often it looks at its neighbours, which costs no command


class Reaper(Role):
    """Looks for leases that ran out. Every worker has one; the script makes any number of them safe."""

    name = "reaper"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit, roster: Roster) -> None:
        self._interval_s = kit.moves.reap_ms / 1000
        super().__init__(open_client, min(self._interval_s, _LOOKS_S))
        self._moves, self._kit, self._roster = kit.moves, kit, roster
        self._reaped_at = time.monotonic()

    def _loop(self) -> None:
        """At once for the first time: what has died here before waits for it."""
        self._tick_once()
        super()._loop()

    def tick(self) -> None:
        """Say that this worker lives; stall all that has run out, a batch at a time, if it is time for that."""
        self._roster.call(self.ledger)
        for found in self._roster.bury_neighbours(self.ledger):
            self.tell(found)
        if time.monotonic() - self._reaped_at >= self._interval_s - self._every_s / 2:
            self._reaped_at = time.monotonic()
            while self._reap() == _BATCH:
                pass

    def _reap(self) -> int:
        points.reached("reap sending")
        reaped = self.ledger.run(self._moves.reap(_BATCH))
        if reaped:
            points.reached("reaped")
        for found in reaped:
            self.tell(found)
        return len(reaped)

    def tell(self, found: Reaped) -> None:
        """Say what has become of a job whose worker is lost."""
        logger.warning(
            "job %s of queue %s stalled: its worker %s is lost; now %s", found.id, found.queue, found.worker, found.outcome,
            extra=transitions.fields_of_reaped(found),
        )  # fmt: skip
        if found.trouble and self._kit.held is not None:
            self._kit.held.on_unwritten(None, found.id, found.trouble)
