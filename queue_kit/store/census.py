"""What people and pages read of jobs and queues; without it each reader would spell keys and fields in its own way.

Reads only. The client may give strings or bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from queue_kit.rules.packing import joined, unpacked
from queue_kit.states import State
from queue_kit.store.keys import Keys
from queue_kit.store.roster import WorkerView, read_workers
from queue_kit.store.tally import read_tally

#: The lists behind each state: a reserved job is leased and still waits.
_LISTS: Final = {state: ("wait", "reserved") if state is State.WAITING else (state.value,) for state in State}
#: The token that stands for a canvas in place of a worker.
_REPLACED: Final = "replaced"
#: Fields of a record that a view shows as they are, as numbers, and as instants.
_TEXTS: Final = ("queue", "name", "worker", "cause", "reason", "error_class", "correlation_id")
_NUMBERS: Final = ("attempts_made", "attempts_started", "stalled_count", "priority")
_INSTANTS: Final = ("added_at", "started_at", "finished_at", "due_at")


@dataclass(frozen=True, slots=True)
class JobView:
    """One job as it was when it was read. Times in milliseconds by the clock of Redis; ``None``: not yet, or not kept."""

    id: str
    state: State
    queue: str
    name: str
    attempts_made: int
    attempts_started: int
    stalled_count: int
    priority: int
    added_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    due_at_ms: int | None
    worker: str
    cause: str
    reason: str
    error_class: str
    correlation_id: str
    message: str
    #: Its run has replaced itself by a canvas, which has not come back to it yet.
    replaced: bool
    #: A worker has taken it ahead and not begun.
    reserved: bool
    #: Only the id and the state are kept.
    trimmed: bool
    #: What its last run has said of its progress: whatever JSON can say; ``None``: nothing.
    progress: Any = None


@dataclass(frozen=True, slots=True)
class RunView:
    """One run that ended otherwise than by completing."""

    started_at_ms: int
    ended_at_ms: int
    worker: str
    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class LineView:
    """One line that a run has written into its job's log. ``attempt``: which start of the job that run was."""

    at_ms: int
    attempt: int
    line: str


@dataclass(frozen=True, slots=True)
class EventView:
    """One entry of a queue's event stream. ``job_id`` is empty where the event is the queue's own (``drained``)."""

    id: str
    kind: str
    job_id: str
    at_ms: int
    fields: Mapping[str, str]


class Census:
    """Reads jobs and queues under one prefix.

    :raises redis.exceptions.RedisError: from whatever is asked of it, where Redis does not answer.
    """

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client: Any = client
        self._keys = keys

    def job(self, job_id: str) -> JobView | None:
        """Read one job in one round trip; ``None`` if the id is not known (any more)."""
        record = _texts(self._client.hgetall(self._keys.job(job_id)))
        return _job_view(job_id, record) if record.get("state") else None

    def runs(self, job_id: str) -> list[RunView]:
        """Read the attempt history of a job, oldest first: its runs that ended otherwise than by completing."""
        lines = [json.loads(_text(line)) for line in self._client.lrange(self._keys.runs(job_id), 0, -1)]
        return [RunView(r["started_at"], r["ended_at"], r["worker"], r["cause"], r["reason"]) for r in lines]

    def log(self, job_id: str) -> list[LineView]:
        """Read what is kept of the lines that a job's runs have written, oldest first."""
        lines = [json.loads(_text(line)) for line in self._client.lrange(self._keys.log(job_id), 0, -1)]
        return [LineView(line["at"], line["attempt"], line["line"]) for line in lines]

    def events(self, queue: str, after: str = "0") -> list[EventView]:
        """Read what is kept of a queue's events, oldest first; only those later than the event of the id ``after``."""
        entries = self._client.xrange(self._keys.queue(queue, "events"), min=f"({after}")
        return [_event_view(_text(entry_id), _texts(fields)) for entry_id, fields in entries]

    def timeline(self, job_id: str, since_ms: int | None = None) -> list[EventView]:
        """Read what is kept of one job's events, oldest first, in whichever queues it has been.

        :param since_ms: when it was added, if its record may be gone: what is earlier is not read.
        """
        job = self.job(job_id)
        began_at_ms = job.added_at_ms if job and job.added_at_ms else since_ms
        after = str(began_at_ms - 1) if began_at_ms else "0"
        found = [event for queue in self.queues() for event in self.events(queue, after) if event.job_id == job_id]
        return sorted(found, key=lambda event: [int(part) for part in event.id.split("-")])

    def queues(self) -> list[str]:
        """Name every queue that has ever held a job, in order of their names."""
        return sorted(_text(name) for name in self._client.smembers(self._keys.queues))

    def counts(self, queue: str) -> dict[State, int]:
        """Count the jobs of a queue by state, at one instant. Jobs that replaced themselves are in no list."""
        return dict(read_tally(self._client, self._keys, queue).jobs)

    def workers(self) -> list[WorkerView]:
        """Read every worker that is on the roster, in order of their names: also one that has gone silent, for a while."""
        return read_workers(self._client, self._keys)

    def consumers(self, queue: str) -> list[WorkerView]:
        """Read the workers that live and consume a queue."""
        return [worker for worker in self.workers() if worker.consumes(queue)]

    def now_ms(self) -> int:
        """Now, by the clock of Redis: what all the times here are counted by."""
        seconds, microseconds = self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def jobs(self, queue: str, state: State, most: int = 100) -> list[JobView]:
        """Read jobs of a queue in one state: the next in line, or of those that have ended the latest, first."""
        pipe = self._client.pipeline(transaction=False)
        for part in _LISTS[state]:
            pipe.zrange(self._keys.queue(queue, part), 0, most - 1, desc=state.is_final)
        ids = [_text(member) for members in pipe.execute() for member in members][:most]
        for job_id in ids:
            pipe.hgetall(self._keys.job(job_id))
        records = zip(ids, map(_texts, pipe.execute()), strict=True)
        return [_job_view(job_id, record) for job_id, record in records if record.get("state")]

    def oldest_waiting(self, queue: str, looked_at: int = 1000) -> JobView | None:
        """Find the job that was added first among the next ``looked_at`` in line; ``None`` if nobody waits.

        By the time of its adding, not of its turn: a job of low priority that never gets one shows here.
        """
        ids = [_text(member) for member in self._client.zrange(self._keys.queue(queue, "wait"), 0, looked_at - 1)]
        pipe = self._client.pipeline(transaction=False)
        for job_id in ids:
            pipe.hget(self._keys.job(job_id), "added_at")
        added = [(int(at), job_id) for at, job_id in zip(pipe.execute(), ids, strict=True) if at]
        return self.job(min(added)[1]) if added else None

    def dead_letter_count(self, queue: str) -> int:
        """Count a queue's dead letters."""
        return int(self._client.zcard(self._keys.queue(queue, "dead")))


def _job_view(job_id: str, record: Mapping[str, str]) -> JobView:
    state, token = State(record["state"]), record.get("token", "")
    fields: dict[str, Any] = {name: record.get(name, "") for name in _TEXTS}
    fields |= {name: int(record.get(name) or 0) for name in _NUMBERS}
    fields |= {f"{name}_ms": _instant(record.get(name)) for name in _INSTANTS}
    fields["correlation_id"] = fields["correlation_id"] or job_id  # a job that nobody gave one is the first of its kind
    if state is State.COMPLETED:
        fields["reason"] = ""  # why an attempt before the last one failed; it stands in the history
    return JobView(
        id=job_id,
        state=state,
        **fields,
        progress=json.loads(record["progress"]) if "progress" in record else None,
        message=unpacked(joined(record), job_id, fields["name"], fields["queue"]),
        replaced=token == _REPLACED,
        reserved=state is State.WAITING and token not in ("", _REPLACED),
        trimmed="trimmed" in record,
    )


def _event_view(entry_id: str, fields: dict[str, str]) -> EventView:
    kind, job_id = fields.pop("event", ""), fields.pop("id", "")
    return EventView(entry_id, kind, job_id, int(entry_id.partition("-")[0]), fields)


def _instant(value: str | None) -> int | None:
    return int(float(value)) if value else None


def _text(value: Any) -> str:
    # What a task wrote into its error may be no text at all; it must not hide the rest.
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _texts(reply: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in reply.items()}
