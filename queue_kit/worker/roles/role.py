"""One role, one thread: start, tick, stop. The roles must go on while the main loop is busy, and under gevent too, so they
run on real threads of the operating system, each with a connection of its own.
"""

from __future__ import annotations

import _thread
import logging
import sys
from collections.abc import Callable
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from queue_kit.store import Ledger

logger = logging.getLogger(__name__)


def _originals() -> tuple[Any, Any]:
    """A way to start a thread and to make a lock that gevent has not replaced."""
    if "gevent.monkey" not in sys.modules:
        return _thread.start_new_thread, _thread.allocate_lock
    start, allocate = sys.modules["gevent.monkey"].get_original("_thread", ["start_new_thread", "allocate_lock"])
    return start, allocate


def new_lock() -> Any:
    """A lock that holds up its thread alone, under gevent too."""
    return _originals()[1]()


class Role:
    """Calls :meth:`tick` every ``every_s`` seconds until stopped; an error of Redis is told once, until it is over."""

    name = "role"

    def __init__(self, open_client: Callable[[], Redis], every_s: float) -> None:
        self._open_client = open_client
        self._every_s = every_s
        self._ledger: Ledger | None = None
        self._failing = False
        self._outdated = False
        self._start, allocate = _originals()
        self._stop, self._done = allocate(), allocate()

    @property
    def ledger(self) -> Ledger:
        """This role's own connection; opened at first use."""
        if self._ledger is None:
            self._ledger = Ledger(self._open_client())
        return self._ledger

    def start(self) -> None:
        """Begin ticking on a thread of its own."""
        self._stop.acquire()
        self._done.acquire()
        self._start(self._loop, ())

    def stop(self, within_s: float = 2.0) -> None:
        """Ask the thread to end and wait for it, not longer than ``within_s``."""
        if self._stop.locked():
            self._stop.release()
            self._done.acquire(True, within_s)

    def tick(self) -> None:
        """What this role does, each time."""
        raise NotImplementedError

    def reconnect(self) -> None:
        """Open a new connection at the next tick: the broker may be another one now. The old one is closed by the thread that
        uses it: a main loop of gevent's that waits for a thread's lock can come to its end there."""
        self._outdated = True

    def leave(self) -> None:
        """Close this role's connection; by its own thread, or when that has ended."""
        self._outdated = False
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.client.close()

    def _loop(self) -> None:
        try:
            while not self._stop.acquire(True, self._every_s):
                self._tick_once()
        finally:
            self._done.release()

    def _tick_once(self) -> None:
        try:
            if self._outdated:
                self.leave()
            self.tick()
        except (RedisError, OSError) as error:
            if not self._failing:
                logger.warning("%s: Redis does not answer, going on trying: %s", self.name, error)
            self._failing = True
        except Exception:
            logger.exception("%s: a tick failed", self.name)
        else:
            if self._failing:
                logger.info("%s: Redis answers again", self.name)
            self._failing = False
