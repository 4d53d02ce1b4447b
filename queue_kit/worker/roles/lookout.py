"""Infers from what Redis sees that another worker is dead, where nobody can look at it; without it the jobs of a worker that was
killed with its warden, on a machine without another, would wait for their leases to run out.

It runs only if it is asked for: other than a lock that comes free, a connection that has closed proves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from redis import Redis

from queue_kit.rules.silence import LOOK_MS, Watch, looked
from queue_kit.store.moves import Reaped
from queue_kit.store.roster import BATCH, abandon, channel_of, look
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role

logger = logging.getLogger(__name__)


class Lookout(Role):
    """Shows that this worker lives, by a subscription and a word twice a second, and looks for the words of others."""

    name = "lookout"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit, nonce: str, tell: Callable[[Reaped], None]) -> None:
        super().__init__(open_client, LOOK_MS / 1000)
        self._moves, self._nonce, self._tell = kit.moves, nonce, tell
        self._patience_ms = kit.settings.worker_inferred_death_ms
        self._subscription: Any = None
        self._watch: Watch | None = None

    def tick(self) -> None:
        """Look once; give back what those had leased who are taken for dead."""
        before, self._watch = self._watch, None  # whatever goes wrong here, what was seen before it counts no more
        anew = self._listens_anew()
        at_ms, silent = self.ledger.run(look(self._moves, self._nonce))
        anew = self._listens_anew() or anew  # it may have been another server that answered, just started
        self._watch = looked(None if anew else before, at_ms, silent, self._patience_ms)
        for nonce, heard_at_ms in self._watch.dead.items():
            self._give_back(nonce, heard_at_ms, at_ms - heard_at_ms)

    def leave(self) -> None:
        """Close the subscription too."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
        super().leave()

    def _listens_anew(self) -> bool:
        """Whether the subscription has been confirmed since: this one, or that after a reconnect."""
        if self._subscription is None:
            subscription = self.ledger.client.pubsub()
            subscription.subscribe(channel_of(self._moves, self._nonce))
            self._subscription = subscription
        anew = False
        while self._subscription.get_message() is not None:
            anew = True
        return anew

    def _give_back(self, nonce: str, heard_at_ms: int, silent_ms: int) -> None:
        while found := self.ledger.run(abandon(self._moves, nonce, BATCH, heard_at_ms)):
            logger.warning(
                "worker %s is taken for dead: its connections have closed, and it has been silent for %d ms", nonce, silent_ms
            )
            for one in found:
                self._tell(one)
