"""One line in the log for each move of a job, where it is made; without one place for it each path would name the fields in its
own way, and a search for a job would find half of its life.

Off unless the level of the logger ``queue_kit.transitions`` says otherwise; no line costs a trip to Redis.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from queue_kit.store.moves import Reaped

logger = logging.getLogger("queue_kit.transitions")
if logger.level == logging.NOTSET:  # else the project has chosen already
    logger.setLevel(logging.WARNING)

#: What a move is called in the past, where that is not its verb with an ending.
_WORDS: Final = {
    "complete": "completed", "retry": "retrying", "release": "released", "stall": "stalled", "fail": "failed",
    "cancel": "cancelled", "replace": "replaced",
}  # fmt: skip


def told(transition: str, **fields: Any) -> None:
    """Write the line: queue, job_id, job_name, correlation_id, attempt (which start of the job), and what else is known."""
    if logger.isEnabledFor(logging.INFO):
        logger.info("job %s", transition, extra={"transition": transition, **fields})


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
        told(added.outcome, **{**fields, "job_id": added.id or posting.id}, state=added.state)
    elif run is not None and run.moved:
        told("retrying" if message.nesting <= run.nesting else "replaced", **fields)


def begun(job: Any) -> None:
    """Write that a job that this worker holds is about to run."""
    if logger.isEnabledFor(logging.INFO):
        told("active", **_held(job))


def settled(job: Any, verb: str, answer: Any) -> None:
    """Write what Redis has said to the end of a run. A move that was refused, or had been made before, is none; nor is it one
    that a job loses its reservation."""
    if not job.begun or verb not in _WORDS or not logger.isEnabledFor(logging.INFO):
        return
    state = getattr(answer, "outcome", answer)
    if state not in ("lost", "gone", "moved"):
        word = "cancelled" if state == "cancelled" else _WORDS[verb]
        told(word, **_held(job), state=word if state == "ok" else state)


def fields_of_reaped(found: Reaped) -> dict[str, Any]:
    """The fields of a job whose worker is lost, for the line that says so."""
    return {
        "transition": "released" if found.outcome == "released" else "stalled", "state": found.outcome, "queue": found.queue,
        "job_id": found.id, "job_name": found.name, "correlation_id": found.correlation_id,
        "attempt": int(found.attempts_started),
    }  # fmt: skip


def asked(verb: str, job_id: str, answer: Any) -> None:
    """Write what somebody has asked of a job, and what Redis has said to it."""
    told(verb, job_id=job_id, state=answer)


def _held(job: Any) -> dict[str, Any]:
    claimed = job.claimed
    return {
        "queue": claimed.queue, "job_id": claimed.id, "job_name": job.name, "correlation_id": job.correlation_id or claimed.id,
        "attempt": claimed.attempts_started + (not claimed.begun),
    }  # fmt: skip
