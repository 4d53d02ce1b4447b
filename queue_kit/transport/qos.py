"""What a channel has delivered and may still fetch: jobs by the worker's registry of leases, all else as kombu does.

Without it kombu would keep a second, unfenced account of jobs, and put running ones back when a connection closes.
"""

from __future__ import annotations

import contextlib
from typing import Any

from kombu.transport import redis as stock
from redis.exceptions import ResponseError

from queue_kit.transport.held import Held, HeldJob


class QoS(stock.QoS):
    """Acknowledges jobs by settling them. Broadcast tasks and other plain messages keep the stock path."""

    @property
    def held(self) -> Held | None:
        held: Held | None = self.channel.kit.held
        return held

    def _job(self, delivery_tag: str) -> HeldJob | None:
        return self.held.get(delivery_tag) if self.held else None

    def _if_open(self, settle: Any, *args: Any, **kwargs: Any) -> None:
        """A closed channel has put its plain messages back already; to settle one with it would be the end of the worker."""
        if not self.channel.closed:
            settle(*args, **kwargs)

    def append(self, message: Any, delivery_tag: str) -> None:
        if self._job(delivery_tag) is None:
            super().append(message, delivery_tag)

    def can_consume(self) -> bool:
        if self.held is None or not self.channel.has_job_queues:
            return bool(super().can_consume())
        return self.held.free(self.prefetch_count) > len(self._delivered) - len(self._dirty)

    def can_consume_max_estimate(self) -> int:
        if self.held is None or not self.channel.has_job_queues:
            return int(super().can_consume_max_estimate())
        return self.held.room(self.prefetch_count).limit

    def ack(self, delivery_tag: str) -> None:
        job = self._job(delivery_tag)
        if job is None:
            self._if_open(super().ack, delivery_tag)
        elif not job.ended:
            self.channel.complete(job)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        job = self._job(delivery_tag)
        if job is None:
            self._if_open(super().reject, delivery_tag, requeue=requeue)
        elif not job.ended:
            self.channel.reject(job, requeue)

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Put back what a dead worker has held of plain messages; later, if Redis will not now (it is full, a replica)."""
        with contextlib.suppress(ResponseError):
            super().restore_visible(*args, **kwargs)
