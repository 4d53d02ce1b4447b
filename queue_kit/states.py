"""The words of a job's life; without one list of them, scripts, events, pages and metrics would drift apart."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job is. "Stalled" is an event, not a state (as in BullMQ)."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True when the job will not run again by itself."""
        return self in FINAL


#: A queue of this name is never used: dead letters are records, and what consumed them could fail and leave another one.
RESERVED_QUEUE: Final = "dead-letter"

FINAL: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Event(StrEnum):
    """What the event stream of a queue tells, written by the script that makes the move."""

    ADDED = "added"
    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"
    RETRIES_EXHAUSTED = "retries-exhausted"
    DEAD_LETTERED = "dead-lettered"
    DUPLICATED = "duplicated"
    PROGRESS = "progress"
    DEDUPLICATED = "deduplicated"
    REMOVED = "removed"
    DRAINED = "drained"
    PAUSED = "paused"
    RESUMED = "resumed"


class Cause(StrEnum):
    """Why a job ended without completing; the most specific one."""

    EXHAUSTED = "exhausted"
    NON_RETRYABLE = "non_retryable"
    INVALID_PAYLOAD = "invalid_payload"
    UNKNOWN_TASK = "unknown_task"
    MALFORMED = "malformed"
    STALLED = "stalled"
    LOST = "lost"
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    REVOKED = "revoked"
    CANCELLED = "cancelled"


class StopReason(StrEnum):
    """Why a run is asked to stop, the weakest reason first: a stronger one takes its place."""

    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"
    CANCELLED = "cancelled"
    LEASE_LOST = "lease_lost"


#: The legal moves: verb → (from, to). ``None`` stands for "no record". A reserved or replaced job is waiting; a job that has
#: replaced itself is added again by its canvas, wherever a crash has left it; claim also promotes and expires on its way.
MOVES: Final[dict[str, tuple[frozenset[State | None], frozenset[State | None]]]] = {
    "add": (
        frozenset({None, State.WAITING, State.DELAYED, State.ACTIVE}),
        frozenset({State.WAITING, State.DELAYED, State.CANCELLED}),
    ),
    "promote": (frozenset({State.DELAYED}), frozenset({State.WAITING})),
    "claim": (frozenset({State.WAITING}), frozenset({State.ACTIVE})),
    "begin": (frozenset({State.WAITING}), frozenset({State.ACTIVE})),
    "renew": (frozenset({State.ACTIVE}), frozenset({State.ACTIVE})),
    "complete": (frozenset({State.ACTIVE}), frozenset({State.COMPLETED})),
    "retry": (frozenset({State.ACTIVE}), frozenset({State.DELAYED, State.WAITING, State.CANCELLED})),
    "release": (frozenset({State.ACTIVE}), frozenset({State.DELAYED, State.WAITING, State.CANCELLED})),
    "replace": (frozenset({State.ACTIVE}), frozenset({State.WAITING, State.FAILED, State.CANCELLED})),
    "stall": (frozenset({State.ACTIVE}), frozenset({State.WAITING, State.FAILED, State.CANCELLED})),
    "fail": (frozenset({State.ACTIVE, State.WAITING}), frozenset({State.FAILED, State.CANCELLED})),
    "cancel": (
        frozenset({State.WAITING, State.DELAYED, State.ACTIVE}),
        frozenset({State.CANCELLED, State.ACTIVE}),
    ),
    "expire": (frozenset({State.WAITING, State.DELAYED}), frozenset({State.CANCELLED})),
    "replay": (frozenset({State.FAILED, State.CANCELLED, None}), frozenset({State.WAITING})),
    "adopt": (frozenset({None}), frozenset({State.WAITING, State.DELAYED})),
    "hand_over": (frozenset({State.WAITING, State.DELAYED}), frozenset({None})),
    "remove": (frozenset(State) - {State.ACTIVE}, frozenset({None})),
    "trim": (frozenset(FINAL), frozenset({None})),
}
