"""The main process's side of the prefork pool, without what Celery asks of the kernel in vain: around each job it registers and
drops every pipe of the pool, most of them for nothing, and keeps a timer that nobody takes away before it is due.

Nothing here changes what is written, read or when a limit ends a run; without it the main process, which is what a worker of
short jobs waits for, would take half as long again for each.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from pickle import HIGHEST_PROTOCOL, dumps
from select import PIPE_BUF
from struct import pack
from time import monotonic
from typing import Any, Final, NamedTuple

from celery.concurrency.asynpool import SCHED_STRATEGY_FAIR

#: How often to look for dead children. Celery looks when a child's pipe closes, which is before the kernel says that it is dead,
#: and then again after five seconds.
_LOOK_S: Final = 0.25
_NOTHING: Final = memoryview(b"")


class _Due(NamedTuple):
    """When a limit is over, by the monotonic clock, and how long after a soft one the hard one is (``None``: this is it)."""

    at: float
    soft: bool
    then_s: float | None


class Prefork:
    """Put in between one pool of processes and the event loop."""

    def __init__(self, processes: Any) -> None:
        self._processes = processes
        self._due: dict[int, _Due] = {}
        self._alarms: list[float] = []  # when the loop will look at them, the next first
        self._hub: Any = None
        handler = processes._result_handler
        receive = handler._recv_message
        handler._recv_message = lambda add_reader, fd, callback: receive(self._again(add_reader), fd, callback)

    def attend(self, hub: Any) -> None:
        """Take part in the loop, after the pool has: at the first connection, and at each that follows."""
        self._hub = hub
        if self._processes.sched_strategy == SCHED_STRATEGY_FAIR:
            hub.on_tick.discard(self._processes.on_poll_start)
            hub.on_tick.add(self.feed)
        self._processes._quick_put = self._put
        remove_writer = type(hub).remove_writer
        hub.remove_writer = lambda fd: remove_writer(hub, fd) if fd in hub.writers else None
        self._processes.on_timeout_set = self._limit
        self._processes.on_timeout_cancel = self._unlimit
        hub.call_repeatedly(_LOOK_S, self._look)

    def _again(self, add_reader: Callable[..., None]) -> Callable[..., None]:
        """How to read on from a pipe that the loop has just found readable, and so watches."""

        def add(fd: int, callback: Any, *args: Any) -> None:
            readers = self._hub.readers
            if fd in readers:
                readers[fd] = callback, args
            else:
                add_reader(fd, callback, *args)

        return add

    def feed(self) -> None:
        """Write what waits to the children that are free; their pipes are empty, so that it is not asked whether they are."""
        pool = self._processes
        if pool.outbound_buffer:
            free = [fd for fd in pool._all_inqueues if fd not in pool._busy_workers and fd not in pool._active_writes]
            if free:
                self._hub.consolidate_callback(free[: len(pool.outbound_buffer)])
        if self._hub.writers:
            pool.on_poll_start()

    def _put(self, task: Any) -> None:
        """Queue a message for a child. What a pipe takes whole is written whole: after its length alone, which Celery writes
        first, the child would be woken once in vain."""
        pool, body = self._processes, dumps(task, HIGHEST_PROTOCOL)
        length = pack(">I", len(body))
        job = pool._cache[task[1][0]]
        if len(body) + len(length) <= PIPE_BUF:
            job._payload = memoryview(length + body), _NOTHING, 0
        else:
            job._payload = memoryview(length), memoryview(body), len(body)
        pool.outbound_buffer.append(job)

    def _look(self) -> None:
        """Find a dead child soon, and what a timer that a broken connection took with it was for."""
        self._processes.maintain_pool()
        self._end_overdue()

    # -- limits ---------------------------------------------------------------------------------------------------------

    def _limit(self, result: Any, soft_s: float | None, hard_s: float | None) -> None:
        if soft_s or hard_s:
            first_s = soft_s or hard_s or 0.0
            due = _Due(monotonic() + first_s, bool(soft_s), hard_s - soft_s if soft_s and hard_s else None)
            self._due[result._job] = due
            self._wake_at(due.at)

    def _unlimit(self, result: Any) -> None:
        self._due.pop(result._job, None)

    def _wake_at(self, at: float) -> None:
        """Have the loop look then, unless it will look before: most limits are as long as the one before, and need no timer."""
        if not self._alarms or at < self._alarms[0]:
            heappush(self._alarms, at)
            self._hub.call_at(at, self._end_overdue)

    def _end_overdue(self) -> None:
        """End what is past its limit. There are never more of them than children."""
        now = monotonic()
        while self._alarms and self._alarms[0] <= now:
            heappop(self._alarms)
        for number, due in list(self._due.items()):
            if due.at <= now:
                self._end(number, due)
        if self._due:
            self._wake_at(min(due.at for due in self._due.values()))

    def _end(self, number: int, due: _Due) -> None:
        del self._due[number]
        result = self._processes._cache.get(number)
        if due.then_s is not None:
            self._due[number] = _Due(due.at + due.then_s, False, None)
        if result is not None:
            (self._processes.on_soft_timeout if due.soft else self._processes.on_hard_timeout)(result)
