"""Keeps this worker on the roster; without it nobody would know whether a queue is consumed, nor who is silent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from redis.exceptions import RedisError

from queue_kit.store import Ledger
from queue_kit.store.roster import BEAT_MS, Facts, abandon, enrol
from queue_kit.transport.kit import Kit

logger = logging.getLogger(__name__)

_BATCH = 100  # leases that one script handles, so that it stays short


class Roster:
    """This worker's line on the roster. One thread calls it; one more when that has ended."""

    def __init__(self, kit: Kit, describe: Callable[[], Facts]) -> None:
        self._kit, self._describe = kit, describe
        self._called_at = 0.0

    def call(self, ledger: Ledger) -> None:
        """Say that this worker lives, if it is time to."""
        if time.monotonic() - self._called_at >= BEAT_MS / 1000:
            self._called_at = time.monotonic()
            ledger.run(enrol(self._kit.moves, self._describe(), ""))

    def leave(self, ledger: Ledger) -> None:
        """The worker ends: it is struck out, and what Redis has not heard of its jobs, if anything, stalls at once."""
        try:
            ledger.run(abandon(self._kit.moves, self._describe().nonce, _BATCH))
        except (RedisError, OSError) as error:
            logger.warning("the worker could not leave the roster, it goes by itself: %s", error)


@cache
def kernel() -> str:
    """The identity of the running kernel, which all containers on it share; '' where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
