"""Kombu's operations on whole queues, where they mean something else for queues of jobs; without them `purge`, a passive
declare or a queue's size would look at lists that hold none of its jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from redis import Redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError

from queue_kit.errors import UnsupportedOperation
from queue_kit.store import Call, Ledger
from queue_kit.transport.kit import Kit

logger = logging.getLogger(__name__)

#: What the mixin is mixed into; kombu is untyped.
_Host: Any = object


class JobQueues(_Host):
    """Mixed into kombu's Redis channels, below what claims and puts."""

    _ledger: Ledger | None = None
    _looked_up: tuple[str, ...] = ()
    _job_queues: frozenset[str] = frozenset()

    @cached_property
    def kit(self) -> Kit:
        kit: Kit = self.connection.client.kit
        return kit

    @property
    def ledger(self) -> Ledger:
        """Moves on a connection of the channel's pool. Kombu's own client would put `global_keyprefix` before arguments."""
        if self._ledger is None or self._ledger.client.connection_pool is not self.pool:
            self._ledger = Ledger(Redis(connection_pool=self.pool))
        return self._ledger

    def run(self, call: Call[Any]) -> Any:
        """Make one move and return its answer."""
        return self.ledger.run(call)

    @property
    def has_job_queues(self) -> bool:
        """Whether it consumes jobs, which are held by the worker, or only what stock kombu would."""
        return bool(self.job_queues)

    @property
    def job_queues(self) -> frozenset[str]:
        """Those of its queues that hold jobs; looked up again when it consumes other ones, not at each turn of the loop."""
        active = tuple(self._active_queues)
        if active != self._looked_up:
            self._looked_up, self._job_queues = active, frozenset(filter(self.kit.is_task_queue, active))
        return self._job_queues

    def left_in_lists(self, queue: str) -> int:
        """How many messages lie in the lists that stock Celery has for a queue."""
        return self.ledger.lists(self._lists_of([queue]))

    def _lists_of(self, queues: Sequence[str]) -> list[str]:
        return [self.global_keyprefix + self._q_for_pri(queue, pri) for pri in self.priority_steps for queue in queues]

    def _get(self, queue: str) -> Any:
        if self.kit.is_task_queue(queue):
            raise UnsupportedOperation("jobs are consumed by `celery worker`, not fetched one by one")
        return super()._get(queue)

    def _size(self, queue: str) -> int:
        """Messages that wait; for a queue that this process does not know, of both kinds."""
        jobs = self.ledger.length(self.kit.keys, queue)
        return jobs if self.kit.is_task_queue(queue) else jobs + self.left_in_lists(queue)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self.kit.is_task_queue(queue) or self._size(queue) > 0

    def _purge(self, queue: str) -> int:
        """Remove what waits in a queue, but no delayed job; return how much there was.

        Of a queue that the app has, what a producer without queue_kit has put into its plain lists stays.
        """
        plain = 0 if self.kit.is_task_queue(queue) else int(super()._purge(queue))
        return plain + self._remove_waiting(queue)

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        super()._delete(queue, *args, **kwargs)
        if self.kit.is_task_queue(queue):
            self._remove_waiting(queue)

    def _remove_waiting(self, queue: str) -> int:
        ledger = self.ledger
        ids = ledger.members(self.kit.keys, queue, "wait")
        return ledger.run_all([self.kit.moves.remove(job_id) for job_id in ids]).count("ok")

    def _do_restore_message(self, payload: Any, exchange: str, *args: Any, **kwargs: Any) -> None:
        """A broadcast is for who listens when it is sent: nobody reads the lists that kombu would put it back into."""
        if self.typeof(exchange).type != "fanout":
            super()._do_restore_message(payload, exchange, *args, **kwargs)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind; but a worker that comes back to a full server, or to a replica, must not end for want of a binding."""
        try:
            super()._queue_bind(exchange, routing_key, pattern, queue)
        except (OutOfMemoryError, ReadOnlyError) as error:
            logger.warning("queue %s could not be bound to exchange %r: %s", queue, exchange, error)
