"""The one place that settles a job; without it some path would acknowledge what another had already failed."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any, Final, Literal

from redis.exceptions import RedisError

from queue_kit.errors import JobLostError
from queue_kit.observe import transitions
from queue_kit.rules.outcome import GIVEN_BACK, Failure, Release
from queue_kit.states import Cause
from queue_kit.store import Call, Message, When
from queue_kit.transport.held import Held, HeldJob
from queue_kit.transport.kit import Kit

logger = logging.getLogger(__name__)

_HANDED_BACK: Final = Release("its worker was shut down")
_LOST: Final = Failure(
    JobLostError.__name__, "its worker was shut down while it ran, and it may run at most once", "", Cause.LOST, False
)  # fmt: skip


class Settler:
    """Turns each decision about a held job into one move, and reads what Redis says to it."""

    def __init__(self, kit: Kit, held: Held) -> None:
        self._kit, self._held, self._moves = kit, held, kit.moves
        held.on_settled, held.on_asides = transitions.settled, transitions.asides

    def begin(self, job: HeldJob) -> bool:
        """Begin a reserved job, just before it reaches the pool; answer whether it may run.

        One that the claim has begun is asked about if it has not been renewed for long: this process may have been frozen.
        """
        if job.cancel and not job.ended:
            self.cancel(job, job.cancel, tell=True)
        job.beginning = True  # before the look at `draining`: a shutdown sets that first, and then looks at this
        try:
            begins = not job.ended and self._may_begin(job)
        finally:
            job.beginning = False
        if begins:
            transitions.begun(job)
        return begins

    def _may_begin(self, job: HeldJob) -> bool:
        if self._held.draining:
            self.release(job)
            return False
        if job.begun and (time.monotonic() - job.renewed_at) * 1000 < self._moves.lease_ms / 2:
            return True
        try:
            word, _ = self._held.ledger().run(
                self._moves.begin(job.claimed.id, job.claimed.token, job.name in self._held.traits.once)
            )
        except RedisError as error:
            logger.warning("job %s[%s] could not be begun and goes back: %s", job.name, job.claimed.id, error)
            self.release(job)
            return False
        job.begun = word == "ok"
        if not job.begun:
            job.ended = True
            if word == "lost":
                self._held.lose(job, "it is not begun here")
            self._held.drop(job)
        return job.begun

    def complete(self, job: HeldJob) -> None:
        """The run is over and did what it was for."""
        self._send(job, self._moves.complete(job.claimed.id, job.claimed.token))

    def retry(self, job: HeldJob, message: Message, when: When, reason: str, cause: str = "retried") -> None:
        """The worker itself makes the next attempt of a run that could not."""
        call = self._moves.retry(job.claimed.id, job.claimed.token, when, message=message, cause=cause, reason=reason)
        self._send(job, call, cause)

    def moved(self, job: HeldJob) -> None:
        """The run has moved its own job on: a retry, or a replacement by one task. Nothing is left but our own account."""
        job.ended = True
        self._send(job, self._moves.nudge(job.claimed.queue))

    def replace(self, job: HeldJob) -> None:
        """The run replaced itself by a canvas, which will add the job's id again."""
        self._send(job, self._moves.replace(job.claimed.id, job.claimed.token))

    def release(self, job: HeldJob, side: Literal["head", "tail"] = "head", how: Release = GIVEN_BACK) -> None:
        """Give the job back, no attempt counted."""
        call = self._moves.release(
            job.claimed.id, job.claimed.token, side=side, delay_ms=how.delay_ms, hold_ms=how.hold_ms, reason=how.reason
        )
        self._send(job, call, how.reason)

    def hand_back(self, job: HeldJob) -> None:
        """The worker ends before the run does. A task that runs at most once has failed by that."""
        if job.begun and job.name in self._held.traits.once:
            self.fail(job, _LOST, tell=True)
        else:
            self.release(job, how=_HANDED_BACK)

    def stall(self, job: HeldJob) -> None:
        """The process that ran the job is gone."""
        self._send(job, self._moves.stall(job.claimed.id, job.claimed.token), "stalled")

    def fail(self, job: HeldJob, failure: Failure, *, exhausted: bool = False, tell: bool = False) -> None:
        """The job will not run again by itself. ``tell``: nobody has told those who wait for it."""
        call = self._moves.fail(
            job.claimed.id, job.claimed.token, failure.cause, failure.reason, error_class=failure.error_class,
            stack=failure.stack, exhausted=exhausted, tell=tell,
        )  # fmt: skip
        self._send(job, call, failure.cause)

    def cancel(self, job: HeldJob, cause: str, *, tell: bool = False) -> None:
        """The holder will not run the job to its end: revoked, expired after the claim, or stopped as it was asked to.

        ``tell``: nobody has told those who wait for it.
        """
        self._send(job, self._moves.cancel(job.claimed.id, cause, job.claimed.token, tell=tell), cause)

    def fail_replaced(self, job_id: str, nesting: int, failure: Failure) -> None:
        """A step of the canvas that replaced ``job_id`` has failed for good: so has that job."""
        call = self._moves.fail(
            job_id, "replaced", failure.cause, failure.reason, error_class=failure.error_class, stack=failure.stack,
            nesting=nesting,
        )  # fmt: skip
        self._held.post(call, partial(transitions.step_failed, job_id, failure.cause))

    def _send(self, job: HeldJob, call: Call[Any], why: str = "") -> None:
        self._held.settle(job, call, partial(self._answered, job, call.script.name), why)

    def _answered(self, job: HeldJob, verb: str, answer: Any) -> None:
        word = getattr(answer, "outcome", answer)
        if word in ("lost", "gone"):
            self._held.lose(job, f"{verb} is refused")
