"""When a worker that nobody can look at is taken for dead; without one rule for it, an outage of Redis or of whoever looks
would pass for the death of everyone else.

It is an inference: what Redis sees of a closed connection is the same whether a process ended or something between closed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

#: How often a worker says that it lives, and looks who else does.
LOOK_MS: Final = 500
#: Who has said nothing for so long is looked at: one word has not come.
SILENT_MS: Final = 750
#: Connections that close after a longer silence than this were not closed by a death: the path was cut, or its machine is off.
_FRESH_MS: Final = 1_500
#: Between two looks further apart than this, Redis or whoever looks was away.
_BREAK_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Silent:
    """A worker that has said nothing for a while. ``heard_at_ms``: its last word, by the clock of Redis; ``listens``: whether a
    subscription of its is open."""

    nonce: str
    heard_at_ms: int
    listens: bool


@dataclass(frozen=True, slots=True)
class Watch:
    """What one worker has seen of the others. ``since_ms``: since when without a break; ``missed``: last words of those whose
    subscriptions have closed; ``dead``: of those that have been silent for too long since."""

    since_ms: int
    at_ms: int
    missed: Mapping[str, int]
    dead: Mapping[str, int]


def looked(before: Watch | None, at_ms: int, silent: Iterable[Silent], patience_ms: int) -> Watch:
    """What is known after one more look. ``before``: ``None`` once anything has come between, such as a reconnect."""
    unbroken = before is not None and 0 <= at_ms - before.at_ms <= _BREAK_MS
    known = before if before is not None and unbroken else Watch(at_ms, at_ms, {}, {})
    missed = {one.nonce: one.heard_at_ms for one in silent if not one.listens and _counts(one, known, at_ms)}
    dead = {
        nonce: heard_at_ms for nonce, heard_at_ms in missed.items()
        if nonce in known.missed and at_ms - heard_at_ms >= patience_ms
    }  # fmt: skip
    return Watch(known.since_ms, at_ms, missed, dead)


def _counts(one: Silent, known: Watch, at_ms: int) -> bool:
    """Whether its connections closed while it was well, under the eyes of who looks; or were known to have."""
    if known.missed.get(one.nonce) == one.heard_at_ms:
        return True
    return one.heard_at_ms >= known.since_ms and at_ms - one.heard_at_ms <= _FRESH_MS
