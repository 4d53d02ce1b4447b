"""What becomes of each dead letter that is replayed, and how fast; without it one that is refused would stop all the others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from queue_kit.errors import (
    AlreadyReplayed,
    DeadLetterError,
    DeadLetterNotFound,
    NewerDeadLetter,
    QueueKitError,
    WrongState,
)
from queue_kit.store.letters import VERSION
from queue_kit.store.script import text


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one dead letter. ``error``: why it was left as it is, or ``None``."""

    id: str
    error: QueueKitError | None = None


class Pace:
    """Lets so many a second pass; the first at once."""

    def __init__(self, rate_per_s: float | None) -> None:
        self._rate_per_s = rate_per_s
        self._next_at = time.monotonic()

    def wait(self, number: int) -> None:
        if self._rate_per_s is not None:
            time.sleep(max(0.0, self._next_at - time.monotonic()))
            self._next_at = max(self._next_at, time.monotonic()) + number / self._rate_per_s


def unreadable(letter_id: str, version: Any, job_id: Any) -> DeadLetterError | None:
    """Why a record, of which these fields were read, cannot be replayed from here; ``None`` if it can."""
    if job_id is None:
        return DeadLetterNotFound(f"there is no dead letter {letter_id}")
    written = text(version)
    return newer(letter_id, written) if not written.isdecimal() or int(written) > VERSION else None


def newer(letter_id: str, version: str) -> NewerDeadLetter:
    """The error for a record of a later version: what it means is not known here."""
    return NewerDeadLetter(
        f"dead letter {letter_id} was written by a later version of queue_kit (record version {version}, known here: up to "
        f"{VERSION}): use that version to read or replay it"
    )


def refusal(letter_id: str, job_id: str, answer: Any) -> QueueKitError | None:
    """Why Redis has not replayed a dead letter; ``None`` if it has."""
    if isinstance(answer, Exception):
        return DeadLetterError(f"dead letter {letter_id}: Redis refused the replay: {answer}")
    if answer.outcome == "ok":
        return None
    if answer.outcome == "unknown":
        return DeadLetterNotFound(f"there is no dead letter {letter_id}")
    if answer.outcome == "replayed":
        return AlreadyReplayed(
            f"dead letter {letter_id} has been replayed already, by {answer.by}", answer.by, answer.at_ms
        )
    return live(job_id, answer.outcome)


def live(job_id: str, state: str) -> WrongState:
    """The error for a job that need not run again, or may still."""
    return WrongState(f"job {job_id} is {state}: only one that failed or was cancelled is replayed", state)
