"""The moves as values: each function here names one script's arguments, and nothing else may. See ``lua/<verb>.lua``.

They are values, not calls, so that a move can travel on whichever connection is free: the transport's, the keeper's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Self

from queue_kit.store.errands import Errands, Number, _or_blank, _plain
from queue_kit.store.keys import Keys
from queue_kit.store.script import Call, text


@dataclass(frozen=True, slots=True)
class Added:
    """What became of an add. ``outcome``: added, continued, duplicated or deduplicated; then the job that is there."""

    outcome: str
    state: str
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unique:
    """A deduplication key with its mode (see :class:`queue_kit.policy.DedupPolicy`) and its life in milliseconds."""

    key: str
    mode: str
    ttl_ms: Number = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """One job taken from a queue, with the token that fences every later move of this run."""

    id: str
    queue: str
    token: str
    begun: bool
    message: str
    attempts_started: int
    attempts_made: int
    stalled_count: int
    expires: bool
    replays: int
    #: Since it was due: added, promoted, or back in its queue.
    waited_ms: int = field(default=0, compare=False)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Aside:
    """A job that a script has moved beside what it was called for, such as one that came due: from which state to which."""

    id: str
    queue: str
    name: str
    correlation_id: str
    attempts_started: int
    before: str
    after: str
    cause: str

    @classmethod
    def read(cls, row: Any) -> Self:
        """Read what a script has told."""
        job_id, queue, name, correlation_id, started, before, after, cause = map(text, row)
        return cls(job_id, queue, name, correlation_id, int(started), before, after, cause)


@dataclass(frozen=True, slots=True)
class Claim:
    """Jobs taken, and how many milliseconds until something more is due by the clock (``None``: nothing is); and what was
    moved on the way."""

    jobs: list[Claimed]
    wait_ms: Number
    asides: list[Aside] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settled:
    """Answer of a move that may write a dead letter. ``trouble``: what kept the record from being written, or ''."""

    outcome: str
    trouble: str


@dataclass(frozen=True, slots=True)
class Reaped:
    """One lease that had run out, and what became of its job."""

    id: str
    queue: str
    outcome: str
    worker: str
    trouble: str
    name: str = field(default="", compare=False)
    correlation_id: str = field(default="", compare=False)
    attempts_started: str = field(default="0", compare=False)


@dataclass(frozen=True, slots=True)
class Message:
    """What a run publishes under its own id: the job's next message."""

    body: str
    queue: str
    name: str
    nesting: int = 0


@dataclass(frozen=True, slots=True)
class When:
    """When a job is due: ``delay_ms`` from Redis's now, or ``due_at_ms`` by the caller's clock; neither: at once."""

    delay_ms: Number = None
    due_at_ms: Number = None

    @property
    def arguments(self) -> tuple[Any, Any]:
        return _or_blank(self.delay_ms), _or_blank(self.due_at_ms)


@dataclass(frozen=True, slots=True)
class Traits:
    """What a worker knows of its tasks: ``once`` run at most once, ``reserve`` are not begun by the claim."""

    once: frozenset[str] = frozenset()
    reserve: frozenset[str] = frozenset()

    def as_json(self, avoid: Iterable[str]) -> str:
        return f'{{"avoid": {_as_set(avoid)}, {_known_json(self.once, self.reserve)}}}'


@dataclass(frozen=True, slots=True)
class Room:
    """What a worker has room for: ``limit`` jobs in all, of which ``begin`` may start, ``suspects`` of them stalled."""

    limit: int
    begin: int
    suspects: int
    avoid: frozenset[str] = field(default_factory=frozenset)


AT_ONCE = When()


@dataclass(frozen=True, slots=True)
class Moves(Errands):
    """Every move of a job's life, for one prefix and one set of limits, and the errands beside it. Durations in milliseconds."""

    lease_ms: int = 30_000
    renewal_ms: int = 7_500
    reap_ms: int = 5_000
    max_stalled: int = 1
    dead_letters: int = 5_000

    def add(
        self, job_id: str, message: Message, *, priority: int = 0, when: When = AT_ONCE,
        expires_at_ms: Number = None, correlation_id: str = "", unique: Unique | None = None, again: bool = False,
    ) -> Call[Added]:
        return self._call(
            "add", lambda reply: Added(*map(text, reply)),
            job_id, message.queue, message.name, priority, message.body, *when.arguments, _or_blank(expires_at_ms),
            message.nesting, correlation_id, "1" if again else "",
            *((Keys(self.prefix).dedup(message.queue, message.name, unique.key), unique.mode) if unique else ("", "")),
            _or_blank(unique.ttl_ms if unique else None),
        )  # fmt: skip

    def add_many(
        self, bodies: Iterable[tuple[str, str]], like: Message, *, priority: int = 0, when: When = AT_ONCE,
        expires_at_ms: Number = None, correlation_id: str = "",
    ) -> Call[list[str]]:  # fmt: skip
        """Jobs, by id and message, that are alike in all else; answers the state of each, or '' for one that is left to `add`."""
        flat = [part for pair in bodies for part in pair]
        return self._call(
            "add_many", lambda reply: [text(state) for state in reply], like.queue, like.name, priority, *when.arguments,
            _or_blank(expires_at_ms), like.nesting, correlation_id, *flat,
        )  # fmt: skip

    def claim(self, worker: str, token: str, room: Room, traits: Traits, queues: Sequence[str]) -> Call[Claim]:
        return self._call(
            "claim", _read_claim, worker, token, self.lease_ms, room.limit, room.begin, room.suspects,
            self.max_stalled, traits.as_json(room.avoid), *queues,
        )  # fmt: skip

    def recall(self, token: str, queues: Sequence[str]) -> Call[list[Aside]]:
        return self._call("recall", lambda reply: list(map(Aside.read, reply)), token, *queues)

    def begin(self, job_id: str, token: str, once: bool) -> Call[tuple[str, int]]:
        return self._call("begin", lambda reply: (text(reply[0]), int(reply[1])), job_id, token, "1" if once else "")

    def renew(self, pairs: Iterable[tuple[str, str]]) -> Call[list[str]]:
        flat = [part for pair in pairs for part in pair]
        return self._call("renew", lambda reply: [text(word) for word in reply], self.lease_ms, self.renewal_ms, *flat)

    def complete(self, job_id: str, token: str) -> Call[str]:
        return self._call("complete", text, job_id, token)

    def retry(
        self, job_id: str, token: str, when: When, *, message: Message | None = None, counted: bool = True,
        cause: str = "retried", reason: str = "",
    ) -> Call[str]:
        new = (message.body, message.queue, message.name, message.nesting) if message else ("", "", "", 0)
        return self._call(
            "retry", text, job_id, token, *when.arguments, "1" if counted else "", cause, _plain(reason, 2_000), *new
        )  # fmt: skip

    def release(
        self, job_id: str, token: str, *, side: Literal["head", "tail"] = "head", delay_ms: Number = None,
        hold_ms: Number = None, reason: str = "",
    ) -> Call[str]:  # fmt: skip
        return self._call(
            "release", text, job_id, token, side, _or_blank(delay_ms), _or_blank(hold_ms), _plain(reason, 2_000)
        )

    def stall(self, job_id: str, token: str) -> Call[Settled]:
        return self._call("stall", _read_settled, job_id, token, self.max_stalled, self.dead_letters)

    def reap(self, batch: int = 100) -> Call[list[Reaped]]:
        return self._call(
            "reap", lambda reply: [Reaped(*map(text, row)) for row in reply],
            self.max_stalled, self.dead_letters, self.reap_ms, self.renewal_ms, batch,
        )  # fmt: skip

    def fail(
        self, job_id: str, token: str, cause: str, reason: str, *, error_class: str = "", stack: str = "",
        exhausted: bool = False, tell: bool = False, nesting: int = 0,
    ) -> Call[Settled]:
        return self._call(
            "fail", _read_settled, job_id, token, self.dead_letters, cause, _plain(reason, 2_000), _plain(error_class, 200),
            _plain(stack, 20_000), "1" if exhausted else "", "1" if tell else "", nesting,
        )  # fmt: skip

    def replace(self, job_id: str, token: str) -> Call[str]:
        return self._call("replace", text, job_id, token, self.dead_letters)

    def cancel(self, job_id: str, cause: str, token: str = "", *, tell: bool = False) -> Call[str]:
        return self._call("cancel", text, job_id, token, cause, "1" if tell else "")

    def promote(self, job_id: str) -> Call[str]:
        return self._call("promote", text, job_id)

    def postpone(self, job_id: str, delay_ms: int) -> Call[str]:
        return self._call("postpone", text, job_id, delay_ms)

    def expire(self, job_id: str) -> Call[str]:
        return self._call("expire", text, job_id)

    def remove(self, job_id: str) -> Call[str]:
        return self._call("remove", text, job_id)

    def trim(self, queue: str, state: str, keep: int, age_ms: int, known_ms: int, batch: int = 1000) -> Call[int]:
        return self._call("trim", int, queue, state, keep, age_ms, known_ms, batch)


@lru_cache(maxsize=8)
def _known_json(once: frozenset[str], reserve: frozenset[str]) -> str:
    """The part that stays the same from claim to claim."""
    return f'"once": {_as_set(once)}, "reserve": {_as_set(reserve)}'


def _as_set(names: Iterable[str]) -> str:
    return json.dumps(dict.fromkeys(names, True))


def _read_settled(reply: Any) -> Settled:
    return Settled(text(reply[0]), text(reply[1]))



def _read_claim(reply: Any) -> Claim:
    wait_ms, asides, *rows = reply
    jobs = [
        Claimed(
            text(row[0]), text(row[1]), text(row[2]), row[3] == 1, text(row[4]), row[5], row[6], row[7],
            bool(row[8]), row[9], row[10], text(row[11]),
        )
        for row in rows
    ]  # fmt: skip
    return Claim(jobs, None if wait_ms < 0 else int(wait_ms), [Aside.read(row) for row in asides])
