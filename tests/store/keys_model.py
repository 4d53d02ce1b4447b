"""Deduplication keys in the plain model: who holds one, what a second send of it changes, and when it is free.

Without it the random test would know of keys only what single cases show, and none of them meets a crash or a replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WITH_TTL = ("ttl", "extend", "replace")
MODES = (*WITH_TTL, "until_finished", "keep_last")

Key = tuple[str, str]


@dataclass
class Send:
    """What a send with a key says."""

    id: str
    queue: str
    key: Key
    mode: str
    priority: int
    delayed: bool


@dataclass
class Hold:
    """Who holds a key. ``state``: of a job whose record was trimmed. ``kept``: what runs after it."""

    id: str
    mode: str
    ttl: bool
    state: str = ""
    kept: Send | None = None

    def facts(self) -> tuple[str, str, bool, str]:
        return self.id, self.mode, self.ttl, self.kept.id if self.kept else ""


class KeysModel:
    """Mixed into the model: it has ``jobs``, and can make a job and put it in line."""

    jobs: dict[str, Any]

    def __init__(self) -> None:
        self.keys: dict[Key, Hold] = {}

    def new_job(self, sent: Send) -> str:
        raise NotImplementedError

    def put(self, job: Any, side: str, *, delayed: bool) -> str:
        raise NotImplementedError

    def is_live(self, job: Any) -> bool:
        return job is not None and job.state in ("waiting", "delayed", "active")

    def holder(self, key: Key) -> tuple[Hold, Any] | None:
        hold = self.keys.get(key)
        if hold is None:
            return None
        job = self.jobs.get(hold.id)
        stale = not (self.is_live(job) and job.dedup == key)
        return None if stale and not hold.ttl else (hold, job)

    def add_unique(self, sent: Send) -> tuple[str, str, str]:
        """Outcome, state and id."""
        if sent.id in self.jobs:
            return "duplicated", self.jobs[sent.id].state, sent.id
        found = self.holder(sent.key)
        if found is None:
            self.keys[sent.key] = Hold(sent.id, sent.mode, sent.mode in WITH_TTL)
            return "added", self.new_job(sent), sent.id
        hold, job = found
        if job is not None and sent.mode == "replace" and job.state == "delayed":
            job.priority, job.nesting, job.expired, job.dedup = sent.priority, 0, False, sent.key
            self.put(job, "tail", delayed=sent.delayed)
        elif sent.mode == "keep_last" and self.is_live(job) and job.started:
            hold.mode, hold.ttl, hold.kept = "keep_last", False, sent
        return "deduplicated", job.state if job else hold.state or "unknown", hold.id

    def release_key(self, job: Any) -> None:
        """The job has ended."""
        hold = self.keys.get(job.dedup)
        if hold is None or hold.id != job.id or hold.mode in WITH_TTL:
            return
        del self.keys[job.dedup]
        if hold.kept is not None and hold.kept.id not in self.jobs:
            self.keys[job.dedup] = Hold(hold.kept.id, hold.mode, ttl=False)
            self.new_job(hold.kept)

    def free(self, key: Key) -> str:
        """By hand."""
        hold = self.keys.pop(key, None)
        if hold is None:
            return ""
        if hold.kept is not None and hold.kept.id not in self.jobs:
            self.new_job(hold.kept)
        return hold.id

    def forget_holder(self, job: Any, trimmed_as: str = "") -> None:
        """The record of a job goes: removed, and its key with it; or trimmed, and the key remembers how it ended."""
        hold = self.keys.get(job.dedup)
        if hold is None or hold.id != job.id:
            return
        if trimmed_as:
            hold.state = trimmed_as
        else:
            del self.keys[job.dedup]


def facts_of(fields: Mapping[str, str], ttl_ms: int) -> tuple[str, str, bool, str] | None:
    """The same of what Redis holds."""
    return (fields["id"], fields["mode"], ttl_ms > 0, fields.get("next_id", "")) if fields else None
