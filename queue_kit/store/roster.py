"""The roster of workers: who lives, where, and what is done once one is known to be dead; without it nobody could tell a queue
that is slow from one that nothing consumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from redis import Redis

from queue_kit.rules.silence import SILENT_MS, Silent
from queue_kit.store.keys import Keys
from queue_kit.store.moves import Moves, Reaped
from queue_kit.store.script import Call, script, text

#: How often a worker says that it lives.
BEAT_MS: Final = 1_000
#: One that has not been heard of for so long is not counted among those that consume.
_HEARD_MS: Final = 5 * BEAT_MS
#: For how long a silent one is remembered at least; and twice its lease, so that its jobs are back before it is forgotten.
_KEPT_MS: Final = 10 * BEAT_MS
#: Leases that one script gives back, so that it stays short.
BATCH: Final = 100
#: Running jobs of a queue that are looked at to find whose they are.
_LOOKED_AT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker says of itself. ``nonce``: its random identity, which its tokens begin with; ``kernel``: the identity of the
    running kernel, '' if unknown; ``started_at_ms``: by its own clock."""

    nonce: str
    node: str
    host: str
    kernel: str
    pid: int
    pool: str
    concurrency: int
    queues: Sequence[str]
    started_at_ms: int


@dataclass(frozen=True, slots=True)
class Running:
    """One job that a worker runs."""

    job_id: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker as it was when it was read; ``silent_ms``: for how long it has said nothing."""

    facts: Facts
    silent_ms: int
    running: Sequence[Running]

    @property
    def is_heard(self) -> bool:
        """Whether it has said lately that it lives."""
        return self.silent_ms <= _HEARD_MS

    def consumes(self, queue: str) -> bool:
        """Whether it lives and takes jobs of this queue."""
        return self.is_heard and queue in self.facts.queues


def enrol(moves: Moves, facts: Facts, witness: str) -> Call[dict[str, str]]:
    """Say that a worker lives; the answer: of the others on its kernel, where each can be seen to live."""
    keep_ms = max(_KEPT_MS, 2 * moves.lease_ms)
    words = json.dumps(asdict(facts), sort_keys=True)
    return Call(script("enrol"), (moves.prefix, facts.nonce, words, facts.kernel, witness, keep_ms), _read_others)


def look(moves: Moves, nonce: str) -> Call[tuple[int, list[Silent]]]:
    """Say that a worker lives, if its subscription is open; the answer: the instant, and who has been silent for a while."""
    keep_ms = max(_KEPT_MS, 2 * moves.lease_ms)
    return Call(script("look"), (moves.prefix, nonce, SILENT_MS, keep_ms), _read_silent)


def channel_of(moves: Moves, nonce: str) -> str:
    """Where a worker and its warden listen, and nobody speaks."""
    return f"{moves.prefix}:worker:{nonce}"


def abandon(moves: Moves, nonce: str, batch: int, heard_at_ms: int | None = None) -> Call[list[Reaped]]:
    """Give back what a worker has leased that is dead for certain, and strike it from the roster.

    :param heard_at_ms: it is only inferred, from silence since then: nothing is done once it has been heard again.
    """
    said = "" if heard_at_ms is None else heard_at_ms
    arguments = (moves.prefix, nonce, moves.max_stalled, moves.dead_letters, batch, said)
    return Call(script("abandon"), arguments, lambda reply: [Reaped(*map(text, row)) for row in reply])


def read_workers(client: Redis, keys: Keys) -> list[WorkerView]:
    """Read all workers in order of their names, in two trips; what each runs is read off the lists of running jobs."""
    pipe: Any = client.pipeline(transaction=False)
    pipe.hgetall(keys.workers)
    pipe.zrange(keys.beats, 0, -1, withscores=True)
    pipe.time()
    pipe.smembers(keys.queues)
    all_facts, beats, (seconds, microseconds), queues = pipe.execute()
    beat_at_ms = {text(nonce): int(at_ms) for nonce, at_ms in beats}
    now_ms = seconds * 1000 + microseconds // 1000
    running = _read_running(client, keys, [text(queue) for queue in queues])
    views = [
        WorkerView(facts, max(0, now_ms - beat_at_ms.get(facts.nonce, 0)), running.get(facts.nonce, ()))
        for facts in map(_read_facts, all_facts.values())
        if facts is not None
    ]
    return sorted(views, key=lambda view: (view.facts.node, view.facts.nonce))


def _read_running(client: Redis, keys: Keys, queues: Sequence[str]) -> Mapping[str, Sequence[Running]]:
    pipe: Any = client.pipeline(transaction=False)
    for queue in queues:
        pipe.zrange(keys.queue(queue, "active"), 0, _LOOKED_AT - 1)
    found = [(text(job_id), queue) for queue, ids in zip(queues, pipe.execute(), strict=True) for job_id in ids]
    for job_id, _ in found:
        pipe.hmget(keys.job(job_id), "worker", "name")
    running: dict[str, list[Running]] = {}
    for (job_id, queue), (worker, name) in zip(found, pipe.execute(), strict=True):
        running.setdefault(text(worker), []).append(Running(job_id, text(name), queue))
    return running


def _read_facts(words: Any) -> Facts | None:
    """A newer version may say more of its worker than this one knows; what says less is none of ours."""
    try:
        said = json.loads(words)
        return Facts(**{item.name: said[item.name] for item in fields(Facts)})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _read_silent(reply: Any) -> tuple[int, list[Silent]]:
    now_ms, *rest = reply
    rows = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return int(now_ms), [Silent(text(nonce), int(heard_at), listening > 0) for nonce, heard_at, listening in rows]


def _read_others(reply: Any) -> dict[str, str]:
    words = [text(word) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))
