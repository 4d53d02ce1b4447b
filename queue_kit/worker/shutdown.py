"""Ends a worker in order: nothing more is claimed, what has not begun goes back at once, what runs has until the deadline.

Without it a job taken ahead would wait behind the longest one, a deployment that kills late workers would count stalls, and a
Redis that is gone or frozen would keep a worker from ending at all. Celery's own ways to end (its signals, remote control, its
soft and cold shutdown, ``REMAP_SIGTERM``) all lead here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from celery import signals
from celery.apps.worker import Worker
from celery.platforms import EX_FAILURE, EX_OK
from celery.utils.log import get_logger
from celery.worker import state
from redis import Redis

from queue_kit.states import StopReason
from queue_kit.transport.channel import settle_all
from queue_kit.transport.held import Held
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role, new_lock
from queue_kit.worker.settling.settle import Settler

logger = get_logger(__name__)

_TICK_S: Final = 0.05
#: After a second signal: how long runs that heed their token still have to stop by themselves.
_HURRY_S: Final = 0.5
#: How long before the deadline the tokens fire: a fifth of the time there is, but no longer than this.
_NOTICE_S: Final = 5.0
#: After the deadline, each: until the pool's processes are gone, until Redis has answered, until the main loop has ended.
_BOUND_S: Final = 1.0

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGQUIT") if hasattr(signal, name)
)  # fmt: skip


class Shutdown(Role):
    """Carries a shutdown out, on a thread that nothing holds up; idle until :meth:`begin`."""

    name = "shutdown"

    def __init__(
        self, open_client: Callable[[], Redis], kit: Kit, held: Held, worker: Any, last_words: Callable[[], None]
    ) -> None:  # fmt: skip
        super().__init__(open_client, _TICK_S)
        self._held, self._worker, self._settler = held, worker, Settler(kit, held)
        self._last_words = last_words
        self._time_s = kit.settings.shutdown_timeout_ms / 1000
        self._notice_s = max(_HURRY_S, min(_NOTICE_S, self._time_s / 5))
        self._ends_at: float | None = None
        self._over = self._told = False
        self._pid = os.getpid()
        self._owns_process = isinstance(worker, Worker)
        self._never = new_lock()
        self._never.acquire()

    # -- asked for ----------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take the signals over from Celery; a worker inside another program leaves that program's alone."""
        if self._owns_process:
            for signum in SIGNALS:
                signal.signal(signum, self._on_signal)

    def _on_signal(self, signum: int, frame: Any) -> None:
        # Nothing here may wait for a lock: the main thread may hold it where the signal has met it.
        if os.getpid() != self._pid:
            return
        if not self.begin() or signum == getattr(signal, "SIGQUIT", None):
            self.hurry()
        state.should_stop = EX_OK
        name = signal.Signals(signum).name
        signals.worker_shutting_down.send(sender=self._worker.hostname, sig=name, how="Warm", exitcode=EX_OK)

    def begin(self) -> bool:
        """Stop claiming and let the time run; answer whether it had not begun yet."""
        if self._ends_at is not None:
            return False
        self._ends_at = monotonic() + self._time_s
        self._held.draining = True
        return True

    def hurry(self) -> None:
        """The deadline is now, but for the moment that runs need to heed their tokens."""
        self.begin()
        self._ends_at = min(self._ends_at or 0.0, monotonic() + _HURRY_S)

    # -- carried out --------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Give back what has not begun, and at the deadline what has."""
        if self._ends_at is None or self._over:
            return
        if not self._told:
            self._told = True
            left_s = max(0.0, self._ends_at - monotonic())
            logger.info("the worker ends: nothing more is claimed, and what runs has %.1f s", left_s)
        self._held.wake()
        self._give_back()
        left_s = self._ends_at - monotonic()
        if left_s <= self._notice_s:
            self._held.stop_all(StopReason.SHUTDOWN)
        if left_s <= 0 and not self._is_settled():
            self._end_now()
        elif left_s <= -_BOUND_S and self._owns_process:  # all is done, and something holds the closing up
            self._exit(EX_OK)

    def _give_back(self) -> None:
        """Last to first, each to the head, so that they keep their order. The keeper sends it."""
        for job in reversed(self._held.live()):
            if not job.begun and not job.beginning:
                self._settler.release(job)

    def _end_now(self) -> None:
        self._worker.exitcode = EX_FAILURE
        self._held.forced = True
        state.should_stop = EX_FAILURE
        logger.warning("the time for the shutdown is over: what still runs is ended and given back")
        had_children = self._end_children()
        for job in reversed(self._held.live()):
            self._settler.hand_back(job)
        self._await(self._is_settled, send=True)
        left = [job.claimed.id for job in self._held.jobs()]
        if left:
            logger.error("Redis has not answered in time, these jobs will stall: %s", ", ".join(left))
        else:
            self._last_words()
        self._over = True
        if self._owns_process:
            self._await(lambda: False, for_s=_BOUND_S if had_children else 0.0)
            self._exit(EX_FAILURE)

    def _end_children(self) -> bool:
        """SIGKILL the processes of a prefork pool, and wait until they are gone: their last results still count."""
        pool = getattr(getattr(self._worker.pool, "_pool", None), "_pool", None) or ()
        pids = [process.pid for process in list(pool) if getattr(process, "pid", None)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._await(lambda: all(map(_is_gone, pids)))
        if pids:
            self._await(lambda: not self._held.live(), for_s=_BOUND_S / 4)  # until the main loop has read them
        return bool(pids)

    def _exit(self, code: int) -> None:
        """Whatever still runs in this process, a thread or a greenlet, ends with it."""
        if getattr(self._worker, "pidlock", None):
            self._worker.pidlock.release()
        os._exit(code)

    def _await(self, fact: Callable[[], bool], for_s: float = _BOUND_S, *, send: bool = False) -> None:
        until = monotonic() + for_s
        while not fact() and monotonic() < until:
            if send:
                settle_all(self._held, self.ledger)
            self._never.acquire(True, _TICK_S / 5)

    def _is_settled(self) -> bool:
        return not self._held.jobs() and not self._held.is_owed

    # -- ended --------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The main loop and the pool have ended: wait until Redis has all that they came to, or the time is over."""
        self.begin()
        while not self._is_settled() and not self._over:
            self._never.acquire(True, _TICK_S / 5)
        if not self._owns_process:
            self.stop()


def _is_gone(pid: int) -> bool:
    """Whether a child has ended. It is left to the pool to reap."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
