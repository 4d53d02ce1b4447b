"""Jobs that one script adds together; without it Redis would begin a script, and look up the queue, for each job of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from queue_kit.errors import QueueUnavailable
from queue_kit.store import Call, Moves
from queue_kit.store.moves import Added
from queue_kit.transport.envelope import Posting
from queue_kit.transport.trip import Trip, unavailable

#: Jobs in one parcel: Redis is with it for less than a millisecond, and serves others in between.
MOST: Final = 50


@dataclass(slots=True)
class Parcel:
    """Postings that differ in id and message alone, or one by itself. ``again``: it may have been added already."""

    postings: Sequence[Posting]
    again: bool = False

    def call(self, moves: Moves, again: bool) -> Call[Any]:
        """The move that adds them."""
        self.again = self.again or again
        first, *others = self.postings
        if not others:
            return first.add(moves, again=self.again)
        return moves.add_many(
            [(posting.id, posting.message.body) for posting in self.postings], first.message, priority=first.priority,
            when=first.when, expires_at_ms=first.expires_at_ms, correlation_id=first.correlation_id,
        )  # fmt: skip

    def answers(self, trip: Trip, index: int) -> Iterator[Added | QueueUnavailable | None]:
        """What became of each, from a trip's move; ``None`` for one that goes alone: its id is known already, or may be in a
        parcel that Redis has refused for the others in it.
        """
        fault = trip.fault(index)
        if len(self.postings) == 1:
            yield trip.result(index)
        elif trip.refused(index):
            yield from (None for _ in self.postings)
        elif fault is not None:
            yield from (unavailable(posting.id, *fault) for posting in self.postings)
        else:
            for posting, state in zip(self.postings, trip.result(index), strict=True):
                yield Added("added", state, posting.id) if state else None


def parcels_of(postings: Sequence[Posting]) -> list[Parcel]:
    """Postings in parcels, in order. One with a deduplication key goes alone."""
    parcels = []
    for _, alike in groupby(postings, _all_else):
        while some := list(islice(alike, MOST)):
            parcels.append(Parcel(some))
    return parcels


def _all_else(posting: Posting) -> tuple[Any, ...]:
    message = posting.message
    key = posting.unique and posting.id
    return (
        key, message.queue, message.name, message.nesting, posting.when, posting.priority, posting.expires_at_ms,
        posting.correlation_id,
    )  # fmt: skip
