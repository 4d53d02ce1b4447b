"""A desk at which a test makes moves by hand: one queue, short limits, and ways to let time pass inside Redis.

Without it each test would spell keys and scores, and would have to sleep until a lease runs out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import redis

from queue_kit.rules.packing import joined, unpacked
from queue_kit.store import AT_ONCE, Call, Claim, Keys, Ledger, Message, Moves, Room, Traits, When
from queue_kit.store.moves import Added, Reaped
from tests.support.events import PREFIX, events, trace

Answer = TypeVar("Answer")

LISTS = ("wait", "reserved", "active", "delayed", "completed", "failed", "cancelled")
HOUR_MS = 3_600_000
LATER = When(delay_ms=HOUR_MS)


class Desk:
    """Makes moves on one queue (others by name) and reads Redis past the code under test."""

    def __init__(self, client: redis.Redis, queue: str, **limits: int) -> None:
        short = {"lease_ms": 10_000, "renewal_ms": 2_500, "reap_ms": 1_000, "max_stalled": 1, "dead_letters": 100}
        self.client = client
        self.queue = queue
        self.keys = Keys(PREFIX)
        self.ledger = Ledger(client)
        self.moves = Moves(PREFIX, **{**short, **limits})
        self._claims = itertools.count(1)

    def run(self, call: Call[Answer]) -> Answer:
        """Make one move."""
        return self.ledger.run(call)

    # -- moves that tests make often ----------------------------------------------------------------------------------

    def message(self, *, queue: str = "", name: str = "work", body: str = "body", nesting: int = 0) -> Message:
        return Message(body, queue or self.queue, name, nesting)

    def add(self, job_id: str = "job", *, priority: int = 0, when: When = AT_ONCE, expires_at_ms: int | None = None,
            correlation_id: str = "", **message: Any) -> Added:  # fmt: skip
        """Add a job; what is not named: a waiting one, of this desk's queue."""
        call = self.moves.add(
            job_id, self.message(**message), priority=priority, when=when, expires_at_ms=expires_at_ms,
            correlation_id=correlation_id,
        )  # fmt: skip
        return self.run(call)

    def add_all(self, *job_ids: str, **options: Any) -> None:
        """Add jobs in this order."""
        for job_id in job_ids:
            self.add(job_id, **options)

    def claim(self, limit: int = 10, *, begin: int | None = None, suspects: int = 10, avoid: Iterable[str] = (),
              once: Iterable[str] = (), reserve: Iterable[str] = (), queues: Sequence[str] = (),
              worker: str = "w1") -> Claim:  # fmt: skip
        """Claim with a token base of its own; all that is taken begins unless ``begin`` says how many."""
        room = self.room(limit, limit if begin is None else begin, suspects, avoid)
        base = f"{worker}.{next(self._claims)}"
        return self.run(self.moves.claim(worker, base, room, self.traits(once, reserve), queues or [self.queue]))

    def room(self, limit: int, begin: int, suspects: int, avoid: Iterable[str]) -> Room:
        return Room(limit, begin, suspects, frozenset(avoid))

    def traits(self, once: Iterable[str] = (), reserve: Iterable[str] = ()) -> Traits:
        return Traits(frozenset(once), frozenset(reserve))

    def claimed(self, limit: int = 10, **options: Any) -> list[str]:
        """Claim, and return the ids that were taken, in order."""
        return [job.id for job in self.claim(limit, **options).jobs]

    def begin(self, job_id: str = "job", **options: Any) -> str:
        """Claim one job, which must be this one; return its token."""
        (job,) = self.claim(1, **options).jobs
        assert job.id == job_id
        return job.token

    def reserve(self, job_id: str = "job", **options: Any) -> str:
        """Claim one job ahead, which must be this one; return its token."""
        return self.begin(job_id, begin=0, **options)

    def running(self, job_id: str = "job", **options: Any) -> str:
        """Add one job and let it begin, past those that wait; return its token."""
        queue = options.get("queue") or self.queue
        self.add(job_id, **options)
        return self.begin(job_id, queues=[queue], avoid=set(self.listed("wait", queue)) - {job_id})

    def stalled(self, job_id: str = "job") -> None:
        """Add one job and let its worker be lost once; it waits for its second run."""
        self.run(self.moves.stall(job_id, self.running(job_id)))

    def replaced(self, job_id: str = "job") -> str:
        """Add one job whose run has replaced itself by a canvas; return that run's token."""
        token = self.running(job_id)
        assert self.run(self.moves.replace(job_id, token)) == "ok"
        return token

    def reap(self, batch: int = 100) -> list[Reaped]:
        """Reap as one of workers that have reaped all the time."""
        self.client.hset(f"{PREFIX}:reap", "last", self.now_ms())
        return self.run(self.moves.reap(batch))

    # -- time ---------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Now, by the clock of Redis."""
        seconds, microseconds = cast(tuple[int, int], self.client.time())
        return seconds * 1000 + microseconds // 1000

    def lease_runs_out(self, *job_ids: str, ago_ms: int = 1, part: str = "active") -> None:
        """Let leases have run out some time ago."""
        for job_id in job_ids:
            self.client.zadd(self.key(part), {job_id: self.now_ms() - ago_ms}, xx=True)

    def comes_due(self, *job_ids: str) -> None:
        """Let delayed jobs be due, in this order."""
        for place, job_id in enumerate(job_ids):
            self.client.zadd(self.key("delayed"), {job_id: 1_000 + place}, xx=True)

    # -- what is in Redis ---------------------------------------------------------------------------------------------

    def key(self, part: str, queue: str = "") -> str:
        return self.keys.queue(queue or self.queue, part)

    def record(self, job_id: str = "job") -> dict[str, str]:
        """The job's record, whole, with its message in one piece."""
        found = cast(dict[str, str], self.client.hgetall(self.keys.job(job_id)))
        message = unpacked(joined(found), job_id, found.get("name", ""), found.get("queue", ""))
        others = {name: value for name, value in found.items() if not name.isdecimal()}
        return others | {"message": message} if message else others

    def state(self, job_id: str = "job") -> str:
        return self.record(job_id).get("state", "")

    def counters(self, job_id: str = "job") -> tuple[int, int, int]:
        """Attempts made, attempts started, stalls."""
        record = self.record(job_id)
        return (
            int(record.get("attempts_made", 0)), int(record.get("attempts_started", 0)),
            int(record.get("stalled_count", 0)),
        )  # fmt: skip

    def runs(self, job_id: str = "job") -> list[dict[str, Any]]:
        """The job's attempt history."""
        return [json.loads(line) for line in cast(list[str], self.client.lrange(self.keys.runs(job_id), 0, -1))]

    def listed(self, part: str, queue: str = "") -> list[str]:
        """Ids in one list of the queue, in order."""
        return cast(list[str], self.client.zrange(self.key(part, queue), 0, -1))

    def places(self, job_id: str = "job", *queues: str) -> list[str]:
        """The lists that name this job."""
        return [part for queue in queues or (self.queue,) for part in LISTS if job_id in self.listed(part, queue)]

    def trace(self, job_id: str = "job", queue: str = "") -> str:
        """The job's events in order, in one line."""
        return " ".join(trace(self.client, queue or self.queue, job_id))

    def kinds(self, queue: str = "") -> list[str]:
        """All events of a queue in order."""
        return [event.kind for event in events(self.client, queue or self.queue)]

    def rules(self, queue: str = "", **fields: int) -> None:
        """Set a queue's switches and limits."""
        self.client.hset(self.key("meta", queue), mapping=fields)

    def marks(self, queue: str = "") -> int:
        """How many wake marks the queue has."""
        return int(cast(int, self.client.llen(self.key("wake", queue))))

    def take_mark(self, queue: str = "") -> bool:
        """Be woken, as an idle worker is: the mark is gone. Answers whether there was one."""
        return self.client.rpop(self.key("wake", queue)) is not None
