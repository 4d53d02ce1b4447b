"""The jobs that this worker holds leases of, and the moves it still has to send; without one registry of them, a
reconnect would forget what runs and a settle could be lost with the socket it was written to.

It belongs to the worker, not to a channel: channels come and go with connections, leases do not.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import OutOfMemoryError, ReadOnlyError

from queue_kit.states import StopReason
from queue_kit.store import Call, Claimed, Ledger, Room, Traits
from queue_kit.store.moves import Aside
from queue_kit.transport import points
from queue_kit.transport.stops import Slot, Stops

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class HeldJob:
    """One lease of this worker. ``started_at``: when the pool began with it, 0 if it has not; ``ended``: its settle is decided,
    if perhaps not yet answered; ``left_pool``: whether the pool is done with it, in which case its settle must follow at once."""

    claimed: Claimed
    name: str
    suspect: bool
    begun: bool
    beginning: bool = False
    ended: bool = False
    lost: bool = False
    cancel: str = ""
    left_pool: Callable[[], bool] = lambda: False
    doubted: bool = False
    slot: Slot | None = None
    renewed_at: float = field(default_factory=time.monotonic)
    taken_at: float = field(default_factory=time.monotonic)
    started_at: float = 0.0
    correlation_id: str = ""


@dataclass(eq=False, slots=True)
class Pending:
    """A move to be sent, and what to do with the answer."""

    call: Call[Any]
    answered: Callable[[Any], None]
    since: float = field(default_factory=time.monotonic)


class Held:
    """Registry of leases and outbox of settles. Any thread may call it; sending is up to the poller and the keeper."""

    def __init__(self, worker: str, max_stalled: int, max_suspects: int) -> None:
        self.worker = worker
        self.traits = Traits()
        self.slots: Callable[[], int] = lambda: 1
        self.wake: Callable[[], None] = lambda: None
        self.on_free: Callable[[], None] = lambda: None
        self.may_reserve = False
        self.draining = False  # the worker ends: nothing more is taken
        self.forced = False  # and its time is over
        self.refused = ""  # why nothing may be claimed from this server
        self.ledger: Callable[[], Ledger] = _no_ledger
        self.beat_at = time.monotonic()
        self.stops = Stops()
        self.on_lost: Callable[[HeldJob], None] = lambda job: None
        self.on_timed: Callable[[str, HeldJob, float], None] = lambda what, job, seconds: None
        self.on_settled: Callable[[HeldJob, str, str, Any], None] = lambda job, verb, why, answer: None
        self.on_asides: Callable[[list[Aside]], None] = lambda asides: None
        self.on_unwritten: Callable[[HeldJob | None, str, str], None] = lambda job, job_id, trouble: None
        self._max_stalled = max_stalled
        self._max_suspects = max_suspects
        self._jobs: dict[str, HeldJob] = {}
        self._pending: deque[Pending] = deque()
        self._claims = itertools.count(1)
        self._quiet_until = 0.0

    def next_claim(self) -> str:
        """A token base that no other claim of any worker has."""
        return f"{self.worker}.{next(self._claims)}"

    def take(self, claimed: Claimed, name: str) -> HeldJob:
        """Register a job that a claim has brought."""
        suspect = 0 < claimed.stalled_count >= self._max_stalled
        job = HeldJob(claimed, name, suspect, claimed.begun, slot=self.stops.assign())
        self._jobs[claimed.token] = job
        return job

    def get(self, token: str) -> HeldJob | None:
        return self._jobs.get(token)

    def drop(self, job: HeldJob) -> None:
        """Forget a job: its lease is over, or another's."""
        if self._jobs.pop(job.claimed.token, None) is not None:
            self.stops.release(job.slot)

    def lose(self, job: HeldJob, what: str) -> None:
        """The lease is another's: the run is told, whatever it still sends is refused, and it is said and counted once."""
        if job.lost:
            return
        job.lost = True
        self.stops.fire(job.slot, StopReason.LEASE_LOST)
        logger.warning("job %s[%s] has lost its lease: %s", job.name, job.claimed.id, what)
        self.on_lost(job)

    def cancel(self, job: HeldJob, cause: str) -> None:
        """Somebody has asked that this job should not run: its run is told."""
        job.cancel = cause
        self.stops.fire(job.slot, StopReason.CANCELLED)

    def stop_all(self, reason: StopReason) -> None:
        """Ask every run of this worker to stop."""
        for job in self.live():
            self.stops.fire(job.slot, reason)

    def jobs(self) -> list[HeldJob]:
        """A snapshot; safe while other threads take and drop."""
        return list(self._jobs.values())

    def live(self) -> list[HeldJob]:
        """Jobs that occupy a slot or a place in line: not settled yet."""
        return [job for job in self.jobs() if not job.ended]

    @property
    def has_free_slot(self) -> bool:
        """Whether one more job may begin."""
        return sum(job.begun for job in self.live()) < self.slots()

    def room(self, prefetch: int) -> Room:
        """What a claim may take now. ``prefetch`` 0 stands for no limit, which is bounded by the slots."""
        live = self.live()
        # What is in line comes first; what Celery's own rate limit holds back keeps no slot.
        begin = self.slots() - sum(job.begun or job.name not in self.traits.reserve for job in live)
        suspects = self._max_suspects - sum(job.suspect for job in live)
        avoid = frozenset(job.claimed.id for job in live)
        return Room(max(0, self._free(prefetch, len(live))), max(0, begin), max(0, suspects), avoid)

    def free(self, prefetch: int) -> int:
        """The limit of :meth:`room` alone, which is asked for at each turn of the event loop."""
        return self._free(prefetch, len(self.live()))

    def _free(self, prefetch: int, live: int) -> int:
        slots = self.slots()
        most = (prefetch or slots) if self.may_reserve else min(prefetch or slots, slots)
        return 0 if self.refused or self.draining else most - live

    def started(self, job: HeldJob, at: float) -> None:
        """The pool has begun with a job, at this instant of the monotonic clock."""
        job.started_at = at
        self.on_timed("job_wait", job, job.claimed.waited_ms / 1000 + max(0.0, at - job.taken_at))

    def settle(self, job: HeldJob, call: Call[Any], answered: Callable[[Any], None], why: str = "") -> None:
        """Queue the move that ends this lease; the job's slot is free from now on. ``why``: for the log."""
        job.ended = True
        if job.started_at:
            self.on_timed("job_duration", job, time.monotonic() - job.started_at)

        def over(answer: Any) -> None:
            self.drop(job)
            self.on_settled(job, call.script.name, why, answer)
            answered(answer)

        self.post(call, over)
        self.on_free()

    def post(self, call: Call[Any], answered: Callable[[Any], None] = lambda answer: None) -> None:
        """Queue a move that is sent with the settles."""
        self._pending.append(Pending(call, answered))
        points.reached("settle queued")
        self.wake()

    @property
    def is_owed(self) -> bool:
        """Whether settles wait to be sent, whenever that may be."""
        return bool(self._pending)

    @property
    def has_pending(self) -> bool:
        """Whether settles wait to be sent, and may be: not just after Redis has refused one."""
        return bool(self._pending) and time.monotonic() >= self._quiet_until

    def stale_pending(self, older_than_s: float) -> bool:
        """Whether a settle has waited this long: whoever should have sent it is busy, or gone."""
        try:
            return self.has_pending and time.monotonic() - self._pending[0].since >= older_than_s
        except IndexError:
            return False

    def take_pending(self, most: int = 500) -> list[Pending]:
        """Take settles out to send them; :meth:`put_back` what was not answered. Each is taken by one thread only."""
        taken: list[Pending] = []
        while self.has_pending and len(taken) < most:
            try:
                taken.append(self._pending.popleft())
            except IndexError:
                break  # another thread was quicker
        return taken

    def put_back(self, pending: list[Pending], pause_s: float = 0.0) -> None:
        """Settles whose fate is unknown go first again: a script answers a second one with ``moved``."""
        self._quiet_until = time.monotonic() + pause_s
        self._pending.extendleft(reversed(pending))

    def answer(self, pending: list[Pending], replies: list[Any]) -> None:
        """Hand each reply on. One that Redis refuses for a while (read-only, disk full) is sent again after a second.

        One that it refuses for good would come back for ever: it is given up, and its job stalls when its lease ends.
        """
        refused = [(item, reply) for item, reply in zip(pending, replies, strict=True) if isinstance(reply, Exception)]
        again = [item for item, reply in refused if _for_a_while(reply)]
        if again:
            logger.error("settles refused by Redis, to be sent again: %s", refused[0][1])
            self.put_back(again, pause_s=1.0)
        for item, reply in refused:
            if item not in again:
                logger.error("a %s is refused by Redis and given up: %s", item.call.script.name, reply)
                item.answered("lost")
        for item, reply in zip(pending, replies, strict=True):
            if not isinstance(reply, Exception):
                if getattr(reply, "trouble", ""):
                    _, job_id, token, *_ = item.call.arguments
                    self.on_unwritten(self.get(token), job_id, reply.trouble)
                item.answered(reply)

    def beat(self) -> None:
        """The main loop lives."""
        self.beat_at = time.monotonic()


def _no_ledger() -> Ledger:
    raise RuntimeError("the worker has not connected yet")


def _for_a_while(refusal: Exception) -> bool:
    """Whether what Redis says passes: a replica that is promoted, memory that is freed, a disk that is emptied."""
    return isinstance(refusal, (ReadOnlyError, OutOfMemoryError)) or str(refusal).startswith(("MISCONF", "NOREPLICAS", "BUSY"))
