"""Renews the leases of what this worker runs; without it a long job would be given to another worker while it runs here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from redis import Redis
from redis.exceptions import RedisError

from queue_kit.rules.lease import may_renew
from queue_kit.transport.channel import settle_all
from queue_kit.transport.held import Held, HeldJob
from queue_kit.transport.kit import Kit
from queue_kit.worker.roles.role import Role
from queue_kit.worker.settling.counts import RENEWALS_FAILED, Counts

logger = logging.getLogger(__name__)

_BATCH = 500  # leases renewed by one script, so that it stays short


class Keeper(Role):
    """Renews each quarter of a lease, and sends settles that the main loop cannot: while it shuts down or reconnects."""

    name = "keeper"

    def __init__(self, open_client: Callable[[], Redis], kit: Kit, held: Held, counts: Counts) -> None:
        super().__init__(open_client, min(kit.moves.renewal_ms / 1000, 0.25))
        self._moves, self._held, self._counts = kit.moves, held, counts
        self._renewal_s = kit.moves.renewal_ms / 1000
        self._renewed_at = time.monotonic()
        self._told_hung = False
        self.busy: Callable[[], bool] = lambda: False

    def tick(self) -> None:
        """Renew if it is time, then send what waits to be settled."""
        now = time.monotonic()
        if now - self._renewed_at >= self._renewal_s - self._every_s / 2 and self._told_loop_lives():
            self.renew()
            self._renewed_at = now
        if self._held.stale_pending(0.0 if self._held.draining else self._every_s):
            settle_all(self._held, self.ledger)

    def flush(self) -> None:
        """Send the last settles, after the main loop and the pool are gone."""
        if self._held.has_pending:
            settle_all(self._held, self.ledger)

    def renew(self) -> None:
        """Renew every lease held, in few round trips."""
        jobs = [job for job in self._held.jobs() if not job.lost and not self._is_forsaken(job)]
        for start in range(0, len(jobs), _BATCH):
            batch = jobs[start : start + _BATCH]
            asked_at = time.monotonic()
            try:
                words = self.ledger.run(self._moves.renew((job.claimed.id, job.claimed.token) for job in batch))
            except (RedisError, OSError):
                self._count_failed(batch)
                raise
            self._read(batch, words, asked_at)

    def _count_failed(self, jobs: Sequence[HeldJob]) -> None:
        for job in jobs:
            self._counts.add(RENEWALS_FAILED, job.claimed.queue, job.name)

    def _is_forsaken(self, job: HeldJob) -> bool:
        """Whether the pool is done with a job and nobody settles it; found so twice, it is let go, to stall."""
        if job.ended or not job.left_pool():
            return False
        if job.doubted:
            logger.error("the pool has lost job %s[%s] without a word: it will stall", job.name, job.claimed.id)
            self._held.drop(job)
        job.doubted = True
        return True

    def _read(self, jobs: Sequence[HeldJob], words: Sequence[str], asked_at: float) -> None:
        for job, word in zip(jobs, words, strict=True):
            if word == "ok" or word.startswith("cancel:"):
                job.renewed_at = asked_at
            if word.startswith("cancel:"):
                self._held.cancel(job, word.partition(":")[2])
            elif word in ("lost", "gone") and not job.ended:
                self._held.lose(job, "its run is asked to stop")

    @property
    def loop_lives(self) -> bool:
        """Whether the main loop has shown itself within a lease; where jobs run inside it, a running job counts."""
        # A worker that ends has left its loop, and has a deadline of its own.
        since_ms = (time.monotonic() - self._held.beat_at) * 1000
        return self._held.draining or self.busy() or may_renew(since_ms, self._moves.lease_ms)

    def _told_loop_lives(self) -> bool:
        lives = self.loop_lives
        if not lives and not self._told_hung:
            logger.error("the main loop has not moved for longer than a lease: its leases are no longer renewed")
        self._told_hung = not lives
        return lives
