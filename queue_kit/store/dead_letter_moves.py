"""What is done to dead letters, as values: each function here names one script's arguments, and nothing else may.

Beside :mod:`queue_kit.store.moves`, since no worker needs any of them to run a job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from queue_kit.store.errands import _plain
from queue_kit.store.moves import Aside, Settled
from queue_kit.store.script import Call, script, text

#: Characters of who asked for a replay that a dead letter keeps.
_BY_KEPT = 200


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a replay. ``outcome``: ok, replayed, unknown, gone, or the state that the job is in instead; who
    replayed it before, and when; ``aside``: the job, if this has moved it."""

    outcome: str
    by: str
    at_ms: int
    aside: Aside | None = None


@dataclass(frozen=True, slots=True)
class Fresh:
    """A job's message as at its first send: no retry counted, nothing to wait for, nothing to expire."""

    body: str | bytes
    priority: int
    nesting: int

    @classmethod
    def of(cls, message: str | bytes) -> Fresh:
        """Reset a message. What is no message stays as it is: it will fail as it did before.

        Its body and all else is left alone; kombu's own marks for what JSON has no word for pass through as they are.
        """
        try:
            raw = json.loads(message)
            headers, properties = raw["headers"], raw["properties"]
            headers |= {"retries": 0, "eta": None, "expires": None}
            priority = min(9, max(0, int(properties.get("priority") or 0)))
            nesting = int(headers.get("replaced_task_nesting") or 0)
            return cls(json.dumps(raw), priority, nesting)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return cls(message, 0, 0)


def replay(
    prefix: str, job_id: str, fresh: Fresh, by: str, *, letter_id: str = "", dry_run: bool = False
) -> Call[Replayed]:
    """The move back to waiting of a failed or cancelled job."""
    arguments = (job_id, letter_id, fresh.body, fresh.priority, fresh.nesting, by[:_BY_KEPT], "1" if dry_run else "")
    return _call("replay", prefix, _read_replayed, *arguments)


def discard(prefix: str, letter_ids: Sequence[str]) -> Call[list[int]]:
    """The end of dead letters; answers 1 or 0 for each."""
    return _call("discard", prefix, lambda reply: [int(gone) for gone in reply], *letter_ids)


def bury(
    prefix: str,
    job_id: str,
    most: int,
    *,
    expired: bool = False,
    reason: str = "",
    error_class: str = "",
    stack: str = "",
) -> Call[Settled]:
    """The dead letter of a job that has ended without one; ``most``: how many the queue keeps."""
    arguments = (
        job_id, most, "1" if expired else "", _plain(reason, 2_000), _plain(error_class, 200), _plain(stack, 20_000)
    )  # fmt: skip
    return _call("bury", prefix, lambda reply: Settled(text(reply[0]), text(reply[1])), *arguments)


def _call(verb: str, prefix: str, read: Any, *arguments: Any) -> Call[Any]:
    return Call(script(verb), (prefix, *arguments), read)


def _read_replayed(reply: Any) -> Replayed:
    outcome, by, at_ms, *aside = reply
    return Replayed(text(outcome), text(by), int(at_ms), Aside.read(*aside) if aside else None)
