"""Jobs that end in every way there is: by snooze, retry, refusal, at their deadline, or because somebody asked them to.

Without it each outcome would be tried on a task of its own kind, and a difference could lie in the task. What runs is written
down in a file that all processes share.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from celery import Celery, shared_task
from celery.exceptions import Reject, SoftTimeLimitExceeded
from pydantic import BaseModel

from queue_kit import (
    CurrentJob,
    GiveBack,
    JobCancelled,
    JobTimeoutError,
    NonRetryableError,
    RateLimited,
    ResourceGone,
    Snooze,
    TransientError,
    current_job,
    error_for_status,
    fixed,
    install,
    job,
)
from tests.support.waiting import wait_until

LEASE_MS, REAP_MS = 1000, 200
GRACE_MS, KILL_MS = 300, 300
SHORT = {
    "WORKER_LOCK_DURATION_MS": LEASE_MS, "WORKER_STALLED_INTERVAL_MS": REAP_MS, "REDIS_RETRY_MAX_MS": 500,
    "JOB_TIMEOUT_GRACE_MS": GRACE_MS, "JOB_TIMEOUT_KILL_MS": KILL_MS, "JOB_BACKOFF_DELAY_MS": 10,
}  # fmt: skip


def make(broker_url: str | None = None, backend_url: str | None = None, **settings: Any) -> Celery:
    """Make an app with all jobs below; what the environment says wins over the short times here."""
    app = Celery("outcomes", broker=broker_url, backend=backend_url, set_as_current=False)
    app.conf.update(result_expires=600)
    install(app, {**{name: os.environ.get(name, short) for name, short in SHORT.items()}, **settings})
    return app


def note(what: str, **facts: Any) -> None:
    """Write a line into the book."""
    line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **facts}) + "\n"
    with (Path(os.environ["OUTCOMES_FOLDER"]) / "book").open("a") as book:
        book.write(line)


def begin(**facts: Any) -> CurrentJob:
    """Write down that a run has begun, and what it knows of itself."""
    run = current_job()
    note("start", id=run.id, attempts_made=run.attempts_made, attempts_started=run.attempts_started, **facts)
    return run


def await_gate(gate: str) -> None:
    """Wait until the test opens a gate."""
    path = Path(os.environ["OUTCOMES_FOLDER"]) / f"gate-{gate}"
    wait_until(path.exists, says=f"gate {gate} is open", within_s=60)


# -- retries --------------------------------------------------------------------------------------------------------------


class CardRefused(NonRetryableError):
    """A project's own."""


class Unspeakable(Exception):
    """Cannot be pickled: it holds what never can."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.generator = (number for number in ())


ERRORS = {
    "transient": lambda: TransientError("no answer"),
    "unexpected": lambda: KeyError("seat"),
    "final": lambda: CardRefused("card 7"),
    "gone": lambda: ResourceGone("exam 9"),
    "reject": lambda: Reject("not wanted", requeue=False),
    "unspeakable": lambda: Unspeakable("what it is"),
    "busy": lambda: error_for_status(503, "0.6"),
    "not there": lambda: error_for_status(404),
    "cancelled": lambda: JobCancelled("changed my mind"),
}  # fmt: skip


def fail_in_turn(kinds: list[str]) -> str:
    """Fail in the first runs, in each with the error of that place."""
    run = begin()
    if run.attempts_started <= len(kinds):
        raise ERRORS[kinds[run.attempts_started - 1]]()
    return "done"


def choose(error: BaseException, attempts_made: int) -> Any:
    """A backoff that looks at the error."""
    note("asked", error=type(error).__name__, attempts_made=attempts_made)
    return "stop" if isinstance(error, LookupError) else 40


def broken(error: BaseException, attempts_made: int) -> Any:
    """A backoff that fails itself, then answers nonsense."""
    if attempts_made == 1:
        raise ZeroDivisionError
    return -5


fail = job("outcome.fail", attempts=3, backoff=fixed(0))(fail_in_turn)
choosy = job("outcome.choosy", attempts=3, backoff=choose)(fail_in_turn)
broken_backoff = job("outcome.broken_backoff", attempts=3, backoff=broken)(fail_in_turn)


class Seat(BaseModel):
    """A payload model."""

    row: int
    place: str


@job("outcome.typed", payload=Seat)
def typed(seat: Seat) -> int:
    begin()
    return seat.row


# -- releases -------------------------------------------------------------------------------------------------------------

RELEASES = {"snooze": lambda: Snooze(200), "give_back": GiveBack, "limited": lambda: RateLimited(250)}


def go_back(kind: str, times: int = 1) -> str:
    """Go back to the queue in the first runs."""
    run = begin()
    if run.attempts_started <= times:
        raise RELEASES[kind]()
    return "done"


release = job("outcome.release", attempts=2)(go_back)
plain_release = shared_task(name="outcome.plain_release")(go_back)
autoretried_release = shared_task(
    name="outcome.autoretried_release", autoretry_for=(Exception,), max_retries=1, retry_backoff=1
)(go_back)


@shared_task(name="outcome.plain_final", autoretry_for=(Exception,), max_retries=3, default_retry_delay=0)
def plain_final() -> None:
    """A plain task that retries everything, and meets what cannot succeed."""
    begin()
    raise CardRefused("card 7")


# -- deadlines ------------------------------------------------------------------------------------------------------------


@job("outcome.heed", attempts=2, backoff=fixed(0), timeout_ms=300)
def heed(always: bool = True) -> str:
    """Wait on the token, and stop when it fires; the second run succeeds unless told otherwise."""
    run = begin(left_s=current_job().time_left_s, deadline_at_ms=current_job().deadline_at_ms)
    if run.attempts_made and not always:
        return "done"
    went_on = run.sleep(20)
    note("woke", id=run.id, reason=run.cancel_reason, went_on=went_on)
    run.raise_if_cancelled()
    return "slept"


@job("outcome.ignore", attempts=2, backoff=fixed(0), timeout_ms=300)
def ignore(how: str = "busy") -> None:
    """Never look at the token."""
    run = begin()
    try:
        while True:
            if how == "sleepy":
                time.sleep(0.01)
    except JobTimeoutError:
        note("interrupted", id=run.id)
        raise


@job("outcome.late", attempts=2, timeout_ms=200)
def late(seconds: float = 0.35) -> str:
    """Return after the deadline, within the grace."""
    run = begin()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.01)
    note("late", id=run.id, reason=run.cancel_reason)
    return "done"


@job("outcome.stuck", attempts=2, backoff=fixed(0), timeout_ms=300)
def stuck(runs: int = 99) -> str:
    """Be stuck in C, where no signal is heard, in the first runs."""
    run = begin()
    if run.attempts_started <= runs:
        deque(itertools.repeat(0), maxlen=0)
    return "done"


@job("outcome.swallow", attempts=1, timeout_ms=200)
def swallow() -> None:
    """Take the error of the deadline for one of its own, and go on."""
    begin()
    while True:
        try:
            time.sleep(0.01)
        except JobTimeoutError:
            note("swallowed")


@job("outcome.own_limit", attempts=1, timeout_ms=200, soft_time_limit=0.1)
def own_limit() -> None:
    """A declared job with a limit of Celery's own."""
    begin()
    try:
        await_gate("never")
    except SoftTimeLimitExceeded:
        note("soft limit")
        raise


@job("outcome.stone", attempts=2, timeout_ms=300)
def stone() -> str:
    """Be stuck in C in the first run, where other threads go on but no signal is heard."""
    if begin().attempts_started == 1:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)
    return "done"


def time_left() -> float | None:
    """Say how long there is until the deadline."""
    begin()
    return current_job().time_left_s


left = job("outcome.left")(time_left)
left_of_task = job("outcome.left_of_task", timeout_ms=5_000)(time_left)


@shared_task(name="outcome.plain_long")
def plain_long(seconds: float) -> str:
    """A plain task that takes longer than any deadline of ours."""
    run = begin()
    time.sleep(seconds)
    note("plain", id=run.id, reason=run.cancel_reason, left_s=run.time_left_s)
    return "done"


# -- cancel ---------------------------------------------------------------------------------------------------------------


@job("outcome.hold", attempts=3, backoff=fixed(0), timeout_ms=60_000)
def hold(then: str = "raise") -> str:
    """In the first run wait on the token for long, then do as told."""
    run = begin()
    if run.is_rerun:
        return "done by another"
    went_on = run.sleep(30)
    note("woke", id=run.id, reason=run.cancel_reason, went_on=went_on)
    if then == "raise":
        run.raise_if_cancelled()
    if then == "error":
        raise ValueError("for want of anything better")
    if then == "final":
        raise NonRetryableError("cannot go on")
    if then == "snooze":
        raise Snooze(10_000)
    if then == "retry":
        hold.retry()
    if then == "exit":
        raise SystemExit(3)
    return "done all the same"


@job("outcome.gated", attempts=3, backoff=fixed(0), timeout_ms=60_000)
def gated(gate: str) -> str:
    """Look at no token, wait for a gate."""
    run = begin()
    await_gate(gate)
    note("gate", id=run.id, reason=run.cancel_reason)
    return "done"


@job("outcome.fail_at_gate", attempts=3, backoff=fixed(0), timeout_ms=60_000)
def fail_at_gate(gate: str, kind: str = "unexpected") -> None:
    """Wait for a gate, then fail."""
    begin()
    await_gate(gate)
    raise ERRORS[kind]()


@shared_task(name="outcome.plain_hold")
def plain_hold() -> None:
    """A plain task that looks at its token."""
    run = current_job()
    begin()
    run.sleep(30)
    note("woke", id=run.id, reason=run.cancel_reason, went_on=False)
    run.raise_if_cancelled()


@shared_task(name="outcome.body")
def body(results: list[Any]) -> int:
    """The body of a chord."""
    return len(results)


@job("outcome.say")
def say() -> list[Any]:
    """Say how far it is, and write lines into the log."""
    run = begin()
    run.log("first line")
    run.progress(25)
    run.progress({"pages": [1, 2], "of": "é"})
    run.log("second line")
    return [run.correlation_id, run.idempotency_key, run.queue, run.name, run.is_rerun]


app = make()
