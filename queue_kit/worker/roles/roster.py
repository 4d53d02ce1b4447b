"""Keeps this worker on the roster, and looks after those beside it; without it nobody would know whether a queue is consumed, and
the jobs of a worker that was killed together with its warden would wait for their leases to run out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from redis.exceptions import RedisError

from queue_kit.observe import transitions
from queue_kit.store import Ledger, wire
from queue_kit.store.moves import Reaped
from queue_kit.store.roster import BATCH, BEAT_MS, Facts, abandon, channel_of, enrol
from queue_kit.transport.kit import Kit
from queue_kit.transport.reach import reach
from queue_kit.worker.roles.witness import Witness, is_dead, remove

logger = logging.getLogger(__name__)


class Roster:
    """This worker's line on the roster, and those of its neighbours on the same kernel. One thread calls it, and one more when
    that has ended."""

    def __init__(self, kit: Kit, witness: Witness, describe: Callable[[], Facts]) -> None:
        self._moves, self._witness, self._describe = kit.moves, witness, describe
        self._neighbours: dict[str, str] = {}
        self._called_at = 0.0

    def call(self, ledger: Ledger) -> None:
        """Say that this worker lives, if it is time to. The first time it hears of those that have died here before it, too."""
        if time.monotonic() - self._called_at >= BEAT_MS / 1000:
            self._called_at = time.monotonic()
            self._witness.keep()
            self._neighbours = ledger.run(enrol(self._moves, self._describe(), self._witness.place))

    def bury_neighbours(self, ledger: Ledger) -> Iterator[Reaped]:
        """Give back what neighbours had leased that are dead for certain."""
        for nonce, place in list(self._neighbours.items()):
            if is_dead(place):
                yield from self._abandon(nonce, ledger)
                remove(place)
                self._neighbours.pop(nonce)

    def leave(self, ledger: Ledger) -> None:
        """The worker ends: it is struck out, and what Redis has not heard of its jobs, if anything, stalls at once. If Redis does
        not answer, that is left to the warden."""
        try:
            for found in self._abandon(self._describe().nonce, ledger):
                words = "job %s of queue %s was never settled before the worker left; now %s"
                logger.warning(words, found.id, found.queue, found.outcome, extra=transitions.fields_of_reaped(found))
        except (RedisError, OSError) as error:
            logger.warning("the worker could not leave the roster: %s", error)
            self._witness.let_go()
        else:
            self._witness.leave()

    def _abandon(self, nonce: str, ledger: Ledger) -> Iterator[Reaped]:
        while found := ledger.run(abandon(self._moves, nonce, BATCH)):
            yield from found


def orders_of_warden(app: Any, nonce: str) -> dict[str, Any]:
    """What the warden has to know: where, as whom, and what to say there."""
    moves, settings = app.queue_kit.moves, app.queue_kit.settings
    timeout_ms, listens = settings.redis_timeout_ms, settings.worker_inferred_death_ms > 0
    return {
        "worker": nonce, "servers": reach(app.connection_for_read(), timeout_ms), "batch": BATCH,
        "abandon": wire.whole(abandon(moves, nonce, BATCH)).decode("latin-1"), "timeout_s": timeout_ms / 1000,
        "patience_s": 2 * moves.lease_ms / 1000, "json": _logs_json(),
        "listen": wire.subscription(channel_of(moves, nonce)).decode("latin-1") if listens else "",
    }  # fmt: skip


def _logs_json() -> bool:
    """Whether this process writes its log by structlog, as `queue_kit.observe.logs` has it; which is not loaded for that."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    return any(type(formatter).__module__.startswith("structlog.") for formatter in formatters)
