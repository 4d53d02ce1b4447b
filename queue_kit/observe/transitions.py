"""One line in the log for each move of a job, where it is made; without one place for it each path would name the fields in its
own way, and a search for a job would find half of its life.

Off unless the level of the logger ``queue_kit.transitions`` says otherwise; no line costs a trip to Redis.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from queue_kit.states import State
from queue_kit.store.moves import Aside, Reaped

logger = logging.getLogger("queue_kit.transitions")
if logger.level == logging.NOTSET:  # else the project has chosen already
    logger.setLevel(logging.WARNING)

#: What a move is called in the past, where that is not its verb with an ending.
_WORDS: Final = {
    "complete": "completed", "retry": "retrying", "release": "released", "stall": "stalled", "fail": "failed",
    "cancel": "cancelled", "replace": "replaced",
}  # fmt: skip
#: Where a move leads that answers `ok`.
_LEADS_TO: Final = {"complete": State.COMPLETED, "fail": State.FAILED, "replace": State.WAITING}
#: What is asked of a job, if Redis answers so: the word for it, and from where to where ('': it is not known, or nowhere).
_ASKED: Final = {
    ("cancel", "cancelled"): ("cancelled", "", State.CANCELLED),
    ("cancel", "flagged"): ("cancel", State.ACTIVE, State.ACTIVE),
    ("promote", "ok"): ("promoted", State.DELAYED, State.WAITING),
    ("postpone", "ok"): ("postponed", State.DELAYED, State.DELAYED),
    ("remove", "ok"): ("removed", "", ""),
}
#: What a script does beside what it was called for, by its cause; a job that it ends is called by the state it ends in.
_ASIDES: Final = {"due": "promoted", "recalled": "released", "replayed": "replayed"}


def told(transition: str, before: str = "", after: str = "", cause: str = "", **fields: Any) -> None:
    """Write the line: from which state to which and why, then queue, job_id, job_name, correlation_id, attempt (which start of
    the job), and what else is known."""
    if logger.isEnabledFor(logging.INFO):
        known = {"from": before, "to": after, "cause": cause}
        named = {name: str(value) for name, value in known.items() if value}
        logger.info("job %s", transition, extra={"transition": transition, **named, **fields})


def sent(kit: Any, posting: Any, added: Any) -> None:
    """Write what became of a send; ``added`` is ``None`` where a run has moved its own job by it."""
    if not logger.isEnabledFor(logging.INFO):
        return
    message, run = posting.message, kit.running.get(posting.id)
    fields = {
        "queue": message.queue, "job_id": posting.id, "job_name": message.name,
        "correlation_id": posting.correlation_id or posting.id, "attempt": run.facts.get("attempts_started") if run else 0,
    }  # fmt: skip
    if added is not None:
        told(added.outcome, "", added.state, **{**fields, "job_id": added.id or posting.id})
    elif run is not None and run.moved:
        word, cause = ("retrying", run.why[0]) if message.nesting <= run.nesting else ("replaced", "replaced")
        told(word, State.ACTIVE, run.moved_to, cause, **fields)


def adopted(posting: Any, state: str) -> None:
    """Write that a message of stock Celery's has become a job."""
    told(
        "added", "", state, "taken over from stock Celery", queue=posting.message.queue, job_id=posting.id,
        job_name=posting.message.name, correlation_id=posting.correlation_id or posting.id, attempt=0,
    )  # fmt: skip


def begun(job: Any) -> None:
    """Write that a job that this worker holds is about to run."""
    if logger.isEnabledFor(logging.INFO):
        told("active", State.WAITING, State.ACTIVE, "claimed", **_held(job))


def settled(job: Any, verb: str, why: str, answer: Any) -> None:
    """Write what Redis has said to the end of a lease. A move that was refused, or had been made before, is none; nor is it one
    that a job loses its reservation."""
    if verb not in _WORDS or not logger.isEnabledFor(logging.INFO):
        return
    state = getattr(answer, "outcome", answer)
    if state in ("lost", "gone", "moved") or (not job.begun and state in ("waiting", "released")):
        return
    word, before = (_WORDS[verb], State.ACTIVE if job.begun else State.WAITING)
    after = _LEADS_TO.get(verb, state) if state == "ok" else state
    told("cancelled" if after == State.CANCELLED else word, before, after, why, **_held(job))


def asides(moved: Iterable[Aside]) -> None:
    """Write what a script has done to other jobs than it was called for."""
    if logger.isEnabledFor(logging.INFO):
        for one in moved:
            aside(one)


def aside(one: Aside) -> None:
    """Write what a script has done to such a job; none for one that only loses its reservation."""
    if one.before != one.after:
        told(
            one.after if one.after == State.CANCELLED else _ASIDES[one.cause], one.before, one.after, one.cause,
            queue=one.queue, job_id=one.id, job_name=one.name, correlation_id=one.correlation_id, attempt=one.attempts_started,
        )  # fmt: skip


def step_failed(job_id: str, cause: str, answer: Any) -> None:
    """Write that a job has failed which replaced itself by a canvas, by a step of that."""
    outcome = getattr(answer, "outcome", answer)
    after = _LEADS_TO["fail"] if outcome == "ok" else outcome
    if after in (State.FAILED, State.CANCELLED):
        told(after, State.WAITING, after, cause, job_id=job_id)


def fields_of_reaped(found: Reaped) -> dict[str, Any]:
    """The fields of a job whose worker is lost, for the line that says so."""
    begun = found.outcome != "released"
    return {
        "transition": "stalled" if begun else "released", "from": "active" if begun else "waiting",
        "to": found.outcome if begun else "waiting", "cause": "its worker is lost", "queue": found.queue,
        "job_id": found.id, "job_name": found.name, "correlation_id": found.correlation_id,
        "attempt": int(found.attempts_started),
    }  # fmt: skip


def asked(verb: str, job_id: str, answer: Any) -> None:
    """Write what somebody has asked of a job, if it was done or is to be."""
    if (verb, answer) in _ASKED:
        word, before, after = _ASKED[verb, answer]
        told(word, before, after, "asked for", job_id=job_id)


def _held(job: Any) -> dict[str, Any]:
    claimed = job.claimed
    return {
        "queue": claimed.queue, "job_id": claimed.id, "job_name": job.name, "correlation_id": job.correlation_id or claimed.id,
        "attempt": claimed.attempts_started + (not claimed.begun),
    }  # fmt: skip
